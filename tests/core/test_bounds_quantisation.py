"""Facility deficit against directional distance: Gibbs identity, quantisation, assignment."""

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
    tensor,
    violated,
)
from vicoset.core import bounds

TEMPERATURES = st.sampled_from([0.05, 0.2, 1.0, 10.0])


def at_angles(*angles: float) -> Tensor:
    return tensor([[math.cos(a), math.sin(a)] for a in angles])


@given(POPULATIONS, TEMPERATURES)
@EXAMPLES
def test_gibbs_identity(case: Population, temperature: float) -> None:
    identity = bounds.gibbs_identity(case.features, case.support, temperature, case.image)
    assert identity.holds()
    # The other way round: the distance is what the logarithm of the ratio says.
    spread = -2 * temperature * identity.lhs.log()
    squared = identity.terms["squared_distance"]
    assert torch.allclose(spread, squared, rtol=1e-9, atol=1e-11 * (1 + temperature))


@given(POPULATIONS, TEMPERATURES)
@EXAMPLES
def test_gibbs_distance_is_the_euclidean_one_between_unit_features(
    case: Population, temperature: float
) -> None:
    alive = (case.states != 0).any(1)
    if not bool(alive.all()):
        return
    squared = bounds.gibbs_identity(case.features, case.support, temperature, case.image).terms[
        "squared_distance"
    ]
    for i, x in enumerate(case.features):
        inside = case.support[case.image[case.support] == case.image[i]]
        expected = (case.features[inside] - x).square().sum(1).min()
        assert squared[i].item() == pytest.approx(expected.item(), abs=1e-14)


def test_gibbs_identity_by_hand() -> None:
    angle = math.acos(0.5)  # cosine 1/2, squared distance 1
    identity = bounds.gibbs_identity(at_angles(0.0, angle), torch.tensor([0]), 0.5)
    assert identity.lhs.tolist() == pytest.approx([1.0, math.exp(-1.0)])
    # Without the factor 2 in the exponent the identity is false.
    wrong = torch.exp(-identity.terms["squared_distance"] / 0.5)
    assert not bounds.Identity(identity.lhs, wrong).holds(1e-2)
    # With rows on their own image, the distance across images is not the one that matters.
    image = torch.tensor([0, 1, 1])
    features = at_angles(0.0, 0.0, angle)
    split = bounds.gibbs_identity(features, torch.tensor([0, 2]), 0.5, image)
    assert split.holds() and split.terms["squared_distance"][1].item() == pytest.approx(1.0)


@given(POPULATIONS, TEMPERATURES, st.floats(0.01, 10.0), SEEDS)
@EXAMPLES
def test_coverage_to_quantisation(
    case: Population, temperature: float, mass: float, seed: int
) -> None:
    rng = np.random.default_rng(seed)
    tokens = len(case.states)
    some = torch.tensor(np.sort(rng.choice(tokens, int(rng.integers(1, tokens + 1)), False)))
    for clients in (None, some):
        bound = bounds.coverage_to_quantisation(
            case.features, case.support, temperature, mass, case.image, clients
        )
        assert bound.holds()
        assert bounds.Inequality(bound.lhs, bound.terms["sharp"], scale=bound.scale).holds()
        assert not violated(bound.terms["anywhere"], bound.lhs + 1e-12)
        assert not violated(bound.terms["sharp"], bound.rhs + 1e-9)


@pytest.mark.parametrize("angle", [1e-3, 0.1, 0.5])
def test_coverage_to_quantisation_is_tight_for_two_close_tokens(angle: float) -> None:
    bound = bounds.coverage_to_quantisation(at_angles(0.0, angle), torch.tensor([0]), 0.2, 0.7)
    d, own, ratio = 2 - 2 * math.cos(angle), bound.terms["p_0"], bound.terms["r_0"]
    assert bound.lhs.item() == pytest.approx(d / 2, rel=1e-6)
    assert bound.terms["deficit"].item() == pytest.approx(0.7 * (own * (1 - ratio)).item() / 2)
    assert_tight(bound, 0.55)  # the factor 2 halved
    # With one distance the sharp form is an equality.
    assert bound.terms["sharp"].item() == pytest.approx(bound.lhs.item(), rel=1e-6)
    assert violated(bound.lhs, bound.rhs * own)  # p_0 dropped
    if angle > 1e-3:
        assert violated(bound.lhs, bound.rhs * ratio)  # r_0 dropped
    assert violated(bound.lhs, bound.rhs * 0.7)  # beta_V dropped


@given(SEEDS, st.integers(1, 5), st.integers(1, 10), SCALES)
@EXAMPLES
def test_grounded_mode(seed: int, rows: int, tokens: int, scale: float) -> None:
    rng = np.random.default_rng(seed)
    energies = scale * rng.exponential(1, (rows, tokens)) * (rng.random((rows, tokens)) < 0.7)
    energies *= 10.0 ** rng.uniform(-6, 6, (rows, 1))
    support = torch.tensor(rng.choice(tokens, int(rng.integers(1, tokens + 1)), False))
    preweights = tensor(10.0 ** rng.uniform(-4, 2, rows))
    identity = bounds.grounded_mode(tensor(energies), support, preweights)
    assert identity.holds(1e-12)
    assert torch.equal(identity.lhs, tensor(energies)[:, support].amax(1))


def test_grounded_mode_by_hand() -> None:
    energies, preweights = tensor([[3.0, 1.0, 4.0]]), tensor([0.5])
    identity = bounds.grounded_mode(energies, torch.tensor([0, 1]), preweights)
    assert identity.terms["deficit"].item() == pytest.approx(0.5 / 8)
    assert identity.holds()
    unscaled = 4.0 - identity.terms["deficit"] / 0.5
    assert not bounds.Identity(identity.lhs, unscaled).holds(1e-2)


@given(POPULATIONS)
@EXAMPLES
def test_assignment_bound(case: Population) -> None:
    bound = bounds.assignment_bound(
        case.features, case.support, case.carrier, case.bonus_limit, case.image
    )
    assert bound.holds()
    assert bool((bound.lhs[case.support] == 0).all()) or bool((case.states == 0).any())
    assert not violated(bound.terms["anywhere"], bound.terms["nearest"] + 1e-12)


def test_assignment_bound_is_tight_where_the_bonus_just_wins() -> None:
    # Token 2 sits on carrier 1, and a bonus of 1 - cos = 1/2 moves it to carrier 0.
    features = at_angles(0.0, math.acos(0.5), math.acos(0.5))
    support, limit = torch.tensor([0, 1]), tensor([0.0, 0.0, 0.5])
    bound = bounds.assignment_bound(features, support, torch.tensor([0, 1, 0]), limit)
    assert bound.lhs.tolist() == pytest.approx([0.0, 0.0, 1.0])
    assert bound.holds()
    assert violated(bound.lhs, bound.terms["nearest"] + limit)  # the factor 2 dropped
    assert violated(bound.lhs, bound.terms["nearest"])  # the bonus dropped
    without = bounds.assignment_bound(
        at_angles(0.0, 1.0), torch.tensor([0]), torch.tensor([0, 0]), tensor([0.0, 0.0])
    )
    assert_tight(without, 0.99)


def test_assignment_bound_needs_directions_and_not_euclidean_distance() -> None:
    # A zero state is Euclidean-nearest (distance 1) to a token whose best cosine is 0.3.
    features = tensor([[0.0, 0.0], [0.3, math.sqrt(1 - 0.09)], [1.0, 0.0]])
    support = torch.tensor([0, 1])
    carrier = (features @ features[support].T).argmax(1)
    carrier[support] = torch.arange(2)
    assert carrier[2].item() == 1
    euclid = torch.cdist(features, features[support]).square()
    assert euclid[2, 1] > euclid[2, 0]
    assert bounds.assignment_bound(features, support, carrier, tensor([0.0] * 3)).holds()
