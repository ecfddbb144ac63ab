"""The budget rule against the oracle, and what it refuses."""

import math

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from tests import oracle
from tests.core.helpers import AGREE, refused
from vicoset.core.budget import realised_keep
from vicoset.errors import BudgetError

FRACTIONS = st.floats(0.0, 1.0, exclude_min=True)


@st.composite
def populations(draw):
    tokens = draw(st.one_of(st.integers(1, 40), st.integers(1, 200_000)))
    return tokens, draw(st.integers(1, min(tokens, 12)))


@given(st.one_of(st.integers(1, 300_000), FRACTIONS), populations())
@example(0.5, (5, 1))
@example(5e-324, (1, 1))
@AGREE
def test_budget_equals_the_oracle(keep, sizes):
    kept = realised_keep(keep, *sizes)
    assert type(kept) is int
    assert kept == oracle.realised_keep(keep, *sizes)
    assert sizes[1] <= kept <= sizes[0]


@given(st.integers(1, 64), st.integers(0, 6), st.integers(1, 4096))
@AGREE
def test_exact_fractions_round_half_up(numerator, power, tokens):
    """A dyadic fraction has an exact product, so integers alone say what half up is."""
    denominator = 2**power
    numerator = min(numerator, denominator)
    expected = max(1, (2 * numerator * tokens + denominator) // (2 * denominator))
    assert realised_keep(numerator / denominator, tokens) == expected


@pytest.mark.parametrize(
    ("keep", "tokens", "images", "expected"),
    [
        (0.5, 5, 1, 3),
        (0.5, 7, 1, 4),
        (0.25, 6, 1, 2),
        (0.25, 5, 1, 1),
        (1e-9, 576, 1, 1),
        (1.0, 576, 1, 576),
        (1, 576, 1, 1),
        (1, 576, 4, 4),
        (0.001, 576, 3, 3),
        (600, 576, 1, 576),
        (576, 576, 576, 576),
    ],
)
def test_budget_by_hand(keep, tokens, images, expected):
    assert realised_keep(keep, tokens, images) == expected


@pytest.mark.parametrize("keep", [0, -1, -576])
def test_a_count_below_one_is_refused(keep):
    with refused(BudgetError, f"keep={keep}", "counts from 1", "keep=1", "keep=576"):
        realised_keep(keep, 576)


@pytest.mark.parametrize("keep", [0.0, -0.0, -0.5, math.nan, math.inf, -math.inf])
def test_a_fraction_outside_its_range_is_refused(keep):
    with refused(BudgetError, f"keep={keep}", "(0, 1]", "keep=0.1"):
        realised_keep(keep, 576)


@pytest.mark.parametrize(("keep", "count"), [(1.5, 1), (128.0, 128), (1.0000001, 1)])
def test_a_float_count_is_refused_and_named_as_an_int(keep, count):
    with refused(BudgetError, f"keep={keep}", "(0, 1]", f"the int keep={count}"):
        realised_keep(keep, 576)


@pytest.mark.parametrize("keep", [True, False, None, "128", (3,), np.int64(3), np.float32(0.5)])
def test_other_types_are_refused(keep):
    with refused(BudgetError, f"keep={keep!r}", type(keep).__name__, "keep=128", "keep=0.1"):
        realised_keep(keep, 576)


@pytest.mark.parametrize(("tokens", "images"), [(0, 0), (0, 1), (5, 0), (5, 6), (-1, 1), (5, -1)])
def test_a_population_without_a_budget_is_refused(tokens, images):
    with refused(BudgetError, f"{tokens} visual tokens", f"{images} images", "1 <= images"):
        realised_keep(1, tokens, images)
