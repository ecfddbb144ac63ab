"""docs/tiny.md says what was collected of the runs, and the recipe as it is."""

import json
from typing import Any

import pytest

from docs import make_tiny
from vicoset.tiny import bench, configs
from vicoset.tiny.load import FOLDER


@pytest.fixture(scope="module")
def facts() -> dict[str, Any]:
    found: dict[str, Any] = json.loads(make_tiny.FACTS.read_text(encoding="utf-8"))
    return found


def test_the_page_is_what_the_script_writes(facts: dict[str, Any]) -> None:
    assert make_tiny.PAGE.read_text(encoding="utf-8") == make_tiny.page(facts)


def test_the_curves_are_what_the_script_draws(facts: dict[str, Any]) -> None:
    for run in facts["runs"]:
        path = make_tiny.TABLES / f"curves-{run['family']}-{run['seed']}.svg"
        assert path.read_text(encoding="utf-8") == make_tiny.curves(run)


def test_every_shipped_model_has_its_exam(facts: dict[str, Any]) -> None:
    for family in configs.FAMILIES:
        if not (FOLDER / family).is_dir():
            continue
        run = next(run for run in facts["runs"] if run["family"] == family)
        for condition in ("picture", "another", "blank"):
            assert set(run["exam"][condition]) == set(bench.TASKS)
        counts = [run["exam"]["picture"][task][3] for task in bench.TASKS]
        assert sum(counts) == len(bench.items(family))


def test_shares_are_means_with_intervals_around_them() -> None:
    rows = {"a": {f"u{k}": [float(k % 2), 1.0] for k in range(40)}, "b": {"u0": [1.0], "u1": [1.0]}}
    found = make_tiny.shares("document", {"a": rows["a"]})
    value, low, high = found["a"]
    assert value == 0.75 and low < 0.75 < high and high - low < 0.2
    assert make_tiny.shares("document", {"b": rows["b"]})["b"] == [1.0, 1.0, 1.0]
