"""Propagation through the suffix, candidate margins, flips and the no-flip certificate."""

import math

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from tests.core.test_bounds_instances import (
    EXAMPLES,
    SCALES,
    SEEDS,
    assert_tight,
    tensor,
    violated,
)
from vicoset.core import bounds


@given(SEEDS, st.integers(0, 8), SCALES)
@EXAMPLES
def test_unrolled_recursion(seed: int, blocks: int, scale: float) -> None:
    rng = np.random.default_rng(seed)
    growth, injection, errors = (tensor(rng.exponential(1.5, blocks)) for _ in range(3))
    if seed % 3 == 0:
        growth[rng.random(blocks) < 0.3] = 0.0
    initial = tensor(scale * rng.exponential(1.0))
    identity = bounds.unrolled_recursion(initial, growth, injection, scale * errors)
    assert identity.holds(1e-12)
    slow = float(initial) * math.prod(growth.tolist())
    for k in range(blocks):
        later = math.prod(growth[k + 1 :].tolist())
        assert identity.terms["after"][k].item() == pytest.approx(later)
        slow += float(injection[k] * scale * errors[k]) * later
    assert identity.lhs.item() == pytest.approx(slow)


def test_unrolled_recursion_by_hand() -> None:
    identity = bounds.unrolled_recursion(
        tensor(1.0), tensor([2.0, 3.0]), tensor([1.0, 1.0]), tensor([5.0, 7.0])
    )
    assert identity.lhs.item() == identity.rhs.item() == 6.0 + 15.0 + 7.0
    assert identity.terms["after"].tolist() == [3.0, 1.0]
    # A product that starts at its own block counts the block's growth too often.
    assert not bounds.Identity(identity.lhs, tensor(6.0 + 30.0 + 21.0)).holds(1e-2)


def two_executions(
    seed: int, blocks: int, width: int, perturbation: float
) -> tuple[Tensor, Tensor, tuple[Tensor, Tensor, Tensor, Tensor, Tensor]]:
    """Logits of two runs of T <- tanh(A T + B M), and the constants of the bound."""
    rng = np.random.default_rng(seed)
    full = tensor(rng.standard_normal(width))
    compact = full + perturbation * tensor(rng.standard_normal(width))
    initial = (full - compact).norm()
    growth, injection, errors = [], [], []
    for _ in range(blocks):
        a, b = (tensor(rng.standard_normal((width, width)) / width**0.5) for _ in range(2))
        message = tensor(rng.standard_normal(width))
        other = message + perturbation * tensor(rng.standard_normal(width))
        full, compact = (a @ full + b @ message).tanh(), (a @ compact + b @ other).tanh()
        growth.append(torch.linalg.matrix_norm(a, 2))
        injection.append(torch.linalg.matrix_norm(b, 2))
        errors.append((message - other).norm())
    head = tensor(rng.standard_normal((5, width)))
    empty = tensor(np.zeros(0))
    stacked = (torch.stack(v) if v else empty for v in (growth, injection, errors))
    constants = (initial, *stacked, torch.linalg.matrix_norm(head, 2))
    return head @ full, head @ compact, constants


@given(SEEDS, st.integers(0, 4), st.integers(1, 4), st.sampled_from([0.0, 1e-6, 1e-2, 1.0]))
@EXAMPLES
def test_innovation_bound_and_interface_budget(
    seed: int, blocks: int, width: int, perturbation: float
) -> None:
    full, compact, constants = two_executions(seed, blocks, width, perturbation)
    assert bounds.innovation_bound(full, compact, *constants).holds(1e-12)
    margin = full[:, None] - full
    budget = bounds.interface_budget(*constants, margin)
    safe = budget.lhs < budget.rhs * (1 - 1e-9)
    assert bool((compact[:, None] > compact)[safe].all())


def test_innovation_bound_is_tight_on_a_line() -> None:
    # Everything one-dimensional and linear: a = (2, 3), b = (1, 4), L_o = sqrt(2) for (z, -z).
    initial, errors = tensor(1.0), tensor([5.0, 7.0])
    growth, injection = tensor([2.0, 3.0]), tensor([1.0, 4.0])
    shift = 6.0 + 15.0 + 28.0
    full, compact = tensor([0.0, 0.0]), tensor([shift, -shift])
    constants = (initial, growth, injection, errors, tensor(math.sqrt(2)))
    bound = bounds.innovation_bound(full, compact, *constants)
    assert bound.terms["state_error"].item() == shift
    assert_tight(bound, 0.99)
    unamplified = math.sqrt(2) * (6.0 + 5.0 + 28.0)
    assert violated(bound.lhs, tensor(unamplified))
    # At a Full margin of 2 * shift the pair is level: anything less flips it.
    budget = bounds.interface_budget(*constants, tensor(2 * shift))
    assert budget.lhs.item() == pytest.approx(2 * shift)
    flips = tensor([2 * shift - 1, 0.0]), tensor([2 * shift - 1 - shift, shift])
    assert flips[0].argmax() != flips[1].argmax()
    certified_without_root = budget.lhs.item() / math.sqrt(2) < 2 * shift - 1
    assert certified_without_root and budget.lhs.item() > 2 * shift - 1


def logit_pair(
    seed: int, rows: int, vocabulary: int, distance: float, scale: float, ties: bool
) -> tuple[Tensor, Tensor]:
    rng = np.random.default_rng(seed)
    full = rng.standard_normal((rows, vocabulary))
    compact = full + distance * rng.standard_normal(full.shape)
    if ties:
        full, compact = np.round(full), np.round(compact)
    return tensor(scale * full), tensor(scale * compact)


LOGITS = st.builds(
    logit_pair,
    seed=SEEDS,
    rows=st.integers(1, 6),
    vocabulary=st.integers(2, 9),
    distance=st.sampled_from([0.0, 1e-3, 0.1, 1.0, 5.0]),
    scale=SCALES,
    ties=st.booleans(),
)


@given(LOGITS)
@EXAMPLES
def test_margin_lemma_and_pair_stability(pair: tuple[Tensor, Tensor]) -> None:
    full, compact = pair
    lemma = bounds.margin_lemma(full, compact)
    assert lemma.lhs.shape == (*full.shape, full.shape[-1])
    assert lemma.holds(1e-12)
    shift = (full - compact).numpy()
    slow = np.linalg.norm(shift - shift.mean(-1, keepdims=True), axis=-1)
    assert lemma.terms["distortion"].numpy() == pytest.approx(slow)
    assert bounds.pair_stability(full, compact).holds(0.0)


def test_margin_lemma_is_tight_for_a_pair_moved_apart() -> None:
    full, compact = tensor([1.0, 0.0, 0.3]), tensor([0.4, 0.6, 0.3])
    lemma = bounds.margin_lemma(full, compact)
    assert lemma.holds()
    assert lemma.lhs[0, 1].item() == pytest.approx(lemma.rhs.item()) == pytest.approx(1.2)
    assert violated(lemma.lhs, lemma.rhs / math.sqrt(2))
    # A common shift of all candidates costs nothing: the distortion is centred.
    assert bounds.margin_lemma(full, full + 7).rhs.item() == pytest.approx(0.0, abs=1e-12)
    # The pair flipped, and only the factor sqrt(2) keeps it from being certified.
    stability = bounds.pair_stability(full, compact)
    assert stability.holds() and stability.rhs[0, 1].item() == 0.0
    assert lemma.terms["distortion"].item() < 1.0 < math.sqrt(2) * lemma.terms["distortion"]


def candidate_sets(seed: int, full: Tensor) -> Tensor:
    """Random sets that contain Full's winner."""
    rng = np.random.default_rng(seed)
    mask = torch.tensor(rng.random(full.shape) < rng.random())
    return mask.scatter(-1, full.argmax(-1, keepdim=True), True)


@given(LOGITS, SEEDS, st.floats(1e-3, 10.0))
@EXAMPLES
def test_flip_risk(pair: tuple[Tensor, Tensor], seed: int, eta: float) -> None:
    full, compact = pair
    candidates = candidate_sets(seed, full)
    size = float((full - compact).abs().max()) or 1.0
    risk = bounds.flip_risk(full, compact, candidates, eta * size)
    assert risk.holds(0.0)
    assert bool((risk.lhs == (full.argmax(-1) != compact.argmax(-1)).double()).all())
    # Over the rows as a population, the union bound.
    assert risk.lhs.mean() <= sum(event.mean() for event in risk.terms.values()) + 1e-12
    for row, mask in enumerate(candidates):
        shift = (full - compact)[row][mask]
        distortion = float((shift - shift.mean()).norm())
        assert bool(risk.terms["distortion"][row]) == (distortion > eta * size) or (
            distortion == pytest.approx(eta * size)
        )
        z = full[row][mask].sort(descending=True).values
        margin = float(z[0] - z[1]) if len(z) > 1 else math.inf
        assert bool(risk.terms["thin_margin"][row]) == (margin <= math.sqrt(2) * eta * size) or (
            margin == pytest.approx(math.sqrt(2) * eta * size)
        )


def test_flip_risk_needs_each_event() -> None:
    everything = torch.ones(1, 2, dtype=torch.bool)
    full, compact = tensor([[1.0, 0.0]]), tensor([[0.49, 0.51]])  # distortion 0.721, margin 1
    thin = bounds.flip_risk(full, compact, everything, 0.73)
    assert {k: v.item() for k, v in thin.terms.items()} == {
        "escape": 0.0,
        "distortion": 0.0,
        "thin_margin": 1.0,
    }
    assert thin.lhs.item() == 1.0 and thin.holds()
    # Without the sqrt(2) no event would explain this flip: margin 1 > eta = 0.73 > distortion.
    far = bounds.flip_risk(full, compact, everything, 0.5)
    assert [v.item() for v in far.terms.values()] == [0.0, 1.0, 0.0]
    alone = bounds.flip_risk(full, compact, tensor([[True, False]], torch.bool), 0.5)
    assert [v.item() for v in alone.terms.values()] == [1.0, 0.0, 0.0]
    assert alone.holds()


def certificates(full: Tensor, compact: Tensor, top: int) -> list[bounds.Inequality]:
    winners = torch.zeros_like(full, dtype=torch.bool)
    for z in (full, compact):
        winners = winners.scatter(-1, z.argmax(-1, keepdim=True), True)
    return [
        bounds.observed_no_flip(full, compact, top=top),
        bounds.observed_no_flip(full, compact, winners),
    ]


@given(LOGITS, st.integers(1, 12))
@EXAMPLES
def test_observed_no_flip(pair: tuple[Tensor, Tensor], top: int) -> None:
    full, compact = pair
    wide, narrow = certificates(full, compact, top)
    assert wide.holds(0.0) and narrow.holds(0.0)
    # A smaller candidate set never gives a larger ratio.
    assert bool((narrow.terms["rho"] <= wide.terms["rho"] * (1 + 1e-9) + 1e-9).all())
    z = full.sort(-1, descending=True).values
    assert torch.equal(wide.terms["margin"], z[..., 0] - z[..., 1])
    mask = bounds.winner_candidates(full, compact, top)
    for z in (full, compact):
        assert bool(mask.gather(-1, z.argmax(-1, keepdim=True)).all())
    assert int(mask.sum(-1).max()) <= 2 * (top + 1)


def test_observed_no_flip_by_hand() -> None:
    full = tensor([[1.0, 0.0], [1.0, 0.0], [1.0, 1.0]])
    compact = tensor([[0.51, 0.49], [0.49, 0.51], [1.0, 1.0]])
    case = bounds.observed_no_flip(full, compact)
    assert case.terms["rho"].tolist() == [pytest.approx(0.98), pytest.approx(1.02), math.inf]
    assert case.lhs.tolist() == [1.0, 0.0, 0.0] and case.rhs.tolist() == [1.0, 0.0, 1.0]
    # Without the sqrt(2), the flipped row would be certified.
    assert case.terms["rho"][1].item() / math.sqrt(2) < 1


def test_exact_ties_are_not_certified() -> None:
    # The top pair meets half way: sqrt(2) d equals the margin, and the lower index wins the tie.
    # In floating point the product sometimes falls below the margin.
    rng = np.random.default_rng(0)
    full = tensor(np.sort(rng.standard_normal((5000, 3)), -1))
    level = full.clone()
    level[:, 1:] = full[:, 1:].mean(-1, keepdim=True)
    margin = full[:, 2] - full[:, 1]
    naive = math.sqrt(2) * bounds.centred_distortion(full, level) < margin
    assert bool((naive & (full.argmax(-1) != level.argmax(-1))).any())
    everything = torch.ones_like(full, dtype=torch.bool)
    assert bounds.pair_stability(full, level).holds(0.0)
    for top in (1, 2, 3):
        assert bounds.observed_no_flip(full, level, top=top).holds(0.0)
    for row, eta in enumerate(margin[:500] / math.sqrt(2)):
        one = slice(row, row + 1)
        assert bounds.flip_risk(full[one], level[one], everything[one], float(eta)).holds(0.0)


def test_certificate_needs_both_winners_in_the_set() -> None:
    full, compact = tensor([[1.0, 0.0, 0.0]]), tensor([[1.0, 0.0, 5.0]])
    without = tensor([[True, True, False]], torch.bool)
    assert not bounds.observed_no_flip(full, compact, without).holds()
    assert bounds.observed_no_flip(full, compact).holds()
