"""The algebra on replicates: retention, macro, contrasts, p-values, factorial effects."""

import itertools

import numpy as np
import pytest

from tests.evaluate.statistics.cases import SumTask, samples
from vicoset.errors import StatisticsError, UnknownNameError
from vicoset.evaluate.statistics import Draws, Study, effects, macro
from vicoset.evaluate.statistics.factorial import factorial

RNG = np.random.default_rng(0)
DRAWS = Draws(("full", "a", "b"), np.array([0.8, 0.6, 0.7]), RNG.random((50, 3)) + 0.5)


def test_retention_is_the_ratio_inside_every_replicate() -> None:
    found = DRAWS.over("full").scaled(100)
    assert found.of("a") == pytest.approx(75)
    for row, kept in zip(DRAWS.replicates, found.replicates, strict=True):
        assert kept == pytest.approx([100, 100 * row[1] / row[0], 100 * row[2] / row[0]])


def test_retention_over_nothing_is_refused() -> None:
    for value, row in ((0.0, 0.5), (0.5, 0.0)):
        draws = Draws(("full",), np.array([value]), np.array([[row]]))
        with pytest.raises(StatisticsError, match="'full' is 0 in 1 of 2 values"):
            draws.over("full")


def test_contrasts_are_weighted_sums_inside_every_replicate() -> None:
    found = DRAWS.combined({"mean": {"a": 0.5, "b": 0.5}, "gain": {"b": 1, "a": -1}})
    assert found.names == ("mean", "gain")
    assert found.value == pytest.approx([0.65, 0.1])
    assert found["gain"] == pytest.approx(DRAWS.replicates[:, 2] - DRAWS.replicates[:, 1])
    assert found["gain"] == pytest.approx(DRAWS.minus("a")["b"])


def test_p_values_are_as_defined() -> None:
    draws = Draws(("x",), np.array([1.0]), np.array([[-1.0], [0.0], [0.5], [1.0], [2.0], [3.0]]))
    found = draws.estimates()["x"]
    assert found.greater == (1 + 2) / 7  # -1 and 0 are not above 0
    assert found.less == (1 + 5) / 7
    assert found.two_sided == found.p("two-sided") == pytest.approx(6 / 7)
    assert (found.p("greater"), found.p("less")) == (found.greater, found.less)
    with pytest.raises(UnknownNameError, match="allowed are two-sided, greater, less"):
        found.p("more")


def test_smallest_p_value_is_that_of_the_number_of_replicates() -> None:
    above = Draws(("x",), np.ones(1), np.ones((9999, 1))).estimates()["x"]
    assert (above.greater, above.less, above.two_sided) == (1e-4, 1, 2e-4)


def test_intervals_are_percentiles() -> None:
    draws = Draws(("x",), np.zeros(1), np.arange(1001.0)[:, None])
    found = draws.estimates()["x"]
    assert (found.low, found.high) == pytest.approx((25, 975))
    narrow = draws.estimates(0.5)["x"]
    assert (narrow.low, narrow.high) == (250, 750)
    for level in (0, 1, 95):
        with pytest.raises(StatisticsError, match="allowed is 0 < level < 1"):
            draws.estimates(level)


def test_names_are_checked() -> None:
    with pytest.raises(UnknownNameError, match="no column 'c'; there are full, a, b"):
        DRAWS.minus("c")


def test_macro_is_the_mean_of_tasks() -> None:
    other = Draws(DRAWS.names, DRAWS.value / 2, DRAWS.replicates / 2)
    found = macro([DRAWS, other])
    assert found.value == pytest.approx(DRAWS.value * 0.75)
    assert found.replicates == pytest.approx(DRAWS.replicates * 0.75)
    for wrong in ([], [DRAWS, Draws(("x",), np.ones(1), np.ones((50, 1)))]):
        with pytest.raises(StatisticsError, match="same columns"):
            macro(wrong)


def table(k: int) -> dict[str, tuple[bool, ...]]:
    return {"".join("01"[x] for x in c): c for c in itertools.product((False, True), repeat=k)}


def test_effects_of_two_factors_by_hand() -> None:
    draws = Draws(tuple(table(2)), np.array([10.0, 13.0, 11.0, 20.0]), np.zeros((1, 4)))
    found = factorial(draws, ["x", "y"], table(2))
    assert dict(zip(found.names, found.value.tolist(), strict=True)) == {
        "x": ((11 - 10) + (20 - 13)) / 2,
        "y": ((13 - 10) + (20 - 11)) / 2,
        "x x y": (20 - 13) - (11 - 10),
    }


def test_effects_find_the_coefficients_of_a_model() -> None:
    """Cells made from known effects give those back: at -1/2 and +1/2 they are the coefficients."""
    names = ["a", "b", "c"]
    truth = {e: RNG.normal() for n in (1, 2, 3) for e in itertools.combinations(range(3), n)}
    cells = table(3)
    value = [
        sum(c * np.prod([x[i] - 0.5 for i in e]) for e, c in truth.items()) for x in cells.values()
    ]
    draws = Draws(tuple(cells), np.array(value), np.tile(value, (3, 1)))
    found = factorial(draws, names, cells)
    for chosen, coefficient in truth.items():
        name = " x ".join(names[i] for i in chosen)
        assert found.of(name) == pytest.approx(coefficient)
        assert found[name] == pytest.approx([coefficient] * 3)


@pytest.mark.parametrize("k", [1, 2, 3, 4])
def test_equal_cells_have_no_effect_at_all(k: int) -> None:
    draws = Draws(tuple(table(k)), np.full(2**k, 0.1), np.tile(RNG.random((40, 1)), (1, 2**k)))
    found = factorial(draws, list("abcd"[:k]), table(k))
    assert not found.replicates.any() and not found.value.any()
    assert len(found.names) == 2**k - 1


def test_incomplete_designs_are_refused() -> None:
    for cells in (
        {"p": (True, False)},
        {**table(2), "again": (True, True)},
        {},
        {"p": (True,), "q": (True,)},
    ):
        with pytest.raises(StatisticsError, match="complete design"):
            effects(["x", "y"], cells)
    assert effects(["x"], {"on": (True,), "off": (False,)})["x"].weights == {"on": 1, "off": -1}


def study() -> Study:
    tasks = [SumTask("p"), SumTask("q", maximum=4.0), SumTask("bad", higher_is_better=False)]
    runs = {}
    for name, shift in (("full", 0.2), ("a", 0.0)):
        rng = np.random.default_rng(3)
        runs[name] = [
            s for t in tasks for s in samples((rng.random(80) + shift) * t.maximum, task=t.name)
        ]
    return Study.of(tasks, runs, replicates=400)


def test_macros_divide_by_the_attainable_or_by_full() -> None:
    found = study()
    p, q = found.score("p"), found.score("q")
    assert found.macro().value == pytest.approx(100 * (p.value + q.value / 4) / 2)
    assert found.macro()["a"] == pytest.approx(100 * (p["a"] + q["a"] / 4) / 2)
    kept = (p["a"] / p["full"] + q["a"] / q["full"]) / 2
    assert found.macro(full="full")["a"] == pytest.approx(100 * kept)
    assert found.macro(["q"], "full").of("full") == 100
    with pytest.raises(StatisticsError, match="less is better"):
        found.macro(["p", "bad"])


def test_studies_name_what_they_lack() -> None:
    with pytest.raises(UnknownNameError, match="no metric 'p:f1'; there are p, q, bad"):
        study().score("p", "f1")
    for wrong in ({"replicates": 0}, {"seed": -1}):
        with pytest.raises(StatisticsError, match="at least one"):
            Study.of([SumTask()], {"a": samples(np.ones(3))}, **wrong)  # type: ignore[arg-type]
    with pytest.raises(StatisticsError, match="0 tasks"):
        Study.of([], {"a": samples(np.ones(3))})
