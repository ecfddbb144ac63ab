"""``vicoset plan``: its numbers are those of the budget rule and of the work, added up by hand."""

import json
from typing import Any

import pytest

from vicoset.cli.main import main
from vicoset.cli.options import keep_of
from vicoset.cli.plan import effect
from vicoset.errors import BudgetError
from vicoset.plan import Keep, Plan, Stage, plan_named


def told(capsys: pytest.CaptureFixture[str], *given: str) -> dict[str, Any]:
    assert main(["plan", *given, "--json"]) == 0
    found: dict[str, Any] = json.loads(capsys.readouterr().out)
    return found


def test_work_of_one_stage_by_hand(capsys: pytest.CaptureFixture[str]) -> None:
    found = told(capsys, "gmc-h2", "--tokens", "1296", "--depth", "28", "--keep", "128")
    assert found["work"] == [2 * 1296 + 26 * 128] * 2
    assert found["average"] == [(2 * 1296 + 26 * 128) / 28] * 2
    assert found["work_share"] == [(2 * 1296 + 26 * 128) / (28 * 1296)] * 2
    assert found["kept"] == [128, 128]


def test_stages_share_what_is_left() -> None:
    first, second = (plan_named(name, 10).stages[0] for name in ("gmc@0", "random+drop@4"))
    plan = Plan(
        "two",
        (
            Stage(0, first.selector, first.realiser, Keep(fraction=0.5)),
            Stage(4, second.selector, second.realiser, Keep(fraction=0.5)),
        ),
    )
    found = effect(plan, Keep(tokens=9), tokens=100, depth=10)
    assert [stage["kept"] for stage in found["stages"]] == [[50, 50], [25, 25]]
    assert found["work"] == [4 * 50 + 6 * 25] * 2


def test_a_coverage_gives_both_ends(capsys: pytest.CaptureFixture[str]) -> None:
    given = ("gmc@3", "--tokens", "100", "--depth", "10", "--keep", "coverage=0.9,min=5,max=20%")
    assert told(capsys, *given)["work"] == [3 * 100 + 7 * 5, 3 * 100 + 7 * 20]
    assert main(["plan", *given]) == 0
    assert "K = 5 to 20" in capsys.readouterr().out


def test_budgets_that_are_not_met_are_noted(capsys: pytest.CaptureFixture[str]) -> None:
    few = told(capsys, "gmc-h2", "--tokens", "60", "--keep", "2", "--images", "3")
    assert few["kept"] == [3, 3] and "below the 3 images" in few["notes"][0]
    many = told(capsys, "gmc-h2", "--tokens", "60", "--keep", "90")
    assert many["kept"] == [60, 60] and "above the 60 visual tokens" in many["notes"][0]


def test_the_page_has_a_row_per_stretch(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["plan", "gmc-l16", "--depth", "8", "--tokens", "90", "--keep", "10%"]) == 0
    text = capsys.readouterr().out
    rows = [line.split() for line in text.splitlines() if line.startswith("  blocks ")]
    assert [row[:5] for row in rows] == [
        ["blocks", "0", "to", "4", "90"],
        ["blocks", "5", "to", "7", "9"],
    ]
    assert "p = 16 of 28 blocks" in text


@pytest.mark.parametrize(
    ("text", "keep"),
    [
        ("128", Keep(tokens=128)),
        ("0.1", Keep(fraction=0.1)),
        ("10%", Keep(fraction=0.1)),
        ("1.0", Keep(fraction=1.0)),
        ("coverage=0.95", Keep(coverage=0.95)),
        ("coverage=95%,min=16,max=0.5", Keep(coverage=0.95, min=16, max=0.5)),
    ],
)
def test_texts_name_budgets(text: str, keep: Keep) -> None:
    assert keep_of(text) == keep


@pytest.mark.parametrize(
    "text", ["", "x", "0", "-1", "1.5", "200%", "coverage=2", "cover=1", "a=b"]
)
def test_other_texts_name_none(text: str) -> None:
    with pytest.raises(BudgetError, match="allowed"):
        keep_of(text)


@pytest.mark.parametrize(
    ("given", "line"),
    [
        (["gmc-h3"], "Did you mean 'gmc-h2'?"),
        (["gmc@30"], "this model has 28 blocks"),
        (["gmc-h2", "--keep", "none"], "coverage=0.95"),
    ],
)
def test_plans_that_could_not_run(
    given: list[str], line: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["plan", *given]) == 2
    assert line in capsys.readouterr().err
