"""Signed messages: decomposition, softmax masses, state errors, direction and magnitude."""

import math

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from tests.core.test_bounds_instances import (
    EXAMPLES,
    POPULATIONS,
    SCALES,
    SEEDS,
    Population,
    assert_tight,
    probabilities,
    tensor,
    unit,
    violated,
)
from vicoset.core import bounds

HEATS = st.sampled_from([1e-3, 1.0, 30.0])
ONE = torch.tensor([0])


def message_arguments(
    case: Population, seed: int, heat: float
) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor, Tensor]:
    """Attention [T, N], compact attention [T, K] (sums up to 1 or less), carriers, states, W."""
    rng = np.random.default_rng(seed)
    queries, width = int(rng.integers(1, 4)), case.states.shape[1]
    share = tensor(rng.random((2, queries, 1)))
    attention = share[0] * probabilities(rng, queries, len(case.states), heat)
    compact = share[1] * probabilities(rng, queries, case.kept, heat)
    attention[:, rng.random(len(case.states)) < 0.2] = 0.0
    kept = tensor(rng.standard_normal((case.kept, width))) * case.states.abs().max()
    value = tensor(rng.standard_normal((int(rng.integers(1, 5)), width)))
    return attention, compact, case.carrier, case.states, kept, value


@given(POPULATIONS, SEEDS, HEATS, st.booleans())
@EXAMPLES
def test_message_decomposition_and_bound(
    case: Population, seed: int, heat: float, biased: bool
) -> None:
    arguments = message_arguments(case, seed, heat)
    attention, compact, carrier, full, kept, value = arguments
    rows = value.shape[0]
    bias = tensor(np.random.default_rng(seed).standard_normal(rows)) if biased else None
    identity = bounds.message_decomposition(*arguments, bias)
    assert identity.holds(1e-12)
    bound = bounds.message_bound(*arguments, bias)
    assert bound.holds(1e-12)
    assert torch.equal(bound.lhs, identity.lhs.norm(dim=-1))
    t = seed % len(attention)
    offset = 0.0 if bias is None else bias
    slow = sum(attention[t, i] * (value @ full[i] + offset) for i in range(len(full)))
    slow = slow - sum(compact[t, j] * (value @ kept[j] + offset) for j in range(len(kept)))
    assert bool(((identity.lhs[t] - slow).abs() <= 1e-12 * identity.scale[t]).all())
    grouped = [float(attention[t, carrier == j].sum()) for j in range(len(kept))]
    assert bound.terms["mass_error"][t].item() == pytest.approx(
        float((tensor(grouped) - compact[t]).abs().sum()), abs=1e-14
    )


@pytest.mark.parametrize("norm", [1.0, 5.0])
def test_message_bound_is_tight_when_everything_is_aligned(norm: float) -> None:
    # W reads the first axis with weight `norm`; state 3 -> 1, attention 1 -> 1/2.
    value = tensor([[norm, 0.0], [0.0, 0.1]])
    full, kept = tensor([[3.0, 0.0]]), tensor([[1.0, 0.0]])
    arguments = (tensor([[1.0]]), tensor([[0.5]]), ONE, full, kept, value)
    bound = bounds.message_bound(*arguments)
    assert bound.lhs.item() == pytest.approx(2.5 * norm)
    assert_tight(bound, 0.99)
    terms = bound.terms
    assert violated(bound.lhs, norm * terms["representation"])
    assert violated(bound.lhs, norm * terms["height"] * terms["mass_error"])
    assert violated(bound.lhs, terms["representation"] + terms["mass_error"]) == (norm > 1)
    higher = bounds.message_bound(*arguments[:3], 2 * full, 2 * kept, value)
    assert_tight(higher, 0.99)
    assert violated(higher.lhs, norm * (terms["representation"] * 2 + terms["mass_error"]))
    # A bias along the same axis adds its own part, and the printed form would miss it.
    biased = bounds.message_bound(*arguments, tensor([2.0, 0.0]))
    assert biased.lhs.item() == pytest.approx(2.5 * norm + 1.0)
    assert_tight(biased, 0.99)
    assert violated(biased.lhs, bound.rhs)


def test_decomposition_needs_both_terms() -> None:
    full, kept = tensor([[3.0], [1.0]]), tensor([[1.0]])
    attention, compact = tensor([[0.25, 0.5]]), tensor([[0.5]])
    identity = bounds.message_decomposition(
        attention, compact, torch.tensor([0, 0]), full, kept, tensor([[2.0]])
    )
    assert identity.lhs.item() == 1.5
    assert identity.terms["representation"].item() == 1.0
    assert identity.terms["mass"].item() == 0.5
    for term in identity.terms.values():
        assert not bounds.Identity(identity.lhs, term).holds(1e-2)


@given(POPULATIONS, SEEDS, HEATS)
@EXAMPLES
def test_nonvisual_keys_join_as_their_own_carriers(
    case: Population, seed: int, heat: float
) -> None:
    rng = np.random.default_rng(seed)
    width, texts = case.states.shape[1], 3
    text = tensor(rng.standard_normal((texts, width)))
    attention = probabilities(rng, 2, len(case.states) + texts, heat)
    compact = probabilities(rng, 2, case.kept + texts, heat)
    carrier = torch.cat([case.carrier, case.kept + torch.arange(texts)])
    full, kept = torch.cat([case.states, text]), torch.cat([case.states[case.support], text])
    value = tensor(rng.standard_normal((2, width)))
    assert bounds.message_bound(attention, compact, carrier, full, kept, value).holds(1e-12)
    # Both softmaxes have mass 1, so a value bias does not matter to the whole output.
    bias = tensor(rng.standard_normal(2))
    arguments = (attention, compact, carrier, full, kept, value)
    plain, biased = (bounds.message_decomposition(*arguments, b) for b in (None, bias))
    size = biased.scale * 1e-12
    assert bool(((plain.rhs - biased.rhs).abs() <= size).all())


def logits(
    case: Population, seed: int, heat: float, others: int
) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor]:
    """Full and compact logits where a carrier is visible iff some member of its cluster is."""
    rng = np.random.default_rng(seed)
    queries = int(rng.integers(1, 4))
    full = tensor(heat * rng.standard_normal((queries, len(case.states))))
    visible = torch.tensor(rng.random(full.shape) < 0.8)
    full = full.masked_fill(~visible, -torch.inf)
    compact = tensor(heat * rng.standard_normal((queries, case.kept)))
    seen = torch.stack([visible[:, case.carrier == j].any(1) for j in range(case.kept)], 1)
    compact = compact.masked_fill(~seen, -torch.inf)
    other = tensor(heat * rng.standard_normal((queries, others)))
    moved = other if seed % 2 else other + tensor(heat * rng.standard_normal(other.shape))
    return full, compact, case.carrier, other, moved


@given(POPULATIONS, SEEDS, HEATS, st.integers(1, 4))
@EXAMPLES
def test_softmax_mass_bound(case: Population, seed: int, heat: float, others: int) -> None:
    bound = bounds.softmax_mass_bound(*logits(case, seed, heat, others))
    assert bound.holds(1e-12)
    terms = bound.terms
    for smaller, larger in (
        (bound.lhs, terms["all"]),
        (terms["all"], terms["sharp"]),
        (terms["sharp"], terms["half_range"]),
        (terms["half_range"], bound.rhs),
    ):
        assert bounds.Inequality(smaller, larger, scale=bound.scale).holds(1e-12)


def test_softmax_mass_bound_is_tight_for_two_categories() -> None:
    for step in (1e-3, 0.1):
        change = tensor([[step, -step]])
        both, none = torch.tensor([0, 1]), tensor(np.zeros((1, 0)))
        bound = bounds.softmax_mass_bound(change, 0 * change, both, none, none)
        assert_tight(bound, 0.99)
        # Split evenly around the level point, two categories attain the sharp form at any size.
        even = bounds.softmax_mass_bound(50 * change, -50 * change, both, none, none)
        assert even.terms["sharp"].item() == pytest.approx(even.lhs.item())
        # An unchanged common shift costs nothing, and the half range knows it.
        shifted = bounds.softmax_mass_bound(change + 5, 0 * change, both, none, none)
        assert shifted.terms["half_range"].item() == pytest.approx(step)
        assert shifted.rhs.item() == pytest.approx(5 + step)


def test_softmax_mass_bound_groups_by_log_sum_exp_and_keeps_the_other_keys() -> None:
    # Two equal keys in one cluster against one text key: mass 2/3. Compact: 1/2.
    zero = tensor([[0.0]])
    bound = bounds.softmax_mass_bound(tensor([[0.0, 0.0]]), zero, torch.tensor([0, 0]), zero, zero)
    assert bound.lhs.item() == pytest.approx(2 / 3 - 1 / 2)
    assert bound.rhs.item() == pytest.approx(math.log(2))
    # The largest member as the cluster's logit would claim no error at all.
    assert violated(bound.lhs, tensor([0.0]))
    # A moved text logit alone moves visual mass: the maximum must run over it too.
    text = bounds.softmax_mass_bound(zero, zero, ONE, zero, zero + 1)
    assert text.holds() and text.lhs.item() > 0.2
    assert violated(text.lhs, tensor([0.0]))


def test_softmax_mass_bound_with_unseen_keys() -> None:
    hidden, zero = tensor([[-math.inf]]), tensor([[0.0]])
    unseen = bounds.softmax_mass_bound(hidden, hidden, ONE, zero, zero)
    assert (unseen.lhs.item(), unseen.rhs.item()) == (0.0, 0.0)
    # A visible cluster whose carrier cannot be seen: nothing finite bounds it.
    lost = bounds.softmax_mass_bound(zero, hidden, ONE, zero, zero)
    assert lost.lhs.item() == pytest.approx(0.5) and lost.rhs.item() == math.inf


def rms_norm(states: Tensor, gain: Tensor) -> Tensor:
    return states / (states.square().mean(-1, keepdim=True) + 1e-6).sqrt() * gain


@given(POPULATIONS, SEEDS, HEATS)
@EXAMPLES
def test_state_to_message(case: Population, seed: int, heat: float) -> None:
    rng = np.random.default_rng(seed)
    attention = tensor(rng.random((2, 1))) * probabilities(rng, 2, len(case.states), heat)
    gain = tensor(rng.standard_normal(case.states.shape[1]))
    moved = case.states[case.support]
    moved = moved + float(rng.choice([0.0, 0.1, 2.0])) * tensor(rng.standard_normal(moved.shape))
    full, kept = rms_norm(case.states, gain), rms_norm(moved, gain)
    constant = bounds.local_lipschitz(case.states, moved, case.carrier, full, kept)
    bound = bounds.state_to_message(
        attention, case.carrier, case.masses, case.states, moved, full, kept, constant
    )
    assert bound.holds(1e-12)
    middle = bound.terms["weighted"]
    assert bounds.Inequality(bound.lhs, middle, scale=bound.scale).holds(1e-12)
    assert bounds.Inequality(middle, bound.rhs).holds(1e-12)


def lone_token(mass: float, floor: float = 0.5) -> bounds.Inequality:
    """State 3 -> 1 through N(h) = 4h, attention 0.7."""
    states, moved = tensor([[3.0]]), tensor([[1.0]])
    full, kept = 4 * states, 4 * moved
    constant = bounds.local_lipschitz(states, moved, ONE, full, kept)
    assert constant.item() == 4.0
    return bounds.state_to_message(
        tensor([[0.7]]), ONE, tensor([mass]), states, moved, full, kept, constant, floor
    )


def test_state_to_message_is_tight_for_one_token_of_the_least_mass() -> None:
    bound = lone_token(0.5)
    assert bound.lhs.item() == pytest.approx(0.7 * 8)
    assert_tight(bound, 0.99)
    assert violated(bound.lhs, bound.rhs / math.sqrt(2))  # sqrt(2) dropped
    assert violated(bound.lhs, bound.rhs / 4)  # L_N dropped
    # A lighter token breaks the printed constant; its own floor restores it.
    assert not lone_token(0.1).holds()
    assert_tight(lone_token(0.1, floor=0.1), 0.99)


def test_state_to_message_gives_away_much_when_attention_is_spread() -> None:
    count = 100
    states, moved = torch.ones(count, 1, dtype=torch.float64), tensor([[0.0]])
    attention, masses = tensor(np.full((1, count), 1 / count)), tensor(np.full(count, 0.5))
    bound = bounds.state_to_message(
        attention,
        torch.zeros(count, dtype=torch.long),
        masses,
        states,
        moved,
        states,
        moved,
        tensor(1.0),
    )
    assert bound.lhs.item() == pytest.approx(bound.terms["weighted"].item())
    assert bound.rhs.item() == pytest.approx(10 * bound.lhs.item())


@given(SEEDS, st.integers(1, 6), SCALES)
@EXAMPLES
def test_message_budget(seed: int, heads: int, scale: float) -> None:
    rng = np.random.default_rng(seed)
    errors = tensor(scale * rng.exponential(1, heads))
    weights = tensor(rng.exponential(1, heads))
    budgets = errors * tensor(1 + rng.random(heads))
    bound = bounds.message_budget(errors, budgets, weights)
    assert bound.holds(1e-12)
    assert_tight(bounds.message_budget(errors, errors, weights), 0.99)
    stacked = torch.cat([w.sqrt() * e[None] for w, e in zip(weights, errors, strict=True)])
    assert bound.lhs.item() == pytest.approx(stacked.norm().item())


def message_pair(seed: int, size: int, scale: float, kind: str) -> tuple[Tensor, Tensor]:
    rng = np.random.default_rng(seed)
    y, z = rng.standard_normal((2, size, 2))
    if kind == "near":
        z = y * 1.5 + 1e-7 * z
    elif kind == "opposite":
        z = -0.5 * y
    elif kind == "zero":
        z = 0 * y
    elif kind == "larger":
        z = 1e4 * z
    return tensor(scale * y), tensor(scale * z)


@given(
    SEEDS,
    st.integers(1, 5),
    SCALES,
    st.sampled_from(["any", "near", "opposite", "zero", "larger"]),
)
@EXAMPLES
def test_direction_and_magnitude(seed: int, size: int, scale: float, kind: str) -> None:
    y, z = message_pair(seed, size, scale, kind)
    identity = bounds.direction_magnitude(y, z)
    assert identity.holds(1e-12)
    assert identity.rhs.shape == (2,)
    bound = bounds.direction_lower_bounds(y, z)
    assert bound.holds(1e-12)
    # The two are the legs of one right triangle.
    assert bound.lhs.square().sum().item() == pytest.approx(
        bound.rhs.square().item(), rel=1e-9, abs=1e-15
    )


def test_direction_and_magnitude_by_hand() -> None:
    y, z = tensor([1.0, 0.0]), tensor([1.0, 2.0])
    identity = bounds.direction_magnitude(y, z)
    assert identity.lhs.item() == pytest.approx(4.0) and identity.holds()
    alpha, kappa = identity.terms["alpha"].item(), identity.terms["kappa"].item()
    assert (alpha, kappa) == (pytest.approx(math.sqrt(5)), pytest.approx(1 / math.sqrt(5)))
    for wrong in (1 + alpha**2 - alpha * kappa, (1 - alpha) ** 2 + alpha * (1 - kappa)):
        assert not bounds.Identity(identity.lhs, tensor(wrong)).holds(1e-2)


def test_direction_lower_bounds_are_tight() -> None:
    y = tensor([3.0, 4.0])
    longer = bounds.direction_lower_bounds(y, 3 * y)
    assert longer.lhs.tolist() == [2.0, 0.0]
    assert_tight(longer, 0.99)
    turned = bounds.direction_lower_bounds(y, tensor([-4.0, 3.0]))
    assert turned.lhs.tolist() == pytest.approx([0.0, math.sqrt(2)])
    assert_tight(turned, 0.99)
    # Their sum is not a lower bound.
    both = bounds.direction_lower_bounds(y, tensor([-8.0, 6.0]))
    assert both.holds() and violated(both.lhs.sum(), both.rhs)


@given(POPULATIONS, SEEDS, SCALES)
@EXAMPLES
def test_directional_quantisation(case: Population, seed: int, scale: float) -> None:
    rng = np.random.default_rng(seed)
    energies = scale * rng.exponential(1, len(case.states)) * (rng.random(len(case.states)) < 0.7)
    directions = case.features.clone()
    directions[(directions == 0).all(1), 0] = 1.0  # an atom without energy still needs one
    directions = unit(directions)
    bound = bounds.directional_quantisation(
        tensor(energies), directions, case.support, case.carrier
    )
    assert bound.holds(1e-12)
    middle = bound.terms["triangle"]
    assert bounds.Inequality(bound.lhs, middle, scale=bound.scale).holds(1e-12)
    assert bounds.Inequality(middle, bound.rhs, scale=bound.scale).holds(1e-12)
    cosines = (directions * directions[case.support][case.carrier]).sum(1)
    slow = 2 * energies.sum() * float(tensor(energies) @ (1 - cosines))
    assert bound.rhs.item() ** 2 == pytest.approx(slow, rel=1e-9, abs=1e-13 * energies.sum() ** 2)


def test_directional_quantisation_is_tight_for_equal_turns() -> None:
    turned = tensor([[1.0, 0.0], [math.cos(0.3), math.sin(0.3)], [math.cos(0.3), math.sin(0.3)]])
    bound = bounds.directional_quantisation(
        tensor([0.0, 2.0, 2.0]), turned, torch.tensor([0]), torch.tensor([0, 0, 0])
    )
    assert_tight(bound, 0.99)
    assert violated(bound.lhs, bound.rhs / math.sqrt(2))  # the factor 2 dropped
    assert violated(bound.lhs, bound.rhs / math.sqrt(bound.terms["total"].item()))  # E dropped


@given(SEEDS, st.integers(1, 6), st.integers(1, 4), SCALES, st.booleans())
@EXAMPLES
def test_energy_does_not_see_signs(
    seed: int, atoms: int, rank: int, scale: float, with_mass: bool
) -> None:
    rng = np.random.default_rng(seed)
    values = tensor(scale * rng.standard_normal((atoms, rank)))
    signs = tensor(rng.choice([-1.0, 1.0], atoms))
    sigma = tensor(scale * float(with_mass))
    assert bounds.sign_blindness(values, signs, sigma).holds(1e-12)


def test_support_and_realisation_are_distinct() -> None:
    v = tensor([3.0, 4.0])
    pair = bounds.sign_blindness(torch.stack([v, v]), tensor([1.0, -1.0]), tensor(0.0))
    assert pair.lhs.tolist() == pair.rhs.tolist() == [5.0, 5.0]
    assert pair.terms["sum"].tolist() == [6.0, 8.0]
    assert pair.terms["flipped_sum"].tolist() == [0.0, 0.0]
    # Anything but a sign changes the energies.
    scaled = bounds.sign_blindness(torch.stack([v, v]), tensor([1.0, -0.9]), tensor(0.0))
    assert not scaled.holds(1e-2)
