"""Samples that do not belong together are refused, and the message names them."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from tests.evaluate.statistics.cases import categories, samples
from vicoset.errors import PairingError
from vicoset.evaluate.sample import Sample
from vicoset.evaluate.statistics import unit_sums

PLAIN = samples(np.array([1.0, 0.0, 1.0, 0.5]), ["a", "a", "b", "c"])


def changed(at: int, **values: Any) -> list[Sample]:
    return [replace(s, **values) if i == at else s for i, s in enumerate(PLAIN)]


def test_units_are_summed() -> None:
    found = unit_sums("task", {"x": PLAIN, "y": PLAIN[::-1]})
    assert (found.methods, found.stats, found.strata) == (("x", "y"), ("asked", "right"), ("",))
    assert found.values[..., 0].tolist() == [[2, 1], [1, 1], [1, 0.5]]
    assert (found.values[..., 0] == found.values[..., 1]).all()
    assert unit_sums("task", {"x": PLAIN}, "sample").values[:, 0, 0].tolist() == [1, 1, 1, 1]


def test_other_tasks_are_left_alone() -> None:
    mixed = [*PLAIN, *samples(np.ones(3), task="other")]
    assert (unit_sums("task", {"x": mixed}).values == unit_sums("task", {"x": PLAIN}).values).all()


def test_groups_are_right_when_all_of_their_samples_are() -> None:
    right = np.array([[1, 1], [1, 0], [0, 0], [1, 1]])
    found = unit_sums("paired", {"x": categories(right, categories=2)})
    assert found.stats == ("asked", "right", "all:pair", "groups:pair")
    assert found.strata == ("c0", "c1")
    assert found.stratum.tolist() == [0, 0, 1, 1]
    assert found.values[:, 2, 0].tolist() == [1, 0, 0, 1]
    assert found.values[:, 3, 0].tolist() == [1, 1, 1, 1]


def test_a_unit_may_hold_several_groups_and_samples_without_one() -> None:
    rows = [("1", 1.0, {"f": "p"}), ("2", 1.0, {"f": "p"}), ("3", 0.0, {"f": "q"}), ("4", 0.0, {})]
    made = [Sample("t", i, "u", "", {"n": 1.0}, score, groups) for i, score, groups in rows]
    found = unit_sums("t", {"x": made})
    assert dict(zip(found.stats, found.values[0, :, 0], strict=True)) == {
        "n": 4,
        "all:f": 1,
        "groups:f": 2,
    }


@pytest.mark.parametrize(
    ("other", "said"),
    [
        (PLAIN[:-1], r"'y' lacks 1 of the 4 samples of 'task': 's0003'"),
        ([*PLAIN, replace(PLAIN[0], sample_id="new")], r"'x' lacks 1 of the 5 .* 'new'"),
        ([*PLAIN, PLAIN[2]], r"'y' has 1 doubled ids in 'task': 's0002'"),
        ([], r"'y' lacks 4 of the 4"),
        (changed(1, unit_id="b"), r"'s0001' .* \('b', .* in 'y' and \('a', '', {}\) in 'x'"),
        (changed(1, stratum="odd"), r"'s0001' .* 'odd', .* in 'y'"),
        (changed(1, groups={"pair": "p"}), r"'s0001' .* {'pair': 'p'}\) in 'y'"),
        (changed(1, stats={"asked": 1.0}), r"'s0001' .* \['asked'\], others"),
    ],
)
def test_unpaired_runs_are_refused(other: list[Sample], said: str) -> None:
    with pytest.raises(PairingError, match=said):
        unit_sums("task", {"x": PLAIN, "y": other})


def test_nothing_to_compare_is_refused() -> None:
    for runs in ({}, {"x": []}, {"x": samples(np.ones(2), task="other")}):
        with pytest.raises(PairingError, match="no "):
            unit_sums("task", runs)


def test_a_group_across_units_is_refused() -> None:
    pairs = categories(np.ones((2, 2)))
    with pytest.raises(PairingError, match="pair 'p000' of 'paired' lies in the units"):
        unit_sums("paired", {"x": pairs}, "sample")


def test_an_unknown_unit_is_refused() -> None:
    with pytest.raises(PairingError, match="unit='image'; allowed are unit and sample"):
        unit_sums("task", {"x": PLAIN}, "image")
