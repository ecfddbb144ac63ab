"""The engine against slow and obvious resampling, closed forms and other libraries."""

import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import scipy.stats
from arch.bootstrap import IIDBootstrap

from tests.evaluate.statistics.cases import (
    PAIRED,
    Array,
    SumTask,
    accuracy,
    categories,
    official_total,
    samples,
    slow_bootstrap,
)
from vicoset.errors import StatisticsError
from vicoset.evaluate.statistics import Study, UnitSums, unit_sums


def study(task: SumTask, replicates: int = 2000, seed: int = 0, **runs: object) -> Study:
    return Study.of([task], runs, replicates=replicates, seed=seed)  # type: ignore[arg-type]


def test_replicates_are_those_of_an_evaluator_run_on_the_drawn_samples() -> None:
    rng = np.random.default_rng(1)
    units = [f"u{i % 7}" for i in range(25)]
    runs = {name: samples(rng.random(25) < 0.6, units) for name in ("a", "b")}
    fast = study(SumTask(), 40, 3, **runs).score("task")
    for name, mine in runs.items():
        assert fast.of(name) == accuracy(mine)
        assert fast[name].tolist() == slow_bootstrap(accuracy, mine, 40, 3)


def test_category_totals_with_pairs_are_exact_to_the_last_bit() -> None:
    rng = np.random.default_rng(2)
    runs = {name: categories(rng.random((20, 2)) < 0.7) for name in ("a", "b")}
    fast = study(PAIRED, 40, 5, **runs).score("paired")
    for name, mine in runs.items():
        assert fast.of(name) == pytest.approx(official_total(mine), abs=0)
        assert fast[name] == pytest.approx(slow_bootstrap(official_total, mine, 40, 5), abs=1e-12)


def test_blocks_do_not_change_the_draws(monkeypatch: pytest.MonkeyPatch) -> None:
    rng = np.random.default_rng(3)
    runs = {name: categories(rng.random((30, 2)) < 0.7) for name in "ab"}
    whole = study(PAIRED, 101, **runs).score("paired").replicates
    monkeypatch.setattr("vicoset.evaluate.statistics.bootstrap.DRAWS_AT_ONCE", 100)
    assert (study(PAIRED, 101, **runs).score("paired").replicates == whole).all()


def test_order_of_records_and_shards_have_no_influence() -> None:
    rng = np.random.default_rng(4)
    units = [f"u{i % 11}" for i in range(90)]
    runs = {name: samples(rng.random(90), units) for name in "ab"}
    expected = study(SumTask(), 200, **runs).score("task")
    for shards in (1, 2, 7):
        shuffled = {}
        for name, mine in runs.items():
            parts = [mine[i::shards] for i in rng.permutation(shards)]
            joined = [sample for part in parts for sample in part]
            shuffled[name] = [joined[i] for i in rng.permutation(len(joined))]
        again = study(SumTask(), 200, **shuffled).score("task")
        assert (again.replicates == expected.replicates).all()
        assert (again.value == expected.value).all()


def test_other_methods_and_other_tasks_leave_the_draws_alone() -> None:
    rng = np.random.default_rng(5)
    runs = {name: samples((rng.random(50) < 0.5).astype(float)) for name in "abc"}
    two = study(SumTask(), 300, **{k: runs[k] for k in "ab"}).score("task")
    three = study(SumTask(), 300, **runs).score("task")
    assert (two["a"] == three["a"]).all()
    assert not (study(SumTask(), 300, 1, **runs).score("task")["a"] == three["a"]).all()
    renamed = {k: samples([x.score for x in v], task="other") for k, v in runs.items()}  # type: ignore[arg-type]
    assert not (study(SumTask("other"), 300, **renamed).score("other")["a"] == three["a"]).all()


def test_equal_methods_differ_by_exactly_nothing() -> None:
    rng = np.random.default_rng(6)
    runs = {name: samples(rng.random(60)) for name in "ac"}
    runs["b"] = runs["a"]
    found = study(SumTask(), 500, **runs).score("task")
    same = found.minus("a").estimates()["b"]
    assert (same.value, same.low, same.high) == (0, 0, 0)
    assert (same.greater, same.less, same.two_sided) == (1, 1, 1)
    ratio = found.over("a").estimates()["b"]
    assert (ratio.value, ratio.low, ratio.high) == (1, 1, 1)
    assert found.minus("a").estimates()["c"].low < found.minus("a").estimates()["c"].high


def test_spread_of_a_rate_is_that_of_the_binomial() -> None:
    right = np.arange(400) < 120
    found = study(SumTask(), 20_000, x=samples(right)).score("task")
    expected = np.sqrt(0.3 * 0.7 / 400)
    assert found["x"].std() == pytest.approx(expected, rel=0.02)
    low, high = (0.3 + side * 1.96 * expected for side in (-1, 1))
    estimate = found.estimates()["x"]
    assert (estimate.value, estimate.low, estimate.high) == pytest.approx(
        (0.3, low, high), abs=3e-3
    )


def test_spread_of_clusters_is_that_of_the_formula() -> None:
    """All samples of a unit agree, so that 40 units of 10 are worth 40 samples and not 400."""
    right = np.repeat(np.arange(40) < 10, 10)
    units = [f"u{i // 10:02d}" for i in range(400)]
    runs = {"x": samples(right, units)}
    clustered = study(SumTask(), 20_000, **runs).score("task")["x"].std()
    alone = Study.of([SumTask()], runs, unit="sample").score("task")["x"].std()
    assert clustered == pytest.approx(np.sqrt(0.25 * 0.75 / 40), rel=0.02)
    assert alone == pytest.approx(np.sqrt(0.25 * 0.75 / 400), rel=0.02)


def test_strata_keep_their_sizes() -> None:
    """A rate that only the stratum decides has no spread when strata are kept."""
    right = np.repeat(np.arange(30)[:, None] % 3 == 0, 2, axis=1)
    assert study(PAIRED, 200, x=categories(right)).score("paired")["x"].std() == 0


@pytest.fixture(scope="module")
def paired_scores() -> tuple[Array, Array]:
    rng = np.random.default_rng(7)
    shared = rng.normal(size=300)
    return shared + rng.normal(size=300) * 0.4 + 0.1, shared


def test_interval_and_p_agree_with_scipy(paired_scores: tuple[Array, Array]) -> None:
    a, b = paired_scores
    found = study(SumTask(), 20_000, a=samples(a), b=samples(b)).score("task").minus("b")
    ours = found.estimates()["a"]
    theirs = scipy.stats.bootstrap(
        (a, b),
        lambda x, y, axis: x.mean(axis) - y.mean(axis),
        paired=True,
        vectorized=True,
        n_resamples=20_000,
        method="percentile",
        random_state=np.random.default_rng(0),
    )
    width = theirs.confidence_interval.high - theirs.confidence_interval.low
    ends = (theirs.confidence_interval.low, theirs.confidence_interval.high)
    assert (ours.low, ours.high) == pytest.approx(ends, abs=0.03 * width)
    assert found["a"].std() == pytest.approx(theirs.standard_error, rel=0.02)
    assert ours.greater == pytest.approx(
        scipy.stats.norm.sf(ours.value / found["a"].std()), abs=2e-3
    )


def test_interval_of_a_ratio_agrees_with_arch(paired_scores: tuple[Array, Array]) -> None:
    a, b = (5 + x for x in paired_scores)
    ours = study(SumTask(), 20_000, a=samples(a), b=samples(b)).score("task").over("b").estimates()
    theirs = IIDBootstrap(a, b, seed=1).conf_int(
        lambda x, y: x.mean() / y.mean(), reps=4000, method="percentile"
    )
    low, high = theirs[:, 0]
    width = 0.05 * (high - low)
    assert (ours["a"].low, ours["a"].high) == pytest.approx((low, high), abs=width)


def coverage(datasets: int, replicates: int, units: int, seed: int) -> float:
    """How often the 95% interval of a paired, clustered difference holds the truth.

    Every dataset is a pair of methods on the same clusters of one to nine samples; cluster effects
    are shared by the pair in part. All datasets stand side by side as methods of one study, which
    makes them share the draws but not the data.
    """
    rng = np.random.default_rng(seed)
    size = rng.integers(1, 10, units)
    image = rng.normal(size=(units, datasets))
    values = np.empty((units, 2, 2 * datasets))
    values[:, 0] = size[:, None]
    for side, shift in ((0, 0.0), (1, 0.15)):
        chance = scipy.stats.norm.cdf(0.4 + shift + image + 0.5 * rng.normal(size=image.shape))
        values[:, 1, side::2] = rng.binomial(size[:, None], chance)
    names = tuple(f"{i}{side}" for i in range(datasets) for side in "ab")
    sums = UnitSums("sim", names, ("",), np.zeros(units, np.intp), ("asked", "right"), values)
    task = SumTask("sim")
    found = Study.of_sums([task], {"sim": sums}, replicates=replicates, seed=seed).score("sim")
    spread = np.sqrt(1 + 1 + 0.25)
    truth = scipy.stats.norm.cdf(0.55 / spread) - scipy.stats.norm.cdf(0.4 / spread)
    low, high = np.quantile(
        found.replicates[:, 1::2] - found.replicates[:, ::2], [0.025, 0.975], axis=0
    )
    return float(((low <= truth) & (truth <= high)).mean())


def test_intervals_cover_the_truth_as_often_as_they_say() -> None:
    assert 0.93 < coverage(datasets=1000, replicates=600, units=150, seed=0) < 0.97


@pytest.mark.slow
@pytest.mark.parametrize("units", [100, 400])
def test_intervals_cover_the_truth_full_size(units: int) -> None:
    assert 0.93 < coverage(datasets=4000, replicates=2000, units=units, seed=1) < 0.97


def test_ignoring_clusters_or_pairs_would_cover_badly() -> None:
    """The simulation can fail: resampling samples instead of clusters is far too narrow."""
    rng = np.random.default_rng(8)
    image = rng.normal(size=60).repeat(20)
    units = [f"u{i // 20:02d}" for i in range(1200)]
    runs = {"a": samples(image + rng.normal(size=1200), units)}
    clustered, alone = (
        Study.of([SumTask()], runs, replicates=2000, unit=unit).score("task")["a"].std()
        for unit in ("unit", "sample")
    )
    assert clustered > 2.5 * alone


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"values": np.zeros((2, 1, 2))}, "shape"),
        ({"values": np.full((3, 1, 2), np.nan)}, "NaN"),
        ({"stratum": np.array([1, 0, 1])}, "order"),
        ({"stratum": np.array([1, 1, 1])}, "empty"),
        ({"stratum": np.array([0, 1, 2])}, "strata"),
    ],
)
def test_sums_that_make_no_sense_are_refused(change: dict[str, Array], said: str) -> None:
    sound = {"stratum": np.array([0, 0, 1]), "values": np.ones((3, 1, 2))}
    UnitSums("t", ("a", "b"), ("p", "q"), stats=("n",), **sound)
    with pytest.raises(StatisticsError, match=said):
        UnitSums("t", ("a", "b"), ("p", "q"), stats=("n",), **{**sound, **change})


def test_a_metric_that_becomes_undefined_says_so() -> None:
    found = study(SumTask(rule=lambda sums: sums["right"] / sums["right"]), x=samples([0, 0, 1]))  # type: ignore[arg-type]
    with pytest.raises(StatisticsError, match="denominator"):
        found.score("task")


BENCHMARK = Path(__file__).parents[3] / "benchmarks" / "bootstrap.py"


def measured(replicates: int) -> tuple[float, float]:
    """Seconds of CPU time and MiB of a fresh process."""
    command = [sys.executable, str(BENCHMARK), "--replicates", str(replicates)]
    result = subprocess.run(command, capture_output=True, text=True, check=True)
    words = result.stdout.split()
    return float(words[words.index("s,") - 1]), float(words[-4])


def test_two_thousand_replicates_are_quick_and_small() -> None:
    seconds, mib = measured(2000)
    assert seconds < 1.5
    assert mib < 300


@pytest.mark.slow
def test_twenty_thousand_replicates_take_five_seconds_and_500_mb() -> None:
    seconds, mib = measured(20_000)
    assert seconds < 5
    assert mib < 500


def test_unit_sums_hold_what_units_sum_to() -> None:
    found = unit_sums("task", {"a": samples(np.array([1.0, 0.5, 0.25]), ["q", "p", "q"])})
    assert found.stats == ("asked", "right")
    assert found.values[..., 0].tolist() == [[1, 0.5], [2, 1.25]]
