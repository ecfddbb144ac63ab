"""Assignment, masses, centroids and transport against the oracle."""

from collections import Counter

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from tests import oracle
from tests.core.helpers import AGREE, FEW, HOW_MANY, close, tensor
from tests.instances import population_cases
from vicoset.core import realise


def assign(case, dtype=torch.float64, support=None, **options):
    return realise.assign(
        tensor(case.states, dtype),
        tensor(case.coordinates, dtype),
        tensor(case.image_ids),
        tensor(case.support if support is None else support),
        **options,
    )


def carriers_of(case):
    """Positions in the support of the oracle's carriers, with everything it says about them."""
    right = oracle.realise(case.states, case.coordinates, case.support, case.image_ids, case.energy)
    return right, np.searchsorted(case.support, right["carrier"])


def agree_on_assignment(case, images, seen):
    right, carrier = carriers_of(case)
    for dtype, rounding in [(torch.float64, 1e-12), (torch.float32, 2e-6)]:
        found = assign(case, dtype, images=images)
        # Margins come from cosines, and those carry rounding, no matter how small they are.
        assert np.abs(found.margin.numpy() - right["gaps"]).max() < rounding
        assert abs(float(found.gate) - right["s_x"]) < 500 * rounding
        clear = right["margin"] > 500 * rounding
        assert found.carrier[clear].tolist() == carrier[clear].tolist()
        assert found.carrier[tensor(case.support)].tolist() == list(range(case.kept))
        own = case.image_ids[case.support[found.carrier.numpy()]]
        assert own.tolist() == case.image_ids.tolist()
        discarded = np.setdiff1d(np.arange(case.tokens), case.support)
        seen[dtype] += int(clear[discarded].sum())
    seen["discarded"] += len(discarded)
    seen["open"] += right["s_x"] > 0.5
    seen["between"] += 0.01 < right["s_x"] < 0.99
    nearest = assign(case, images=images, weight=0.0).carrier
    seen["moved by place"] += int((nearest != found.carrier)[clear].sum())


def test_assignment_equals_the_oracle():
    seen = Counter()

    @AGREE
    @given(population_cases(max_tokens=64), st.booleans())
    def check(case, told):
        agree_on_assignment(case, case.images if told else None, seen)

    check()
    # Few tokens were left out because two carriers were about equally near.
    assert seen[torch.float64] > 0.8 * seen["discarded"], seen
    assert seen[torch.float32] > 0.7 * seen["discarded"] > 10_000, seen
    assert min(seen["moved by place"], seen["open"], seen["between"]) > 100, seen


@HOW_MANY
def test_assignment_of_every_size_equals_the_oracle(many):
    seen = Counter()

    @many
    @given(population_cases(), st.booleans())
    def check(case, told):
        agree_on_assignment(case, case.images if told else None, seen)

    check()
    assert seen[torch.float64] > 0.8 * seen["discarded"], seen


def test_masses_centroids_and_transport_equal_the_oracle():
    seen = Counter()

    @AGREE
    @given(population_cases(max_tokens=150), st.sampled_from([1.0, 1.0, 0.5, 0.0]))
    def check(case, strength):
        right, carrier = carriers_of(case)
        gate = torch.tensor(right["s_x"], dtype=torch.float64)
        mass = realise.population_mass(tensor(case.energy), gate)
        close(mass, right["m"], floor=0)
        found = realise.cluster_mass(tensor(right["m"]), tensor(carrier), case.kept)
        close(found, right["M"], floor=0)
        arguments = tensor(case.states), tensor(carrier), tensor(right["m"])
        centres = realise.centroids(*arguments, case.kept)
        close(centres, right["c"])

        support = tensor(case.support)
        moved = realise.transport(arguments[0], support, *arguments[1:], strength)
        own = case.states[case.support]
        target = (1 - strength) * own + strength * right["c"]
        # What is left of a cancelled cluster is rounding and has no direction, only a size.
        length = np.abs(case.states).max()
        clear = np.abs(target).max(1) > 1e-4 * length
        expected = oracle.transport(case.states, right["c"], case.support, strength)
        close(moved[clear], expected[clear], rtol=1e-9, floor=1e-10)
        close(moved.square().mean(1).sqrt(), np.sqrt((own**2).mean(1)), floor=1e-12)
        low = realise.transport(
            tensor(case.states, torch.float32), support, tensor(carrier), mass.float(), strength
        )
        assert low.dtype == torch.float32
        close(low[clear], expected[clear], rtol=1e-3, floor=1e-2)
        seen["rows"] += len(clear)
        seen["clear"] += int(clear.sum())
        seen["moved"] += int((np.abs(expected - own).max(1) > 1e-6)[clear].sum())

    check()
    assert seen["clear"] > 0.8 * seen["rows"] and seen["moved"] > 0.2 * seen["rows"], seen


@given(population_cases(max_tokens=64))
@AGREE
def test_restored_rms_equals_the_oracle(case):
    u, h = case.states[::-1].copy(), case.states
    expected = np.stack([oracle.restore(a, b) for a, b in zip(u, h, strict=True)])
    close(realise.restore_rms(tensor(u), tensor(h)), expected, floor=0)
    low = realise.restore_rms(tensor(u, torch.float32), tensor(h, torch.float32))
    close(low, expected, rtol=1e-5, floor=1e-6)


@given(population_cases(max_tokens=150), st.integers(1, 3000))
@FEW
def test_chunks_give_the_same_realisation(case, chunk):
    whole = assign(case)
    mass = tensor(case.energy)
    centres = realise.centroids(tensor(case.states), whole.carrier, mass, case.kept)
    margin = carriers_of(case)[0]["margin"]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(realise, "CHUNK", chunk)
        parts = assign(case)
        again = realise.centroids(tensor(case.states), whole.carrier, mass, case.kept)
    assert torch.allclose(parts.margin, whole.margin, rtol=0, atol=1e-12)
    assert abs(float(parts.gate - whole.gate)) < 1e-9
    assert torch.equal(parts.carrier[tensor(margin > 1e-9)], whole.carrier[tensor(margin > 1e-9)])
    close(again, centres.numpy())


@given(population_cases(max_tokens=100), st.sampled_from([0.5, 4.0, 2.0**-10]))
@FEW
def test_the_scale_of_states_leaves_the_assignment_and_scales_transport(case, scale):
    small, large = (
        assign(case),
        realise.assign(
            tensor(case.states) * scale,
            tensor(case.coordinates),
            tensor(case.image_ids),
            tensor(case.support),
        ),
    )
    assert torch.equal(small.carrier, large.carrier) and torch.equal(small.margin, large.margin)
    mass, support = tensor(case.energy), tensor(case.support)
    moved = realise.transport(tensor(case.states), support, small.carrier, mass)
    scaled = realise.transport(tensor(case.states) * scale, support, small.carrier, mass)
    close(scaled, (moved * scale).numpy())


@given(population_cases(max_tokens=100))
@FEW
def test_a_copy_of_a_kept_token_goes_to_it(case):
    """Alone among its like, a kept token's copies in its image have cosine 1 with it."""
    states, ids = case.states.copy(), case.image_ids
    kept = int(case.support[0])
    others = np.setdiff1d(np.flatnonzero(ids == ids[kept]), case.support)
    if not len(others) or not states[kept].any():
        return
    copy = int(others[0])
    states[copy] = states[kept]
    found = realise.assign(
        tensor(states), tensor(case.coordinates), tensor(ids), tensor(case.support), weight=0.0
    )
    cosine = oracle.unit_states(states)[case.support] @ oracle.unit_states(states)[copy]
    cosine[ids[case.support] != ids[kept]] = -2
    if np.sort(cosine)[-2:][0] < 1 - 1e-9 or len(cosine) == 1:
        assert found.carrier[copy] == 0


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_ties_between_carriers_go_to_the_lowest_index(dtype):
    """Kept copies are equally near to everyone, wherever they stand in the matrix product."""
    torch.manual_seed(0)
    for tokens, width in [(300, 33), (257, 16), (64, 7)]:
        states = torch.randn(tokens, width, dtype=dtype)
        support = torch.arange(0, tokens, 2)
        states[support] = states[0].clone()
        found = realise.assign(
            states, torch.full((tokens, 2), 0.5), torch.zeros(tokens).long(), support
        )
        assert not found.carrier[1::2].any()


def test_assignment_by_hand():
    # One image; the kept are along x (token 0) and 45 degrees off (token 3). The mean margin
    # opens the gate; token 2 is exactly between the two and stands next to token 3.
    angle = np.deg2rad([0.0, 2.0, 22.5, 45.0, 300.0])
    states = torch.tensor(np.stack([np.cos(angle), np.sin(angle)], 1))
    places = torch.tensor([[0.0, 0.0], [0.0, 0.1], [0.9, 0.9], [1.0, 0.9], [0.5, 0.5]])
    found = realise.assign(states, places, torch.zeros(5).long(), torch.tensor([0, 3]))
    gaps = [np.cos(angle[1]) - np.cos(angle[3] - angle[1]), 0.0]
    gaps.append(np.cos(np.deg2rad(60)) - np.cos(np.deg2rad(105)))
    close(found.margin, [0, gaps[0], gaps[1], 0, gaps[2]], floor=1e-12)
    close(found.gate, 1 - np.exp(-((sum(gaps) / 3 / 0.08) ** 8)), floor=0)
    assert found.carrier.tolist() == [0, 0, 1, 1, 0]


def test_transport_by_hand():
    states = torch.tensor([[3.0, 0], [0, 4], [0, 2]])
    support, carrier = torch.tensor([0, 2]), torch.tensor([0, 0, 1])
    mass = torch.tensor([1.0, 3, 5])
    # The centroid (3, 12) / 4 at the length 3 of the carrier; the lone carrier stays.
    centre = torch.tensor([0.75, 3.0])
    moved = realise.transport(states, support, carrier, mass)
    assert torch.allclose(moved[0], centre * 3 / centre.norm())
    assert torch.equal(moved[1], states[2])
    half = realise.transport(states, support, carrier, mass, 0.5)
    between = (states[0] + centre) / 2
    assert torch.allclose(half[0], between * 3 / between.norm())
    assert torch.equal(realise.transport(states, support, carrier, mass, 0.0), states[support])


def test_exact_cancellation_keeps_the_carrier():
    states = torch.tensor([[1.0, -2], [-1, 2]])
    moved = realise.transport(states, torch.tensor([0]), torch.tensor([0, 0]), torch.ones(2))
    assert torch.equal(moved, states[:1])


def test_a_population_mass_by_hand():
    energy = torch.tensor([0.0, 2.0])
    mass = realise.population_mass(energy, torch.tensor(0.5))
    assert mass.tolist() == [0.75, 1.25]
    assert realise.population_mass(energy, torch.tensor(1.0), 1.0).tolist() == [0.0, 2.0]
    assert realise.population_mass(energy, torch.tensor(0.0)).tolist() == [1.0, 1.0]
