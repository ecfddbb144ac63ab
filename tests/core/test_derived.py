"""Budgets that follow from the prompt and the final K: published counts come out, by hand."""

from __future__ import annotations

from fractions import Fraction
from math import floor

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.core.helpers import refused
from vicoset.core.derived import FINAL, Derived
from vicoset.core.keep import Keep
from vicoset.errors import BudgetError


def count(derived: Derived, keep: int, tokens: int, images: int = 1) -> int:
    return derived.of(Keep(tokens=keep), tokens, images).of(tokens, images)


def test_powers_are_the_halvings_of_a_pyramid():
    powers = [Derived(power=i / 3) for i in (1, 2, 3)]
    assert [count(power, 72, 576) for power in powers] == [288, 144, 72]
    assert [count(power, 162, 1296) for power in powers] == [648, 324, 162]
    assert [count(power, 50, 100) for power in powers] == [79, 62, 50]  # 79.37, 62.996


def test_shares_give_published_counts_back():
    for kept in (303, 110, 36, 1, 576):
        assert count(Derived(share=kept / 576), 5, 576) == kept
    assert count(Derived(share=303 / 576), 5, 1296) == 682  # 681.75
    assert not Derived(share=0.5).reads_keep and FINAL.reads_keep


@given(st.data())
def test_lines_go_through_their_points(data):
    tokens = data.draw(st.integers(2, 300))
    xs = sorted(data.draw(st.sets(st.integers(1, tokens - 1), max_size=4)))
    ys = [data.draw(st.integers(x, tokens)) for x in xs]
    curve = Derived(through=tuple((x / tokens, y / tokens) for x, y in zip(xs, ys, strict=True)))
    for x, y in zip(xs, ys, strict=True):
        assert count(curve, x, tokens) == y
    keep = data.draw(st.integers(1, tokens))
    points = [(0, 0), *zip(xs, ys, strict=True), (tokens, tokens)]
    right = next(i for i, (x, _) in enumerate(points) if keep <= x)
    (x0, y0), (x1, y1) = points[right - 1], points[right]
    exact = y0 + Fraction((y1 - y0) * (keep - x0), x1 - x0)
    assert count(curve, keep, tokens) == max(keep, floor(exact + Fraction(1, 2)))


def test_the_final_budget_is_one_of_the_prompt():
    assert FINAL.of(Keep(fraction=0.1), 200) == Keep(tokens=20)
    assert FINAL.of(Keep(tokens=2), 200, images=3) == Keep(tokens=3)
    assert FINAL.of(Keep(tokens=900), 200) == Keep(tokens=200)


@pytest.mark.parametrize(
    "given_",
    [
        {},
        {"share": 0.5, "power": 0.5},
        {"share": 0.0},
        {"power": 1.5},
        {"through": ((0.5, 0.4),)},
        {"through": ((0.5, 0.6), (0.5, 0.7))},
        {"through": ((0.0, 0.6),)},
    ],
)
def test_what_is_no_budget_is_refused(given_):
    with refused(BudgetError, "exactly one of share", "Derived(power=0.5)"):
        Derived(**given_)


def test_a_coverage_is_not_known_before():
    with refused(BudgetError, "follow from the final K", "Keep(tokens=128)"):
        FINAL.of(Keep(coverage=0.9), 100)
