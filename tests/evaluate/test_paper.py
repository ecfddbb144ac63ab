"""The paper's arithmetic, reproduced from its printed numbers where that can be done.

Printed values are rounded. A derived value must lie where some unrounded values can put it: the
tolerance of every test follows from the digits that are printed, and is stated there.
"""

from collections.abc import Iterable

import numpy as np
import pytest

from vicoset.errors import UnknownNameError
from vicoset.evaluate import paper
from vicoset.evaluate.paper import Row, find, table
from vicoset.evaluate.statistics import Draws, effects
from vicoset.evaluate.statistics.factorial import factorial
from vicoset.plan import keep_for_work, work, work_share

DEPTH = 28
BOUNDARY = {"mmtok": 0, "visionzip": 0, "gmc-h1": 1, "gmc-h2": 2, "fastv-h2": 2, "gmc-l16": 16}
MME = 28.0  # a total of 2,800, so that 28 is a percent


def share(row: Row) -> float:
    """Work in percent, from plan and budget."""
    if row["plan"] == "full":
        return 100.0
    return 100 * work_share([BOUNDARY[row["plan"]]], [int(row["keep"])], int(row["tokens"]), DEPTH)


def label(row: Row) -> str:
    return "-".join(row.get(key, "") for key in ("plan", "keep", "target", "tokens"))


def rows(*names: str) -> list[Row]:
    return [row for name in names for row in table(name)]


def numbers(row: Row, *columns: str) -> list[float]:
    return [float(row[column]) for column in columns]


@pytest.mark.parametrize("row", rows("fixed_k", "equal_work", "runtime", "deployment"), ids=label)
def test_work_columns_follow_from_boundary_and_budget(row: Row) -> None:
    assert f"{share(row):.2f}" == row["work"]


@pytest.mark.parametrize("row", table("equal_work"), ids=label)
def test_equal_work_budgets_are_the_nearest(row: Row) -> None:
    boundary, keep = row["target"].split("-")
    target = work([int(boundary[1:])], [int(keep)], 1296, DEPTH)
    assert keep_for_work(target, BOUNDARY[row["plan"]], 1296, DEPTH) == int(row["keep"])
    assert f"{100 * int(row['keep']) / 1296:.2f}" == row["final"]


def test_equal_work_budgets_by_name() -> None:
    found = {int(row["keep"]) for row in table("equal_work") if "gmc" not in row["plan"]}
    assert found == {128, 256, 211, 330, 795, 850, 757, 816}


@pytest.mark.parametrize("row", table("equal_work"), ids=label)
def test_equal_work_differences_are_those_of_the_macros(row: Row) -> None:
    ours = find(
        "equal_work", target=row["target"], plan=f"gmc-{row['target'].split('-')[0].lower()}"
    )
    assert ours is not None
    if row["delta"]:
        difference = float(row["macro"]) - float(ours["macro"])
        assert float(row["delta"]) == pytest.approx(difference, abs=0.0151)  # three roundings
        assert float(row["low"]) < float(row["delta"]) < float(row["high"])
    else:
        assert row["method"] == ours["method"]


def implied(row: Row, dense: int) -> tuple[float, float]:
    """The text lengths T that a printed prompt-KV reduction (N - K) / (N + T) allows."""
    tokens, keep, printed = int(row["tokens"]), int(row["keep"]), float(row["kv_reduction"])
    low, high = (100 * (tokens - keep) / (printed + half) - tokens for half in (0.005, -0.005))
    return low, high


@pytest.mark.parametrize(
    ("found", "about"),
    [
        ([r for r in table("runtime") if r["plan"] != "full"], 42.5),
        (rows("cached", "deployment"), 56),
    ],
    ids=["no cache", "cached"],
)
def test_one_length_of_text_explains_all_prompt_kv_reductions(
    found: Iterable[Row], about: float
) -> None:
    ranges = [implied(row, DEPTH) for row in found]
    low, high = max(a for a, _ in ranges), min(b for _, b in ranges)
    assert low <= high
    assert low - 1 <= about <= high + 1


@pytest.mark.parametrize("row", table("fixed_k"), ids=label)
def test_fixed_k_macro_is_the_mean_of_taskwise_retentions(row: Row) -> None:
    full = find("fixed_k", plan="full", keep=row["keep"])
    assert full is not None
    tasks = ("textvqa", "chartqa", "mme", "pope")
    kept = [a / b for a, b in zip(numbers(row, *tasks), numbers(full, *tasks), strict=True)]
    assert float(row["macro"]) == pytest.approx(100 * sum(kept) / 4, abs=0.02)


@pytest.mark.parametrize("row", rows("general_qwen", "general_llava"), ids=label)
def test_averages_of_the_general_table_are_means(row: Row) -> None:
    tasks = [c for c in row if c in ("textvqa", "chartqa", "mme", "pope", "mmbench", "gqa")]
    assert float(row["average"]) == pytest.approx(np.mean(numbers(row, *tasks)), abs=0.0101)


@pytest.mark.parametrize("row", table("hallucination"), ids=label)
def test_hallucination_average_is_the_mean_of_three_retentions(row: Row) -> None:
    full, tasks = table("hallucination")[0], ("pope", "amber", "hallusion")
    kept = [a / b for a, b in zip(numbers(row, *tasks), numbers(full, *tasks), strict=True)]
    assert float(row["average"]) == pytest.approx(100 * sum(kept) / 3, abs=0.015)


@pytest.mark.parametrize("row", table("llava"), ids=label)
def test_llava_mean_is_the_mean_of_six_retentions(row: Row) -> None:
    full = table("llava")[0]
    tasks = ("textvqa", "mme", "pope", "mmbench", "amber", "hallusion")
    kept = [a / b for a, b in zip(numbers(row, *tasks), numbers(full, *tasks), strict=True)]
    assert float(row["mean_retention"]) == pytest.approx(100 * sum(kept) / 6, abs=0.015)


def factorial_macro(row: Row) -> float:
    percent = numbers(row, "textvqa", "chartqa", "pope", "mmbench", "gqa")
    return float(sum(percent) + float(row["mme"]) / MME) / 6


@pytest.mark.parametrize("row", table("factorial_cells"), ids=lambda row: row["configuration"])
def test_factorial_macro_is_five_percentages_and_mme_over_28(row: Row) -> None:
    # MME is printed without decimals: half a point of 2,800 is 0.018 percent, a sixth of it 0.003
    assert float(row["macro"]) == pytest.approx(factorial_macro(row), abs=0.0125)


def test_factorial_effects_follow_from_the_cells() -> None:
    cells = table("factorial_cells")
    value = np.array([factorial_macro(row) for row in cells])
    draws = Draws(tuple(row["configuration"] for row in cells), value, value[None])
    levels = {
        row["configuration"]: (row["history"] == "1", row["population"] == "1") for row in cells
    }
    found = factorial(draws, ["history", "population"], levels)
    assert set(found.names) == set(effects(["history", "population"], levels))
    for row in table("factorial_effects"):
        name = row["effect"]
        assert found.of(name) == pytest.approx(float(row["macro"]), abs=0.021), name


def attainable(printed: str, count: int) -> bool:
    """Whether some k of `count` prints as this percentage."""
    digits = len(printed.partition(".")[2])
    nearest = round(float(printed) * count / 100)
    return any(f"{100 * k / count:.{digits}f}" == printed for k in range(nearest - 2, nearest + 3))


def printed(column: str, *names: str) -> list[str]:
    return [row[column] for row in rows(*names)]


@pytest.mark.parametrize(
    ("column", "tables", "count"),
    [
        ("pope", ("fixed_k", "hallucination", "llava", "factorial_cells"), 9000),
        ("amber", ("hallucination", "llava"), 1200),
        ("hallusion", ("hallucination", "llava"), 951),
        ("chair_s", ("hallucination",), 500),
        ("chartqa", ("fixed_k", "factorial_cells"), 2500),
        ("mmbench", ("factorial_cells", "llava"), 1164),
    ],
)
def test_printed_scores_are_counts(column: str, tables: tuple[str, ...], count: int) -> None:
    wrong = [x for x in printed(column, *tables) if not attainable(x, count)]
    assert wrong == []


def test_mmbench_counts_questions_and_not_rows() -> None:
    found = set(printed("mmbench", "factorial_cells", "llava"))
    assert len(found) == 5
    assert sum(not attainable(x, 4329) for x in found) == 4


@pytest.mark.parametrize("row", [r for r in table("runtime") if r["plan"] != "full"], ids=label)
def test_speedups_are_ratios_of_times(row: Row) -> None:
    full = find("runtime", panel=row["panel"], keep=row["keep"], plan="full")
    assert full is not None
    ratio = float(full["seconds"]) / float(row["seconds"])
    assert float(row["speedup"]) == pytest.approx(ratio, abs=0.001)


@pytest.mark.parametrize("row", table("overhead"), ids=label)
def test_overhead_is_the_sum_of_its_stages(row: Row) -> None:
    stages = numbers(row, "message_ms", "selection_ms", "transport_ms", "compaction_ms")
    assert float(row["total_ms"]) == pytest.approx(sum(stages), abs=0.251)


@pytest.mark.parametrize("row", table("cached"), ids=label)
def test_deployed_quality_is_relative_to_the_same_full(row: Row) -> None:
    deployed = find("deployment", plan=row["plan"], keep=row["keep"])
    assert deployed is not None
    full = 100 * float(row["docvqa"]) + float(row["full_minus_gmc"])
    assert float(deployed["quality"]) == pytest.approx(
        100 * 100 * float(row["docvqa"]) / full, abs=0.02
    )
    for column in ("speedup", "kv_reduction"):
        assert deployed[column] == row[column]


@pytest.mark.parametrize(
    "row", table("selectors"), ids=lambda r: f"{r['selector']}-{r['boundary']}"
)
def test_selector_differences_are_those_of_the_macros(row: Row) -> None:
    ours = find("selectors", selector="GMC message support", boundary=row["boundary"])
    assert ours is not None
    if row["delta"]:
        difference = float(row["macro"]) - float(ours["macro"])
        assert float(row["delta"]) == pytest.approx(difference, abs=0.0151)


def test_differences_of_the_small_tables() -> None:
    for row in rows("components", "spatial"):
        if row["delta"] and row["with"]:
            difference = float(row["with"]) - float(row["without"])
            assert float(row["delta"]) == pytest.approx(difference, abs=0.0151)


def test_the_rate_interaction_is_the_difference_of_two_effects() -> None:
    def effect(keep: str) -> float:
        row = find("message_pathway", panel="c", model="Qwen2.5-VL-7B", keep=keep)
        assert row is not None
        return float(row["value"])

    assert effect("") == pytest.approx(effect("128") - effect("256"), abs=0.0151)


def test_text_and_tables_agree() -> None:
    fixed = {(r["plan"], r["keep"]): r for r in table("fixed_k")}
    for row in table("text"):
        if row["quantity"] == "retention":
            assert row["value"] == fixed[row["plan"], row["keep"]]["macro"]
        elif row["quantity"] == "difference":
            where = "fixed_k" if row["task"] in ("textvqa", "chartqa") else "hallucination"
            a, b = (find(where, plan=row[k], keep=row["keep"]) for k in ("plan", "against"))
            assert a is not None and b is not None
            difference = float(a[row["task"]]) - float(b[row["task"]])
            assert float(row["value"]) == pytest.approx(difference, abs=0.0151)


def test_intervals_hold_their_values() -> None:
    seen = 0
    for name in paper.names():
        for row in table(name):
            if row.get("low") and row.get("high"):
                key = next(
                    k for k in ("delta", "value", "full_minus_gmc", "estimate", "macro") if k in row
                )
                assert float(row["low"]) <= float(row[key]) <= float(row["high"]), (name, row)
                seen += 1
    assert seen > 80


def test_every_row_names_its_source() -> None:
    for name in paper.names():
        assert table(name)
        for row in table(name):
            assert row["source"].startswith(("tab:", "sec:")), name
            assert None not in row and None not in row.values(), (name, row)


def test_what_is_not_there_is_said() -> None:
    with pytest.raises(UnknownNameError, match="no published table 'fixed'; there are"):
        table("fixed")
    with pytest.raises(UnknownNameError, match=r"no columns \['k'\]"):
        find("fixed_k", k=128)
    with pytest.raises(UnknownNameError, match="6 rows of 'fixed_k'"):
        find("fixed_k", keep=128)
    assert find("fixed_k", plan="gmc-h2", keep=1) is None
