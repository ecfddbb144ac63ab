"""The solver: four forms with one answer, against the oracle, and its own edge cases."""

import math

import numpy as np
import pytest
import torch
from hypothesis import event, given, settings

from tests import instances, oracle
from vicoset.core import support, support_lazy
from vicoset.core.reference import select_plain
from vicoset.core.support import select_support
from vicoset.errors import BudgetError, DtypeError, ImageError, SettingError, ShapeError

MARGIN = 1e-9  # cuts closer than this may fall either way in float64


def dense(matrix, keep, image_ids=None, images=1, batch=16, pool_factor=4, temperature=0.1):
    """The accelerator path, run on the CPU."""
    offers = matrix.t().contiguous()
    first = support._best_singletons(offers, image_ids, images)
    sizes = [min(batch, keep - n) for n in range(0 if first is None else images, keep, batch)]
    picks, progress, cover = support._select_dense(
        offers, sizes, first, pool_factor * batch, temperature
    )
    order = torch.cat(([] if first is None else [first]) + picks)
    return order, torch.stack(progress) if progress else torch.zeros(0), cover


def arguments(case, dtype):
    matrix = torch.from_numpy(case.C).to(dtype)
    ids = torch.from_numpy(case.image_ids)
    return matrix, case.kept, ids, case.images, case.batch, case.pool_factor


@given(instances.client_cases())
@settings(max_examples=2000)
def test_every_form_returns_the_same_support(case):
    args = arguments(case, torch.float32)
    plain = sorted(select_plain(*args))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(support_lazy, "COMPILE_FROM", 0)
        compiled = select_support(*args)
        patch.setattr(support_lazy, "compiled", lambda: None)
        lazy = select_support(*args)
    order, progress, cover = dense(*args)
    assert compiled.indices.tolist() == plain
    assert lazy.indices.tolist() == plain
    assert order.sort().values.tolist() == plain
    assert compiled.order.tolist() == lazy.order.tolist() == order.tolist()
    assert torch.equal(compiled.cover, cover) and torch.equal(lazy.cover, cover)
    torch.testing.assert_close(compiled.progress, progress, rtol=1e-4, atol=1e-6)
    torch.testing.assert_close(lazy.progress, progress, rtol=1e-4, atol=1e-6)


def check_against_oracle(case):
    args = arguments(case, torch.float64)
    expected = oracle.select(
        case.C, case.kept, case.image_ids, case.images, case.batch, case.pool_factor
    )
    rounds = expected["rounds"]
    margins = [expected["anchor_margin"]]
    margins += [min(log["gain_margin"], log["score_margin"]) for log in rounds]
    order, progress, cover = dense(*args)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(support_lazy, "COMPILE_FROM", 0)
        found = select_support(*args)
    clear = min(margins) > MARGIN
    event("clear cuts" if clear else "a cut too close to call")
    if not clear:
        assert len(set(order.tolist())) == case.kept
        return
    assert found.indices.tolist() == expected["support"].tolist()
    assert order.sort().values.tolist() == expected["support"].tolist()
    anchors = len(expected["anchors"])
    assert found.order[:anchors].tolist() == list(expected["anchors"])
    for log, start in zip(rounds, found.starts, strict=False):
        entered = found.order[start : start + len(log["entered"])].tolist()
        assert set(log["entered"]) <= set(found.order[start : start + case.batch].tolist()), entered
    q = np.zeros(len(progress))
    q[: len(rounds)] = expected["q"]
    # The oracle subtracts two totals where the solver adds differences, hence the tolerance.
    np.testing.assert_allclose(progress, q, rtol=1e-6, atol=1e-9)
    np.testing.assert_allclose(found.progress, q, rtol=1e-6, atol=1e-9)
    np.testing.assert_allclose(cover, oracle.cover(case.C, expected["support"]), rtol=0, atol=0)
    assert float(found.value) == pytest.approx(expected["value"], rel=1e-12)
    start = oracle.facility(case.C, expected["anchors"])
    assert float(found.start_value) == pytest.approx(start, rel=1e-12)
    assert float(found.certificate) == pytest.approx(expected["c_B"], rel=1e-6, abs=1e-9)


@given(instances.client_cases(max_tokens=60, max_clients=300))
@settings(max_examples=1600)
def test_the_support_is_the_oracles(case):
    check_against_oracle(case)


@given(instances.client_cases())
@settings(max_examples=400)
def test_the_support_is_the_oracles_for_large_populations(case):
    check_against_oracle(case)


@given(instances.client_cases(max_tokens=12, max_clients=30))
@settings(max_examples=500)
def test_certificates_never_exceed_the_true_ratio(case):
    if math.comb(case.C.shape[1], case.kept) > 1000:
        event("too many supports")
        return
    args = arguments(case, torch.float64)
    _, best = oracle.best_support(case.C, case.kept)
    found = select_support(*args)
    exact = 1.0 - float((1.0 - dense(*args)[1]).prod())
    value, start = float(found.value), float(found.start_value)
    for certificate in (float(found.certificate), exact):
        assert value >= certificate * best + (1 - certificate) * start - 1e-9 * max(best, 1e-12)
    everything = case.C.max(axis=1).sum()
    assert value / everything <= value / best + 1e-12 if best > 0 else value == 0


@pytest.mark.parametrize("seed", range(12))
def test_one_at_a_time_is_the_greedy_of_apricot(seed):
    apricot = pytest.importorskip("apricot")
    rng = np.random.default_rng(seed)
    tokens, keep = int(rng.integers(5, 80)), int(rng.integers(1, 5))
    square = rng.uniform(size=(tokens, tokens))
    chooser = apricot.FacilityLocationSelection(keep, metric="precomputed", optimizer="naive")
    chooser.fit(square)
    matrix = torch.from_numpy(square.T.copy())  # apricot's rows are what the solver has in columns
    found = select_support(matrix, keep, batch=1, pool_factor=1)
    assert float(found.value) == pytest.approx(oracle.facility(square.T, chooser.ranking), rel=1e-9)
    _, values = oracle.greedy(square.T, keep)
    assert float(found.value) == pytest.approx(values[-1], rel=1e-12)


def test_equal_tokens_enter_by_index():
    matrix = torch.ones(5, 40) / 40
    found = select_support(matrix, 20)
    assert found.indices.tolist() == list(range(20))
    assert found.progress.tolist()[1:] == [0.0]


def test_no_gain_at_all_fills_with_the_lowest_indices():
    found = select_support(torch.zeros(3, 9), 4)
    assert found.indices.tolist() == [0, 1, 2, 3]
    assert float(found.certificate) == 0.0 and float(found.value) == 0.0


def test_every_image_starts_with_its_best_singleton():
    matrix = torch.tensor([[0.9, 0.8, 0.1, 0.0], [0.0, 0.0, 0.2, 0.3]])
    found = select_support(matrix, 2, torch.tensor([0, 0, 1, 1]), images=2)
    assert found.order.tolist() == [0, 2]  # 0.1 + 0.2 and 0.3 are the same float32: lowest index


def test_memory_layout_does_not_matter():
    matrix = torch.rand(70, 50)
    token_major = matrix.t().contiguous().t()
    first, second = select_support(matrix, 20), select_support(token_major, 20)
    assert torch.equal(first.order, second.order) and torch.equal(first.cover, second.cover)


def test_the_compiled_loops_are_there_for_large_matrices(monkeypatch):
    used = []
    real = support_lazy._Compiled
    monkeypatch.setattr(support_lazy, "_Compiled", lambda *a: used.append(1) or real(*a))
    torch.manual_seed(0)
    matrix = torch.rand(1200, 1000) ** 8
    assert select_support(matrix, 48).indices.tolist() == sorted(select_plain(matrix, 48))
    assert used == [1]


def test_thread_count_does_not_matter():
    matrix = torch.rand(900, 700)
    before = torch.get_num_threads()
    alone = select_support(matrix, 100)
    torch.set_num_threads(2)
    try:
        together = select_support(matrix, 100)
    finally:
        torch.set_num_threads(before)
    assert torch.equal(alone.order, together.order)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16, torch.float32])
def test_half_precision_offers_are_added_in_float32(dtype):
    matrix = torch.rand(60, 50).to(dtype)
    found = select_support(matrix, 12)
    assert found.cover.dtype == torch.float32
    assert torch.equal(found.order, select_support(matrix.float(), 12).order)


@pytest.mark.parametrize(
    ("change", "error", "words"),
    [
        ({"keep": 0}, BudgetError, "keep=0 of 6 tokens"),
        ({"keep": 7}, BudgetError, "allowed are 1 to 6"),
        (
            {"keep": 1, "images": 2, "image_ids": torch.tensor([0, 0, 0, 1, 1, 1])},
            BudgetError,
            "2 images",
        ),
        ({"images": 2}, ImageError, "without image_ids"),
        ({"batch": 0}, SettingError, "batch >= 1"),
        ({"temperature": 0.0}, SettingError, "temperature > 0"),
        ({"matrix": torch.rand(4, 6).long()}, DtypeError, "int64"),
        ({"matrix": torch.rand(2, 4, 6)}, ShapeError, "expected 2 axes"),
    ],
)
def test_bad_input_is_named(change, error, words):
    call = {"matrix": torch.rand(4, 6), "keep": 3} | change
    with pytest.raises(error, match=words):
        select_support(**call)
