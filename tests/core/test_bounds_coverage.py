"""The facility objective: submodularity, certificates, bank mixture."""

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from tests.core.test_bounds_instances import (
    CLIENTS,
    EXAMPLES,
    SEEDS,
    assert_tight,
    best_support,
    tensor,
    value,
    violated,
)
from vicoset.core import bounds

NOTHING = torch.empty(0, dtype=torch.long)


def nested(seed: int, tokens: int) -> tuple[Tensor, Tensor, Tensor]:
    """A inside B, and a token, which may lie in either."""
    rng = np.random.default_rng(seed)
    order = torch.tensor(rng.permutation(tokens))
    outer = order[: int(rng.integers(0, tokens + 1))]
    inner = outer[: int(rng.integers(0, len(outer) + 1))]
    return inner, outer, torch.tensor([int(rng.integers(tokens))])


@given(CLIENTS, SEEDS)
@EXAMPLES
def test_facility_is_normalised_monotone_submodular(clients: Tensor, seed: int) -> None:
    inner, outer, token = nested(seed, clients.shape[1])
    assert bounds.normalisation(clients).holds()
    monotone = bounds.monotonicity(clients, inner, outer)
    assert monotone.holds()
    assert monotone.rhs.sum().item() == pytest.approx(value(clients, outer.tolist()))
    assert bounds.marginal_form(clients, inner, token).holds()
    assert bounds.submodularity(clients, inner, outer, token).holds()


def test_submodularity_by_hand() -> None:
    clients = tensor([[0.5, 1.0, 0.75]])
    case = bounds.submodularity(clients, torch.tensor([0]), torch.tensor([0, 2]), torch.tensor([1]))
    assert (case.lhs.item(), case.rhs.item()) == (0.25, 0.5)
    form = bounds.marginal_form(clients, torch.tensor([1]), torch.tensor([0]))
    assert (form.lhs.item(), form.rhs.item()) == (0.0, 0.0)


def test_submodularity_is_tight_on_separate_clients() -> None:
    both = torch.tensor([0, 1])
    case = bounds.submodularity(tensor(np.eye(3)), both[:1], both, torch.tensor([2]))
    assert_tight(case, 0.99)
    # The supports exchanged: gains do not grow the other way.
    wrong = bounds.submodularity(
        tensor([[0.5, 1.0, 0.75]]), torch.tensor([0, 2]), torch.tensor([0]), torch.tensor([1])
    )
    assert not wrong.holds()


def test_monotonicity_is_tight_and_one_way() -> None:
    clients = tensor([[0.5, 1.0]])
    zero, both = torch.tensor([0]), torch.tensor([0, 1])
    assert_tight(bounds.monotonicity(clients, both[1:], both), 0.99)
    assert not bounds.monotonicity(clients, both, zero).holds()


def test_marginal_needs_its_clip() -> None:
    clients = tensor([[0.5, 1.0]])
    form = bounds.marginal_form(clients, torch.tensor([1]), torch.tensor([0]))
    unclipped = clients[:, 0] - clients[:, 1]
    assert form.holds() and not torch.equal(form.lhs, unclipped)


def test_negative_entries_break_the_assumption() -> None:
    clients = tensor([[-1.0, -2.0]])
    assert not bounds.monotonicity(clients, NOTHING, torch.tensor([0])).holds()


@given(CLIENTS, SEEDS, st.integers(1, 5))
@EXAMPLES
def test_residual_is_below_the_upper_bound(clients: Tensor, seed: int, budget: int) -> None:
    support, _, _ = nested(seed, clients.shape[1])
    target = best_support(clients, budget)
    case = bounds.residual_bound(clients, support, target, budget)
    assert case.holds()
    members = bounds.Inequality(case.lhs, case.terms["members"], scale=clients.amax(1).sum())
    assert members.holds()
    assert violated(case.terms["members"], case.rhs) is False


def test_residual_bound_is_tight_on_separate_clients() -> None:
    clients = tensor(np.diag([4.0, 3.0, 2.0, 1.0]))
    case = bounds.residual_bound(clients, torch.tensor([3]), torch.tensor([0, 1]), 2)
    assert case.rhs.item() == 7.0  # the two largest marginals
    clients = tensor(np.diag([4.0, 3.0, 2.0, 0.0]))
    assert_tight(bounds.residual_bound(clients, torch.tensor([3]), torch.tensor([0, 1]), 2), 0.99)
    # One marginal fewer than the target has members is not enough.
    short = bounds.residual_bound(clients, torch.tensor([3]), torch.tensor([0, 1]), 1)
    assert not short.holds()


def batches(seed: int, clients: Tensor, budget: int, greedy: bool) -> tuple[Tensor, list[Tensor]]:
    """An initial set and batches that fill the budget, at random or by largest value."""
    rng = np.random.default_rng(seed)
    order = rng.permutation(clients.shape[1])
    if greedy:
        order = np.argsort(-clients.sum(0).numpy(), kind="stable")
    order = order[:budget]
    cuts = np.sort(rng.integers(0, len(order) + 1, 3))
    first, *rest = (torch.tensor(part, dtype=torch.long) for part in np.split(order, cuts))
    return first, [batch for batch in rest if len(batch)]


@given(CLIENTS, SEEDS, st.integers(1, 5), st.booleans())
@EXAMPLES
def test_batched_certificate(clients: Tensor, seed: int, budget: int, greedy: bool) -> None:
    budget = min(budget, clients.shape[1])
    initial, rounds = batches(seed, clients, budget, greedy)
    target = best_support(clients, budget)
    case = bounds.batched_certificate(clients, initial, rounds, target, budget)
    assert case.holds()
    chosen = torch.cat([initial, *rounds]).tolist()
    assert case.rhs.item() == pytest.approx(value(clients, chosen))
    assert bool((case.terms["q"] >= 0).all()) and bool((case.terms["q"] <= 1 + 1e-12).all())
    support = initial
    for batch, upper, share in zip(rounds, case.terms["upper"], case.terms["q"], strict=True):
        residual = bounds.residual_bound(clients, support, target, budget)
        assert residual.holds() and upper == residual.rhs
        grown = torch.cat([support, batch])
        gain = value(clients, grown.tolist()) - value(clients, support.tolist())
        # Against the total: a saturated round divides one rounding by another.
        total = clients.amax(1).sum().item()
        assert abs(gain - (share * upper).item()) <= 1e-12 * total
        support = grown


def test_certificate_by_hand() -> None:
    clients = tensor(np.diag([1.0, 1.0, 0.5]))
    first, second, third = (torch.tensor([i]) for i in range(3))
    best = torch.tensor([0, 1])
    case = bounds.batched_certificate(clients, first, [third], best, 2)
    assert case.terms["upper"].tolist() == [1.5]
    assert case.terms["certificate"].item() == pytest.approx(1 / 3)
    assert case.lhs.item() == pytest.approx(4 / 3) and case.rhs.item() == 1.5
    # F(S_0) with its full weight would promise too much.
    certificate = case.terms["certificate"]
    assert violated(certificate * case.terms["best"] + case.terms["start"], case.rhs)
    twice = bounds.batched_certificate(clients, NOTHING, [first, second], best, 2)
    assert twice.terms["q"].tolist() == [0.5, pytest.approx(1 / 1.5)]


def test_certificate_is_tight_when_one_batch_is_optimal() -> None:
    clients = tensor(np.eye(4))
    best = torch.tensor([0, 1])
    case = bounds.batched_certificate(clients, NOTHING, [best], best, 2)
    assert case.terms["certificate"].item() == 1.0
    assert_tight(case, 0.99)
    # Twice the q_t (a U_t of half the size) would certify more than F(S_T).
    doubled = 1 - (1 - 2 * case.terms["q"]).prod()
    assert violated(doubled * case.terms["best"], case.rhs)
    # So would a sum of the q_t in place of the product.
    clients = tensor(np.diag([1.0, 1.0, 0.0, 0.0]) + 0.0)
    weak = bounds.batched_certificate(
        clients, NOTHING, [torch.tensor([0]), torch.tensor([2])], best, 2
    )
    strong = bounds.batched_certificate(
        clients, NOTHING, [torch.tensor([0]), torch.tensor([1])], best, 2
    )
    assert weak.terms["certificate"].item() == 0.5 and strong.terms["certificate"].item() == 1.0
    assert violated(strong.terms["q"].sum() * strong.terms["best"], strong.rhs)


def test_certificate_without_rounds_or_gains() -> None:
    clients = tensor(np.eye(2))
    both = torch.tensor([0, 1])
    none = bounds.batched_certificate(clients, both, [], both, 2)
    assert none.terms["certificate"].item() == 0.0 and none.holds()
    idle = bounds.batched_certificate(0 * clients, NOTHING, [both], both, 2)
    assert idle.terms["q"].tolist() == [0.0] and idle.holds()


@given(CLIENTS, SEEDS, st.integers(1, 5))
@EXAMPLES
def test_final_certificate(clients: Tensor, seed: int, budget: int) -> None:
    support, _, _ = nested(seed, clients.shape[1])
    assert bounds.final_certificate(clients, support, best_support(clients, budget)).holds()


def test_final_certificate_is_tight_when_the_optimum_covers_everything() -> None:
    clients = tensor([[1.0, 0.0], [1.0, 0.5]])
    case = bounds.final_certificate(clients, torch.tensor([1]), torch.tensor([0]))
    assert case.lhs.item() == 0.25
    assert_tight(case, 0.99)


@given(CLIENTS, SEEDS, st.integers(1, 4))
@EXAMPLES
def test_bank_mixture(clients: Tensor, seed: int, banks: int) -> None:
    rng = np.random.default_rng(seed)
    bank = torch.tensor(rng.integers(0, banks, len(clients)))
    support, _, _ = nested(seed, clients.shape[1])
    case = bounds.bank_mixture(clients, support, bank, banks)
    assert case.holds(1e-12)
    assert case.terms["share"].sum().item() == pytest.approx(1.0)
    for b in range(banks):
        rows = clients[bank == b]
        everything = value(rows, list(range(clients.shape[1])))
        expected = value(rows, support.tolist()) / everything if everything > 0 else 1.0
        assert case.terms["saturation"][b].item() == pytest.approx(expected)


def test_bank_mixture_uses_attainable_and_not_nominal_shares() -> None:
    # Equal nominal masses, but the second bank is diffuse: its attainable mass is a third.
    clients = tensor([[1.0, 0.0, 0.0], [1 / 3, 1 / 3, 1 / 3]])
    case = bounds.bank_mixture(clients, torch.tensor([1]), torch.tensor([0, 1]), 2)
    assert case.lhs.item() == pytest.approx(0.25) and case.holds()
    assert case.terms["share"].tolist() == pytest.approx([0.75, 0.25])
    nominal = tensor([0.5, 0.5])
    assert not bounds.Identity(case.lhs, nominal @ case.terms["saturation"]).holds(1e-2)
    empty = bounds.bank_mixture(0 * clients, torch.tensor([1]), torch.tensor([0, 1]), 2)
    assert empty.lhs.item() == 1.0 and empty.holds()
