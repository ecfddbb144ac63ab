"""The client matrix with its bookkeeping against the oracle, short and long prefixes."""

from collections import Counter
from unittest import mock

import numpy as np
import torch
from hypothesis import given
from hypothesis import strategies as st

from tests import oracle
from tests.core.helpers import (
    AGREE,
    FEW,
    HOW_MANY,
    close,
    oracle_clients,
    oracle_grounding,
    population,
    random_sample,
    readings,
    tensor,
)
from tests.instances import population_cases
from vicoset.core import banks
from vicoset.core.clients import build_clients, spatial_columns
from vicoset.core.coreset import clients_of, ground
from vicoset.core.coverage import bank_report, cover
from vicoset.core.settings import Settings


def clients(case, settings, dtype=torch.float64):
    return clients_of(population(case, dtype), ground(readings(case, dtype), settings), settings)


def agree(found, C, books, support):
    """The matrix and every number of the bookkeeping."""
    close(found.matrix, C, floor=0)
    assert found.matrix.t().is_contiguous()
    assert [(b.name, b.start, b.stop) for b in found.banks] == [
        (b["name"], b["start"], b["stop"]) for b in books
    ]
    report = bank_report(found, cover(found.matrix, tensor(support)))
    assert report.names == tuple(b["name"] for b in books)
    assert report.rows.tolist() == [b["rows"] for b in books]
    assert report.active.tolist() == [b["active"] for b in books]
    for name in ("nominal", "deployed", "attainable", "share"):
        close(getattr(report, name), [b[name] for b in books], floor=0)
    spans = [(b["start"], b["stop"]) for b in books]
    close(report.covered, [oracle.facility(C[a:b], support) for a, b in spans], floor=0)
    close(report.saturation, oracle.bank_ratios(C, support, spans), floor=0)


def agree_in_float32(case, settings, exact):
    """Coverage within 1e-4; entries too, where the head clusters came out alike (returned)."""
    low = clients(case, settings, torch.float32)
    assert low.matrix.dtype == torch.float32
    support = tensor(case.support)
    reports = [bank_report(c, cover(c.matrix, support)) for c in (exact, low)]
    totals = [r.covered.sum().double() / r.attainable.sum().double() for r in reports]
    assert abs(float(totals[0] - totals[1])) < 1e-4
    for name in ("saturation", "deployed", "attainable", "share"):
        ours, theirs = (getattr(r, name).double() for r in reports)
        assert float((ours - theirs).abs().max()) < 1e-4
    alike = float((low.row_mass - exact.row_mass).abs().max()) < 1e-4
    if alike:
        close(low.matrix, exact.matrix.numpy(), rtol=2e-3, floor=1e-6)
    return alike


def test_clients_equal_the_oracle():
    seen = Counter()

    @AGREE
    @given(population_cases(max_tokens=40), st.sampled_from(["balanced", "uniform"]))
    def check(case, row_mass):
        settings = Settings(row_mass=row_mass)
        C, books = oracle_clients(case, row_mass)
        found = clients(case, settings)
        agree(found, C, books, case.support)
        seen["float32"] += agree_in_float32(case, settings, found)
        seen[row_mass] += 1
        seen["inactive"] += books[0]["active"] < books[0]["rows"]
        seen["history", case.history] += 1

    check()
    names = ("balanced", "uniform", "inactive", *(("history", n) for n in range(3)))
    assert all(seen[name] > 200 for name in names), seen
    assert seen["float32"] > 1950, seen


@HOW_MANY
def test_clients_of_every_size_equal_the_oracle(many):
    @many
    @given(population_cases(), st.sampled_from(["balanced", "uniform"]))
    def check(case, row_mass):
        C, books = oracle_clients(case, row_mass)
        agree(clients(case, Settings(row_mass=row_mass)), C, books, case.support)

    check()


def long_settings(limit, dimensions):
    return Settings(long_prefix=limit, long_clients=limit, long_dimensions=dimensions)


def long_oracle(case, limit, dimensions):
    """The oracle with the same random signs and as many landmarks as the bounded bank takes."""
    signs = np.sign(banks.rademacher(case.states.shape[1], dimensions).numpy())
    side = 16 if case.tokens <= limit else max(1, min(16, int((limit // case.images) ** 0.5)))
    grids = {2: (side, side), 3: (max(1, side // 4), max(1, side // 2), max(1, side // 2))}
    with mock.patch.dict(oracle.banks.LANDMARK_GRIDS, grids):
        return oracle_clients(case, signs=signs, limit=limit)


def test_clients_of_a_long_prefix_equal_the_oracle():
    seen = Counter()

    @AGREE
    @given(population_cases(max_tokens=40), st.integers(1, 30), st.sampled_from([32, 128]))
    def check(case, limit, dimensions):
        C, books = long_oracle(case, limit, dimensions)
        found = clients(case, long_settings(limit, dimensions))
        agree(found, C, books, case.support)
        seen["long"] += case.tokens > limit
        seen["short"] += case.tokens <= limit

    check()
    assert min(seen["long"], seen["short"]) > 400, seen


@given(population_cases().filter(lambda case: case.tokens > 256), st.integers(256, 300))
@FEW
def test_a_long_prefix_keeps_the_full_grid_of_landmarks(case, limit):
    C, books = long_oracle(case, limit, 128)
    agree(clients(case, long_settings(limit, 128)), C, books, case.support)
    assert case.images > 1 or books[2]["rows"] == 256


def test_the_defaults_bound_a_long_prefix():
    people, reads = random_sample(tokens=4500, width=8, heads=1, queries=1, history=0)
    found = clients_of(people, ground(reads))
    rows = {bank.name: bank.stop - bank.start for bank in found.banks}
    assert rows == {"grounded": 1, "appearance": 4096, "spatial": 256}
    x = banks.projected_unit(people.states, banks.rademacher(8))
    for m in (0, 1, 4095):  # evenly spaced source indices are clients
        i = (2 * m + 1) * 4500 // (2 * 4096)
        row = (x @ x[i] / 0.2).softmax(0) * 0.5 / 4096
        assert torch.allclose(found.matrix[1 + m], row, rtol=1e-4)


def test_up_to_4096_tokens_everyone_is_a_client_at_full_width():
    people, reads = random_sample(tokens=4096, width=8, heads=1, queries=1, history=0)
    found = clients_of(people, ground(reads))
    assert found.banks[1].stop - found.banks[1].start == 4096
    x = people.states / people.states.norm(dim=1, keepdim=True)
    row = (x @ x[7] / 0.2).softmax(0) * 0.5 / 4096
    assert torch.allclose(found.matrix[1 + 7], row, rtol=1e-4)


@given(population_cases(max_tokens=60))
@FEW
def test_a_spatial_cache_gives_the_same_clients(case):
    settings = Settings()
    people, grounding = population(case), ground(readings(case))
    cache = spatial_columns(people.coordinates, people.image_ids, case.images, settings)
    kept = cache.clone()
    plain = clients_of(people, grounding, settings)
    cached = clients_of(people, grounding, settings, cache)
    assert torch.equal(plain.matrix, cached.matrix) and torch.equal(cache, kept)


@given(population_cases(max_tokens=60))
@FEW
def test_row_masses_and_rows_make_the_matrix(case):
    """Every row is its mass times a distribution, and masses sum to the nominal ones."""
    found = clients(case, Settings())
    close(found.matrix.sum(1), found.row_mass.numpy(), floor=0)
    deployed = found.deployed_mass()
    close(deployed[1:], [0.5, 0.25], floor=0)
    assert float(deployed[0]) <= 1 + 1e-12
    if bool((found.row_mass > 0).all()):
        close(deployed[:1], [1.0], floor=0)


def test_masses_and_temperatures_come_from_the_settings():
    people, reads = random_sample(dtype=torch.float64)
    settings = Settings(
        current_mass=0.9,
        appearance_mass=2.0,
        appearance_temperature=0.7,
        spatial_mass=3.0,
        spatial_temperature=0.4,
        landmark_side=3,
        terminal_weight=5.0,
        head_clusters=2,
        head_dispersion=0.5,
    )
    grounding = ground(reads, settings)
    found = clients_of(people, grounding, settings)
    close(found.deployed_mass(), [1.0, 2.0, 3.0], floor=0)
    assert [bank.mass for bank in found.banks] == [1.0, 2.0, 3.0]
    ids = people.image_ids
    x = banks.unit(people.states)
    alike = banks.appearance_columns(x, None, ids, 1, 0.7) * 2.0 / 40
    near = banks.spatial_columns(people.coordinates, ids, 1, 3, 0.4) * 3.0 / 9
    close(found.matrix[24:64], alike.t().numpy(), floor=0)
    close(found.matrix[64:], near.t().numpy(), floor=0)
    close(found.row_mass[:24].reshape(2, -1).sum(1), [0.9, 0.1], floor=0)
    assert grounding.query_weights.tolist() == [1 / 7, 1 / 7, 5 / 7]


def test_without_views_two_banks_are_left():
    people, _ = random_sample(dtype=torch.float64)
    one = torch.ones(1, dtype=torch.float64)
    found = build_clients(*people, [], one, one)
    assert [(b.stop - b.start, b.mass) for b in found.banks] == [(0, 0.0), (40, 0.5), (256, 0.25)]
    report = bank_report(found, cover(found.matrix, torch.tensor([3])))
    assert report.saturation[0] == 1 and report.share[0] == 0 and report.active[0] == 0


@given(population_cases(max_tokens=40))
@AGREE
def test_grounding_equals_the_oracle(case):
    expected, found = oracle_grounding(case), ground(readings(case))
    close(found.head_weights, expected["omega"], floor=0)
    close(found.query_weights, expected["nu"], floor=0)
    close(found.energy, expected["energy"], floor=0)
    for view, (A, norms) in zip(found.views, expected["views"], strict=True):
        close(view.attention, A, floor=0)
        close(view.norms, norms, floor=0)
