"""Low-precision inputs are computed in float32, and extreme ones stay finite."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from tests.core.helpers import FEW, population, random_sample, readings
from tests.instances import attention_cases, population_cases
from vicoset.core import banks, messages, realise
from vicoset.core.coreset import Population, Reading, build_coreset, ground

LOW = [torch.bfloat16, torch.float16]
low_dtypes = st.sampled_from(LOW)


def cast(people, dtype):
    return people._replace(states=people.states.to(dtype))


@given(attention_cases(max_tokens=60), low_dtypes)
@FEW
def test_reading_in_low_precision_is_reading_the_same_values_in_float32(case, dtype):
    """Softmax, scores and messages in float32: only the inputs are rounded."""
    q, k, v, weight = (torch.from_numpy(x).to(dtype) for x in (case.q, case.k, case.v, case.weight))
    rows, visual = torch.from_numpy(case.query_positions), torch.from_numpy(case.visual)
    P = torch.from_numpy(case.P).float()

    def read(lift):
        A = messages.visual_attention(lift(q), lift(k), rows, visual, scaling=case.scaling)
        probed = messages.output_probe(lift(weight), P, len(case.q))
        return A, probed, messages.message_coordinates(lift(v), probed)

    for low, full in zip(read(lambda x: x), read(torch.Tensor.float), strict=True):
        assert low.dtype == torch.float32 and torch.equal(low, full)


@given(population_cases(max_tokens=100), low_dtypes)
@FEW
def test_a_low_precision_coreset_is_that_of_its_float32_copy(case, dtype):
    people, reads = cast(population(case, torch.float32), dtype), readings(case, torch.float32)
    low, full = (build_coreset(p, reads, case.keep) for p in (people, cast(people, torch.float32)))
    assert torch.equal(low.indices, full.indices) and torch.equal(low.carrier, full.carrier)
    assert torch.equal(low.mass, full.mass) and low.mass.dtype == torch.float32
    assert low.states.dtype == dtype and torch.equal(low.states, full.states.to(dtype))


@given(population_cases(max_tokens=60), low_dtypes)
@FEW
def test_readings_in_low_precision_are_lifted(case, dtype):
    low = [Reading(*(t.to(dtype) for t in reading)) for reading in readings(case, torch.float32)]
    found, full = ground(low), ground([Reading(*(t.float() for t in r)) for r in low])
    assert torch.equal(found.energy, full.energy) and found.energy.dtype == torch.float32
    assert torch.equal(found.head_weights, full.head_weights)


@given(population_cases(max_tokens=60), low_dtypes)
@FEW
def test_transport_accumulates_in_float32_and_casts_once(case, dtype):
    states = torch.from_numpy(case.states).to(dtype)
    support = torch.from_numpy(case.support)
    arguments = support, torch.arange(case.tokens) % case.kept, torch.from_numpy(case.energy)
    moved = realise.transport(states, *arguments)
    full = realise.transport(states.float(), *arguments)
    assert moved.dtype == dtype and torch.equal(moved, full.to(dtype))
    centres = realise.centroids(states, arguments[1], arguments[2].float(), case.kept)
    assert centres.dtype == torch.float32


def test_a_long_sum_loses_nothing_in_low_precision():
    """4,096 equal bfloat16 states: a bfloat16 sum would stop growing at 256 of them."""
    states = torch.full((4096, 4), 1.0078125, dtype=torch.bfloat16)
    states[0] = -1
    carrier = torch.zeros(4096, dtype=torch.long)
    centre = realise.centroids(states, carrier, torch.ones(4096), 1)
    assert torch.allclose(centre, torch.full((1, 4), (4095 * 1.0078125 - 1) / 4096), rtol=1e-5)


def adversarial(dtype, scale, outliers, seed=0):
    """States at a scale, with a few channels far beyond the others; nothing over ``dtype``."""
    people, reads = random_sample(tokens=80, images=2, width=64, seed=seed)
    states = people.states / people.states.abs().max() * scale
    states[:, :3] *= outliers
    limit = min(6e4, torch.finfo(dtype).max)
    return cast(people._replace(states=states.clamp(-limit, limit)), dtype), reads


@pytest.mark.parametrize("dtype", [*LOW, torch.float32])
@pytest.mark.parametrize("outliers", [1.0, 1e3, 1e4])
@pytest.mark.parametrize("scale", [1e-6, 1e-3, 1.0, 1e2, 1e4])
def test_extreme_states_give_finite_coresets(dtype, scale, outliers):
    people, reads = adversarial(dtype, scale, outliers)
    found = build_coreset(people, reads, 10)
    assert bool(found.finite) == bool(found.states.isfinite().all())
    if dtype == torch.float16 and people.states.float().norm(dim=1).max() > 65504:
        return  # may overflow, see test_what_float16_cannot_hold_is_reported
    assert bool(found.finite) and bool(found.states.isfinite().all())
    native = people.states[found.indices].float().square().mean(1).sqrt()
    rms = found.states.float().square().mean(1).sqrt()
    # Half a unit of float16's smallest step is what a subnormal state may lose.
    step = 6e-8 if dtype == torch.float16 else 0.0
    assert torch.allclose(rms, native, rtol=max(1e-5, 2 * torch.finfo(dtype).eps), atol=step)


@pytest.mark.parametrize("seed", range(5))
def test_float16_states_up_to_60000_stay_finite(seed):
    """One channel of 6e4 in every token, the rest ordinary, as massive activations look."""
    people, reads = random_sample(tokens=80, width=64, seed=seed)
    people.states[:, 5] = 6e4
    found = build_coreset(cast(people, torch.float16), reads, 10)
    assert bool(found.finite) and bool(found.states.isfinite().all())
    assert torch.allclose(found.states[:, 5].float(), torch.tensor(6e4), rtol=1e-3)


def test_what_float16_cannot_hold_is_reported():
    """A centroid in one channel at the size of a carrier in four: 1.2e5 has no float16."""
    states = torch.zeros(3, 4, dtype=torch.float16)
    states[0] = 6e4
    states[1:, 0] = 6e4
    carrier, support = torch.zeros(3, dtype=torch.long), torch.tensor([0])
    mass = torch.tensor([1e-6, 1.0, 1.0])
    assert realise.transport(states, support, carrier, mass).isinf().any()
    assert realise.transport(states.bfloat16(), support, carrier, mass).isfinite().all()
    people = Population(states, torch.rand(3, 2), torch.zeros(3, dtype=torch.long))
    reads = [Reading(torch.tensor([[[0.0, 0.5, 0.5]]]), torch.ones(1, 3, 4))]
    for keep in (1, 2):
        found = build_coreset(people, reads, keep)
        assert bool(found.finite) == bool(found.states.isfinite().all())


@pytest.mark.parametrize("scale", [1e-6, 1.0, 1e4])
@pytest.mark.parametrize("dtype", [*LOW, torch.float32])
def test_extreme_queries_keys_and_values_stay_finite(dtype, scale):
    torch.manual_seed(0)
    q, k, v = torch.randn(4, 5, 16), torch.randn(2, 40, 16), torch.randn(2, 30, 16)
    for x in (q, k, v):
        x[..., 3] *= 100
    q, k, v = ((x * scale).clamp(-6e4, 6e4).to(dtype) for x in (q, k, v))
    rows, visual = torch.arange(35, 40), torch.arange(2, 32)
    for options in ({}, {"softcap": 50.0}, {"sinks": torch.tensor([1e4, -1e4, 0.0, 1.0])}):
        A = messages.visual_attention(q, k, rows, visual, scaling=0.25, **options)
        assert bool(A.isfinite().all()) and float(A.sum(-1).max()) <= 1 + 1e-5
        Z = messages.message_coordinates(v, torch.randn(4, 16, 4))
        people, _ = random_sample(tokens=30)
        found = build_coreset(people, [Reading(A, Z)] * 3, 8)
        assert bool(found.finite) and bool(found.mass.isfinite().all())
        assert bool(found.coverage.saturation.isfinite().all())


@pytest.mark.parametrize("share", [1e-10, 1e-20, 1e-30, 1e-38, 1e-42])
def test_an_image_that_is_hardly_read_gives_a_finite_coreset(share):
    """A softmax in float32 may leave the image 1e-30 of a head, or of all of them."""
    people, reads = random_sample()
    for heads in (slice(0, 1), slice(None)):
        faint = []
        for reading in reads:
            attention = reading.attention.clone()
            attention[heads] *= share
            faint.append(Reading(attention, reading.messages))
        found = build_coreset(people, faint, 8)
        assert bool(found.finite) and bool(found.mass.isfinite().all())
        grounding = ground(faint)
        assert float(grounding.head_weights.sum()) == pytest.approx(1)


@pytest.mark.parametrize("dtype", [*LOW, torch.float32])
@pytest.mark.parametrize("scale", [1e-30, 1e-6, 1e4, 1e30])
def test_unit_states_neither_overflow_nor_vanish(dtype, scale):
    if dtype == torch.float16 and scale in (1e-30, 1e30):
        scale = {1e-30: 6e-8, 1e30: 6e4}[scale]
    states = torch.tensor([[1.0, 1, 1, 1], [1, -1, 0, 0], [0, 0, 0, 0]]).mul(scale).to(dtype)
    expected = torch.tensor([[0.5] * 4, [0.5**0.5, -(0.5**0.5), 0, 0], [0] * 4])
    assert torch.allclose(banks.unit(states), expected)
