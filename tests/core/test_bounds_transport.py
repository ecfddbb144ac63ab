"""Population transport: moments, centroids, the pre-transport and the restoration bounds."""

import math
from dataclasses import replace

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
    tensor,
    violated,
)
from vicoset.core import bounds


def pretransport(case: Population, blend: float = 1.0) -> bounds.Inequality:
    return bounds.pretransport_bound(
        case.states, case.support, case.carrier, case.masses, case.bonus_limit, case.image, blend
    )


@given(POPULATIONS, SEEDS, SCALES)
@EXAMPLES
def test_first_moment(case: Population, seed: int, scale: float) -> None:
    rng = np.random.default_rng(seed)
    linear = tensor(scale * rng.standard_normal((int(rng.integers(1, 5)), case.states.shape[1])))
    for weight in (None, linear):
        identity = bounds.first_moment(case.states, case.carrier, case.masses, case.kept, weight)
        assert identity.holds(1e-12)
    explicit = sum(m * (linear @ h) for m, h in zip(case.masses, case.states, strict=True))
    assert torch.allclose(
        identity.rhs, explicit, rtol=1e-9, atol=1e-9 * float(identity.scale.max())
    )


def test_first_moment_by_hand() -> None:
    states, carrier = tensor([[2.0, 0.0], [0.0, 4.0]]), torch.tensor([0, 0])
    identity = bounds.first_moment(states, carrier, tensor([1.0, 3.0]), 1)
    assert identity.lhs.tolist() == [2.0, 12.0] and identity.holds()
    # Any other representative loses it: the carrier itself, or a centroid brought to its RMS.
    total, centre = tensor([4.0]), tensor([[0.5, 3.0]])
    restored = centre * states[0].norm() / centre.norm()
    for point in (states[:1], restored):
        assert not bounds.Identity(total @ point, identity.rhs).holds(1e-2)


@given(POPULATIONS, SEEDS, SCALES)
@EXAMPLES
def test_centroid_optimality(case: Population, seed: int, scale: float) -> None:
    rng = np.random.default_rng(seed)
    points = tensor(scale * rng.standard_normal((case.kept, case.states.shape[1])))
    identity = bounds.centroid_optimality(case.states, case.carrier, case.masses, points)
    assert identity.holds(1e-12)
    j = int(rng.integers(case.kept))
    members = case.carrier == j
    slow = (case.masses[members, None] * (case.states[members] - points[j]).square()).sum()
    assert identity.lhs[j].item() == pytest.approx(slow.item())


def test_centroid_optimality_by_hand() -> None:
    states, carrier, masses = tensor([[0.0], [3.0]]), torch.tensor([0, 0]), tensor([2.0, 1.0])
    identity = bounds.centroid_optimality(states, carrier, masses, tensor([[3.0]]))
    assert identity.lhs.item() == 18.0
    assert (identity.terms["least"].item(), identity.terms["excess"].item()) == (6.0, 12.0)
    # The weight of the excess is the population mass, not the number of tokens.
    assert not bounds.Identity(identity.lhs, tensor([6.0 + 2 * 4.0])).holds(1e-2)


@given(POPULATIONS)
@EXAMPLES
def test_radial_split(case: Population) -> None:
    identity = bounds.radial_split(case.states, case.support, case.carrier)
    assert identity.holds(1e-12)


def test_radial_split_by_hand() -> None:
    states = tensor([[3.0, 0.0], [0.0, 4.0]])
    identity = bounds.radial_split(states, torch.tensor([0]), torch.tensor([0, 0]))
    assert identity.lhs.tolist() == [0.0, 25.0] and identity.holds()
    assert identity.terms["angular"].tolist() == pytest.approx([0.0, 24.0])
    assert identity.terms["radial"].tolist() == [0.0, 1.0]
    doubled = 2 * identity.rhs
    assert not bounds.Identity(identity.lhs, doubled).holds(1e-2)


@given(POPULATIONS, st.sampled_from([1.0, 0.5, 0.0]))
@EXAMPLES
def test_pretransport_bound(case: Population, blend: float) -> None:
    bound = pretransport(case, blend)
    assert bound.holds()
    assert torch.equal(bound.terms["printed"], 2 * bound.rhs)
    assert bound.terms["exclusion"].item() >= 0
    if len(case.image.unique()) == 1:
        assert bound.terms["exclusion"].item() == 0
        assert torch.equal(
            pretransport(replace(case, image=torch.zeros_like(case.image))).rhs, bound.rhs
        )


@given(POPULATIONS)
@EXAMPLES
def test_pretransport_terms_the_slow_way(case: Population) -> None:
    if bool((case.states == 0).all(1).any()):
        return
    bound, x, rho = pretransport(case), case.features, case.states.norm(dim=1)
    far = near = exclusion = radial = pre = 0.0
    for i in range(len(x)):
        m = case.masses[i].item()
        distances = (x[case.support] - x[i]).square().sum(1)
        inside = distances[case.image[case.support] == case.image[i]].min().item()
        near, far = near + distances.min().item(), far + m * inside
        exclusion += m * (inside - distances.min().item())
        j = case.support[case.carrier[i]]
        radial += m * (rho[i] - rho[j]).item() ** 2
        members = case.carrier == case.carrier[i]
        centre = case.masses[members] @ case.states[members] / case.masses[members].sum()
        pre += m * (case.states[i] - centre).square().sum().item()
    size = (rho.max() ** 2 * case.masses.sum()).item()
    close = {"rel": 1e-9, "abs": 1e-12 * (1 + case.masses.sum().item())}
    assert bound.terms["quantisation"].item() == pytest.approx(
        case.masses.max().item() * near, **close
    )
    assert bound.terms["exclusion"].item() == pytest.approx(exclusion, **close)
    assert bound.terms["bonus"].item() == pytest.approx((case.masses @ case.bonus_limit).item())
    assert bound.terms["radial"].item() == pytest.approx(radial, rel=1e-9, abs=1e-12 * size)
    assert bound.lhs.item() == pytest.approx(pre, rel=1e-9, abs=1e-12 * size)


def fan(angle: float, *extra: list[float]) -> Tensor:
    """A carrier and two tokens at +-angle around it (so the centroid stays near the carrier)."""
    c, s = math.cos(angle), math.sin(angle)
    return tensor([[1.0, 0.0], [c, s], [c, -s], *extra])


def ones(count: int) -> Tensor:
    return torch.ones(count, dtype=torch.float64)


def test_pretransport_is_tight_in_the_facility_term() -> None:
    none = 0 * ones(3)
    bound = bounds.pretransport_bound(
        fan(1e-2), torch.tensor([0]), torch.tensor([0, 0, 0]), ones(3), none
    )
    assert_tight(bound, 0.99)
    assert bound.rhs.item() == pytest.approx(bound.terms["quantisation"].item())
    # Heavy tokens: the mean mass in place of the largest would not do.
    masses = tensor([1.0, 10.0, 10.0])
    heavy = bounds.pretransport_bound(
        fan(1e-2), torch.tensor([0]), torch.tensor([0, 0, 0]), masses, none
    )
    assert_tight(heavy, 0.99)
    assert violated(heavy.lhs, heavy.rhs * masses.mean() / masses.max())
    # Three times the states: the radius enters squared.
    wide = bounds.pretransport_bound(
        3 * fan(1e-2), torch.tensor([0]), torch.tensor([0, 0, 0]), ones(3), none
    )
    assert_tight(wide, 0.99)
    assert violated(wide.lhs, wide.rhs / 3)


def test_pretransport_is_tight_in_the_bonus_term() -> None:
    # Tokens 1 and 2 lie on carriers 3 and 4 and are drawn to carrier 0 by a bonus of 1 - cos.
    angle = 1e-2
    states = fan(angle, *fan(angle)[1:].tolist())
    limit = (1 - math.cos(angle)) * tensor([0.0, 1.0, 1.0, 0.0, 0.0])
    carrier = torch.tensor([0, 0, 0, 1, 2])
    bound = bounds.pretransport_bound(states, torch.tensor([0, 3, 4]), carrier, ones(5), limit)
    assert bound.terms["quantisation"].item() < 1e-20
    assert_tight(bound, 0.99)


def test_pretransport_is_tight_in_the_exclusion_term() -> None:
    # The same, but carriers 3 and 4 belong to another image.
    states = fan(1e-2, *fan(1e-2)[1:].tolist())
    image, carrier = torch.tensor([0, 0, 0, 1, 1]), torch.tensor([0, 0, 0, 1, 2])
    bound = bounds.pretransport_bound(
        states, torch.tensor([0, 3, 4]), carrier, ones(5), 0 * ones(5), image
    )
    assert bound.terms["quantisation"].item() < 1e-20
    assert bound.rhs.item() == pytest.approx(bound.terms["exclusion"].item())
    assert_tight(bound, 0.99)


def test_pretransport_is_tight_in_the_radial_term() -> None:
    states = tensor([[2.0, 0.0], [3.0, 0.0], [1.0, 0.0]])
    bound = bounds.pretransport_bound(
        states, torch.tensor([0]), torch.tensor([0, 0, 0]), ones(3), 0 * ones(3)
    )
    assert bound.lhs.item() == 2.0 and bound.terms["radial"].item() == 2.0
    assert_tight(bound, 0.99)


def representatives(case: Population, seed: int, blend: float) -> tuple[Tensor, Tensor]:
    """Blended centroids and the same at the carrier's RMS, by a plain loop."""
    rng = np.random.default_rng(seed)
    before, after = [], []
    for j, token in enumerate(case.support):
        members = case.carrier == j
        centre = case.masses[members] @ case.states[members] / case.masses[members].sum()
        u = (1 - blend) * case.states[token] + blend * centre
        size = u.norm()
        target = case.states[token].norm() * float(rng.choice([1.0, 1.0, 0.0, 7.0]))
        before.append(u)
        after.append(u * target / size if size > 0 else case.states[token])
    return torch.stack(before), torch.stack(after)


@given(POPULATIONS, SEEDS, st.floats(1e-3, 1e3), st.sampled_from([1.0, 0.3, 0.0]))
@EXAMPLES
def test_rms_bound(case: Population, seed: int, beta: float, blend: float) -> None:
    before, after = representatives(case, seed, blend)
    bound = bounds.rms_bound(case.states, case.carrier, case.masses, before, after, beta)
    assert bound.holds(1e-12)
    split = bounds.rms_split(case.states, case.carrier, case.masses, after)
    assert split.holds(1e-12)
    if blend == 1.0:
        size = float(split.scale) * 1e-12
        for name in ("pre", "correction"):
            ours, theirs = split.terms[name].item(), bound.terms[name].item()
            assert ours == pytest.approx(theirs, rel=1e-9, abs=size)
        assert split.lhs.item() == bound.lhs.item()


@pytest.mark.parametrize("step", [0.5, 1.0, 4.0])
def test_rms_bound_is_tight_when_the_correction_adds_to_the_error(step: float) -> None:
    # One token at 0, its representative moved from 1 to 1 + step; the best beta is then step.
    token, first = tensor([[0.0]]), torch.tensor([0])
    before, after = tensor([[1.0]]), tensor([[1.0 + step]])
    bound = bounds.rms_bound(token, first, ones(1), before, after, step)
    assert bound.lhs.item() == pytest.approx((1 + step) ** 2)
    assert_tight(bound, 0.99)
    pre, correction = bound.terms["pre"], bound.terms["correction"]
    assert violated(bound.lhs, pre + (1 + 1 / step) * correction)
    assert violated(bound.lhs, (1 + step) * pre + correction)


def test_rms_split_is_smaller_than_every_choice_of_beta() -> None:
    states, first = tensor([[1.0, 1.0], [1.0, -1.0]]), torch.tensor([0, 0])
    centre, after = tensor([[1.0, 0.0]]), tensor([[math.sqrt(2), 0.0]])
    split = bounds.rms_split(states, first, ones(2), after)
    assert split.holds()
    assert split.terms["correction"].item() == pytest.approx(2 * (math.sqrt(2) - 1) ** 2)
    for beta in (0.01, 0.4, 1.0, 100.0):
        bound = bounds.rms_bound(states, first, ones(2), centre, after, beta)
        assert bound.rhs.item() > 1.3 * split.rhs.item()
    # From another starting point the cross term does not vanish, and the split is not exact.
    off = bounds.rms_bound(states, first, ones(2), states[:1], after, 1.0)
    total = off.terms["pre"] + off.terms["correction"]
    assert not bounds.Identity(off.lhs, total).holds(1e-2)
