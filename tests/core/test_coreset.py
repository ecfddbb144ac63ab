"""The composition: what a coreset promises whatever came in."""

from collections import Counter

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from tests import oracle
from tests.core.helpers import (
    AGREE,
    FEW,
    close,
    oracle_clients,
    oracle_grounding,
    population,
    random_sample,
    readings,
    tensor,
)
from tests.instances import population_cases
from vicoset.core.clients import spatial_columns
from vicoset.core.coreset import Population, Reading, build_coreset
from vicoset.core.settings import Settings

FIELDS = ("indices", "carrier", "states", "mass", "gate")


def build(case, keep=None, dtype=torch.float64, **options):
    keep = case.keep if keep is None else keep
    return build_coreset(population(case, dtype), readings(case, dtype), keep, **options)


def same(one, two):
    assert all(torch.equal(getattr(one, name), getattr(two, name)) for name in FIELDS)


def test_a_coreset_equals_the_oracle():
    """End to end: every step of the oracle's own, with its own support."""
    seen = Counter()

    @AGREE
    @given(population_cases(max_tokens=64))
    def check(case):
        if case.kept == case.tokens:
            return
        found, (C, books) = build(case), oracle_clients(case)
        solved = oracle.select(C, case.kept, case.image_ids, case.images)
        cuts = [x[name] for x in solved["rounds"] for name in ("gain_margin", "score_margin")]
        seen["all"] += 1
        if min([solved["anchor_margin"], *cuts]) < 1e-9:
            return  # the oracle says that rounding could decide the support
        alike = np.unique(C, axis=1, return_inverse=True)[1].ravel()
        if solved["filled"] and alike.max() + 1 < case.tokens:
            return  # of equal columns the second gains nothing, or as much as rounding leaves
        support = solved["support"]
        assert sorted(alike[found.indices.numpy()]) == sorted(alike[support])
        if found.indices.tolist() != support.tolist():
            return  # of equal columns another one, where a product's columns differ in the last bit
        energy = oracle_grounding(case)["energy"]
        right = oracle.realise(case.states, case.coordinates, support, case.image_ids, energy)
        spans = [(b["start"], b["stop"]) for b in books]
        close(found.coverage.saturation, oracle.bank_ratios(C, support, spans), floor=0)
        assert abs(float(found.gate) - right["s_x"]) < 1e-9
        seen["support"] += 1
        if (right["margin"] < 1e-9).any():
            return
        assert found.indices[found.carrier].tolist() == right["carrier"].tolist()
        close(found.mass, right["m"], floor=0)
        target = abs(right["c"]).max(1) > 1e-4 * abs(case.states).max()
        close(found.states[target], right["states"][target], floor=1e-10)
        seen["states"] += 1

    check()
    assert seen["support"] > 0.5 * seen["all"] and seen["states"] > 0.3 * seen["all"], seen


@given(population_cases(max_tokens=100), st.sampled_from([torch.float64, torch.float32]))
@FEW
def test_the_shape_of_a_coreset(case, dtype):
    found = build(case, dtype=dtype)
    tokens, kept = case.tokens, case.kept
    assert found.states.shape == (kept, case.states.shape[1]) and found.states.dtype == dtype
    assert found.indices.shape == (kept,) and bool((found.indices.diff() > 0).all())
    assert int(found.indices[0]) >= 0 and int(found.indices[-1]) < tokens
    assert found.carrier.shape == (tokens,) and found.mass.shape == (tokens,)
    assert torch.equal(found.carrier[found.indices], torch.arange(kept))
    ids = tensor(case.image_ids)
    assert torch.equal(ids[found.indices[found.carrier]], ids)  # every carrier from its own image
    assert bool((found.mass > 0).all()) and 0 <= float(found.gate) <= 1
    assert bool(found.finite) and bool(found.states.isfinite().all())


@given(population_cases(max_tokens=60), st.sampled_from(["tokens", "more", "share"]))
@FEW
def test_the_full_budget_changes_no_bit(case, how):
    keep = {"tokens": case.tokens, "more": case.tokens + 7, "share": 1.0}[how]
    for dtype in (torch.bfloat16, torch.float32, torch.float64):
        people = population(case, dtype)
        found = build_coreset(people, readings(case), keep)
        assert found.states.dtype == dtype and torch.equal(found.states, people.states)
        everyone = torch.arange(case.tokens)
        assert torch.equal(found.indices, everyone) and torch.equal(found.carrier, everyone)
        assert found.support is None and found.coverage is None
        assert float(found.gate) == 0 and bool((found.mass == 1).all()) and bool(found.finite)


@pytest.mark.parametrize("keep", [1, 2, 5, 0.001])
def test_every_image_keeps_a_carrier(keep):
    people, reads = random_sample(tokens=60, images=5)
    found = build_coreset(people, reads, keep)
    assert people.image_ids[found.indices].tolist() == [0, 1, 2, 3, 4]
    assert found.indices[found.carrier].unique().tolist() == found.indices.tolist()
    assert torch.equal(people.image_ids[found.indices[found.carrier]], people.image_ids)


@pytest.mark.parametrize(("keep", "kept"), [(0.1, 4), (0.5, 20), (7, 7), (0.0125, 1), (0.0374, 1)])
def test_a_budget_is_a_count_or_a_fraction(keep, kept):
    people, reads = random_sample(tokens=40)
    assert len(build_coreset(people, reads, keep).indices) == kept


def test_without_history_the_current_view_has_the_whole_mass():
    people, reads = random_sample(history=0)
    found = build_coreset(people, reads, 8)
    assert float(found.coverage.deployed[0]) == pytest.approx(1)
    assert found.coverage.rows.tolist() == [12, 40, 256]


@pytest.mark.parametrize("images", [1, 3])
def test_without_grounded_energy_masses_are_uniform(images):
    people, reads = random_sample(images=images)
    blind = [Reading(torch.zeros_like(r.attention), r.messages) for r in reads]
    found = build_coreset(people, blind, 8)
    assert torch.equal(found.mass, torch.ones(40))
    assert found.coverage.active[0] == 0 and found.coverage.share[0] == 0
    assert float(found.coverage.saturation[0]) == 1 and bool(found.finite)
    assert len(found.indices) == 8


@given(population_cases(max_tokens=80))
@FEW
def test_the_same_input_gives_the_same_coreset(case):
    people, reads = population(case), readings(case)
    before = [t.clone() for t in (*people[:3], *(t for r in reads for t in r))]
    same(build_coreset(people, reads, case.keep), build_coreset(people, reads, case.keep))
    after = [*people[:3], *(t for r in reads for t in r)]
    assert all(map(torch.equal, before, after))  # and nothing of it is written to


@given(population_cases(max_tokens=80))
@FEW
def test_a_spatial_cache_gives_the_same_coreset(case):
    people = population(case)
    cache = spatial_columns(people.coordinates, people.image_ids, case.images, Settings())
    same(build(case), build(case, spatial=cache))


@pytest.mark.parametrize("seed", range(8))
def test_the_order_of_two_images_permutes_the_coreset(seed):
    people, reads = random_sample(tokens=60, images=2, seed=seed, dtype=torch.float64)
    order = torch.cat([torch.arange(30, 60), torch.arange(30)])
    swapped = Population(
        people.states[order], people.coordinates[order], 1 - people.image_ids[order], 2
    )
    turned = [Reading(r.attention[..., order], r.messages[:, order]) for r in reads]
    one, two = build_coreset(people, reads, 20), build_coreset(swapped, turned, 20)
    assert order[two.indices].sort().values.tolist() == one.indices.tolist()
    place = order[two.indices].argsort()
    close(two.states[place], one.states.numpy())
    close(two.mass, one.mass[order].numpy())
    carriers = order[two.indices][two.carrier]
    assert torch.equal(carriers, one.indices[one.carrier][order])


def trace(found):
    return torch.cat([found.states.flatten(), found.coverage.covered, found.support.progress])


def test_every_setting_reaches_its_step():
    """A coreset with another value of one setting differs, for each one that can matter here."""
    people, reads = random_sample(tokens=200, width=4, heads=8, history=2, dtype=torch.float64)
    changes = {
        "terminal_weight": 50.0,
        "current_mass": 0.01,
        "head_clusters": 1,
        "head_dispersion": 5.0,
        "row_mass": "uniform",
        "appearance_mass": 5.0,
        "appearance_temperature": 2.0,
        "spatial_mass": 5.0,
        "spatial_temperature": 0.5,
        "landmark_side": 2,
        "batch": 1,
        "pool_factor": 1,
        "responsibility_temperature": 5.0,
        "assignment_weight": 5.0,
        "assignment_margin": 0.5,
        "gate_scale": 0.2,
        "gate_power": 1.0,
        "population_strength": 1.0,
        "transport_strength": 0.5,
        "long_prefix": 100,
    }
    plain = build_coreset(people, reads, 24, Settings(gate_scale=0.1))
    assert 0.1 < float(plain.gate) < 0.9  # neither shut nor fully open
    for name, value in changes.items():
        other = build_coreset(people, reads, 24, Settings(**{"gate_scale": 0.1, name: value}))
        assert not torch.equal(trace(other), trace(plain)), name
    long = {"long_prefix": 100, "long_clients": 100}
    plain = build_coreset(people, reads, 24, Settings(**long))
    for name, value in {
        "long_dimensions": 16,
        "long_seed": 1,
        "long_clients": 10,
        "long_batch": 1,
    }.items():
        other = build_coreset(people, reads, 24, Settings(**{**long, name: value}))
        assert not torch.equal(trace(other), trace(plain)), name
