"""Holm against statsmodels and by hand."""

import itertools

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from statsmodels.stats.multitest import multipletests

from vicoset.errors import StatisticsError
from vicoset.evaluate.statistics import holm


def test_adjusted_values_and_decisions_are_those_of_statsmodels() -> None:
    rng = np.random.default_rng(0)
    for count in (1, 2, 5, 12, 40):
        raw = rng.random(count) ** 4
        ours = holm(dict(enumerate(raw.tolist())))
        reject, theirs, *_ = multipletests(raw, alpha=0.05, method="holm")
        assert list(ours) == list(range(count))
        assert list(ours.values()) == pytest.approx(theirs.tolist(), abs=1e-12)
        assert [p <= 0.05 for p in ours.values()] == reject.tolist()


@given(st.lists(st.floats(0, 1) | st.sampled_from([0.01, 0.02]), min_size=1, max_size=6))
def test_it_is_the_closed_test_of_bonferroni(raw: list[float]) -> None:
    """A hypothesis falls when every intersection with it falls, each by its smallest p-value."""
    ours = holm(dict(enumerate(raw)))
    sets = [
        chosen
        for size in range(1, len(raw) + 1)
        for chosen in itertools.combinations(range(len(raw)), size)
    ]
    for key, adjusted in ours.items():
        closed = max(min(1, len(s) * min(raw[i] for i in s)) for s in sets if key in s)
        assert adjusted == pytest.approx(closed, abs=1e-12)


def test_by_hand() -> None:
    assert holm({"a": 0.01, "b": 0.04, "c": 0.03}) == pytest.approx(
        {"a": 0.03, "b": 0.06, "c": 0.06}
    )
    assert holm({}) == {}


def test_what_is_no_p_value_is_refused() -> None:
    for wrong in (-0.1, 1.1, float("nan")):
        with pytest.raises(StatisticsError, match="allowed is 0 to 1"):
            holm({"a": wrong})
