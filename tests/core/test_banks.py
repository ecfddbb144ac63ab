"""Grounded, appearance and spatial rows against the oracle."""

from collections import Counter

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from tests import oracle
from tests.core.helpers import AGREE, FEW, close, tensor
from tests.instances import population_cases
from vicoset.core import banks


@given(population_cases())
@AGREE
def test_grounded_rows_equal_the_oracle(case):
    A, Z = case.views[0]
    norms = oracle.atom_norms(Z, oracle.mass_coordinate(Z))
    heads, queries, tokens = A.shape
    bank = oracle.grounded_bank([(A, norms)], np.ones(heads), np.ones(queries), [1.0])
    for dtype, rtol in [(torch.float64, 1e-9), (torch.float32, 1e-5)]:
        before = tensor(A, dtype)
        rows, active = banks.grounded_rows(before, tensor(norms, dtype))
        assert rows.dtype == dtype and torch.equal(before, tensor(A, dtype))
        close(rows.reshape(-1, tokens), bank["rows"], rtol=rtol, floor=0)
        assert active.flatten().tolist() == bank["active"].tolist()


@given(st.integers(0, 9), st.floats(0, 1))
@AGREE
def test_view_masses_equal_the_oracle_and_sum_to_one(history, current):
    assert banks.view_masses(history) == pytest.approx(oracle.view_masses(history).tolist())
    assert sum(banks.view_masses(history, current)) == pytest.approx(1)
    assert banks.view_masses(history, current)[0] == (current if history else 1.0)


def appearance(case, dtype):
    return banks.appearance_columns(
        banks.unit(tensor(case.states, dtype)), None, tensor(case.image_ids), case.images
    )


def test_appearance_and_spatial_columns_equal_the_oracle():
    """Alone and at every size; test_clients compares them on many more, smaller instances."""
    seen = Counter()

    @settings(max_examples=500)
    @given(population_cases())
    def check(case):
        alike = oracle.appearance_bank(case.states, case.image_ids)["rows"]
        near = oracle.spatial_bank(case.coordinates, case.image_ids, case.images)["rows"]
        ids = tensor(case.image_ids)
        for dtype, rtol in [(torch.float64, 1e-9), (torch.float32, 2e-4)]:
            found = appearance(case, dtype)
            close(found.t(), alike, rtol=rtol, floor=0)
            places = banks.spatial_columns(tensor(case.coordinates, dtype), ids, case.images)
            # Far landmarks get e^-100 of a row: below float32's smallest number.
            close(places.t(), near, rtol=rtol, floor=0 if dtype == torch.float64 else 1e-30)
        seen[case.images] += 1
        seen["video"] += case.coordinates.shape[1] == 3
        seen["zero states"] += not case.states.any(1).all()

    check()
    assert all(seen[name] > 20 for name in (1, 2, 3, "video", "zero states")), seen


@given(population_cases(max_tokens=60), st.integers(1, 20))
@FEW
def test_appearance_of_chosen_clients_is_a_part_of_all(case, limit):
    features, ids = banks.unit(tensor(case.states)), tensor(case.image_ids)
    chosen = tensor(oracle.evenly_spaced(case.tokens, limit))
    part = banks.appearance_columns(features, chosen, ids, case.images)
    close(part, appearance(case, torch.float64)[:, chosen].numpy(), floor=0)
    into = torch.empty(case.tokens, len(chosen) + 3, dtype=torch.float64)
    banks.appearance_columns(features, chosen, ids, case.images, out=into[:, 1:-2])
    close(into[:, 1:-2], part.numpy(), floor=0)


@given(population_cases(max_tokens=40), st.sampled_from([0.05, 0.2, 1.0]), st.integers(1, 6))
@FEW
def test_rows_follow_their_temperature(case, temperature, side):
    """Against the softmax written out, at temperatures other than the paper's."""
    x, ids = banks.unit(tensor(case.states)), tensor(case.image_ids)
    same = ids[:, None] == ids
    logits = (x @ x.T / temperature).masked_fill(~same, -torch.inf)
    found = banks.appearance_columns(x, None, ids, case.images, temperature)
    close(found, logits.softmax(0).numpy(), floor=0)

    p = tensor(case.coordinates)
    marks = banks.landmarks(p.shape[1], side, torch.float64)
    distance = torch.cdist(p, marks, compute_mode="donot_use_mm_for_euclid_dist") ** 2
    rows = [
        (-distance / temperature).masked_fill((ids != image)[:, None], -torch.inf).softmax(0)
        for image in range(case.images)
    ]
    found = banks.spatial_columns(p, ids, case.images, side, temperature)
    close(found, torch.cat(rows, 1).numpy(), floor=0)


def test_landmarks_are_the_oracles():
    for axes in (2, 3):
        close(banks.landmarks(axes, dtype=torch.float64), oracle.landmarks(axes), floor=0)
    assert banks.landmarks(2, 1).tolist() == [[0.5, 0.5]]
    assert banks.landmarks(3, 1).tolist() == [[0.5, 0.5, 0.5]]
    assert banks.grid_coordinates(1, 2).tolist() == [[0.5, 0.25], [0.5, 0.75]]
    assert banks.grid_coordinates(2, 1, 2).tolist()[2] == [0.75, 0.5, 0.25]


def test_the_projection_is_the_seeded_rademacher_matrix():
    signs = banks.rademacher(24)
    draw = torch.Generator().manual_seed(104729)
    expected = torch.randint(0, 2, (24, 128), generator=draw) * 2 - 1
    assert torch.equal(signs, expected / torch.tensor(128.0).sqrt())
    assert not torch.equal(signs, banks.rademacher(24, seed=1))


@given(population_cases(max_tokens=150), st.integers(1, 50))
@AGREE
def test_unit_and_projected_states_equal_the_oracle_in_every_chunk_size(case, chunk):
    expected = oracle.unit_states(case.states)
    close(banks.unit(tensor(case.states)), expected, floor=0)
    close(banks.unit(tensor(case.states, torch.float32)), expected, rtol=1e-5, floor=1e-6)
    projection = banks.rademacher(case.states.shape[1])
    signs = np.sign(projection.numpy()).astype(np.float64)
    expected = oracle.unit_states(expected @ signs / np.sqrt(128))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(banks, "ROW_CHUNK", chunk)
        close(banks.projected_unit(tensor(case.states), projection), expected)
        low = banks.projected_unit(tensor(case.states, torch.float32), projection)
    assert low.dtype == torch.float32
    close(low, expected, rtol=1e-3, floor=1e-5)


@given(population_cases(max_tokens=60), st.integers(-12, 12))
@FEW
def test_the_scale_of_states_leaves_their_appearance(case, power):
    """A positive constant leaves every bit when it is a power of two."""
    states = tensor(case.states)
    assert torch.equal(banks.unit(states * 2.0**power), banks.unit(states))
    close(banks.unit(states * 3.0), banks.unit(states).numpy(), floor=0)


@given(population_cases(max_tokens=60))
@FEW
def test_twins_get_the_same_rows_and_the_same_columns(case):
    """Every token twice, side by side: each pair shares what either alone had, half and half."""
    twice = np.repeat(np.arange(case.tokens), 2)
    x, ids = banks.unit(tensor(case.states)), tensor(case.image_ids)
    alone = appearance(case, torch.float64)
    both = banks.appearance_columns(x[twice], None, ids[twice], case.images)
    close(both[::2, ::2], alone.numpy() / 2, floor=0)
    close(both[1::2], both[::2].numpy(), floor=0)
    close(both[:, 1::2], both[:, ::2].numpy(), floor=0)
    p = tensor(case.coordinates)
    single = banks.spatial_columns(p, ids, case.images)
    double = banks.spatial_columns(p[twice], ids[twice], case.images)
    close(double[::2], single.numpy() / 2, floor=0)


@pytest.mark.parametrize("share", [1e-20, 1e-36, 1e-40])
def test_a_query_that_hardly_reads_the_image_still_has_a_row(share):
    rows, active = banks.grounded_rows(torch.full((1, 1, 8), share), torch.ones(1, 8))
    assert active.all() and torch.allclose(rows, torch.full((1, 1, 8), 0.125))
