"""The smallest K on the solver's path, against trying every K."""

import pytest
import torch
from hypothesis import given
from hypothesis import settings as profile
from hypothesis import strategies as st

from vicoset.core.coverage import ratio
from vicoset.core.reach import smallest_support
from vicoset.core.support import select_support
from vicoset.errors import BudgetError


def clients(seed, rows, tokens, sharp=3.0):
    """[M, N] non-negative, some rows zero."""
    torch.manual_seed(seed)
    matrix = (torch.randn(rows, tokens) * sharp).softmax(1)
    return matrix * (torch.rand(rows, 1) > 0.1)


def by_trying(matrix, target, low, high, **options):
    total = matrix.amax(1).sum()
    for keep in range(low, high + 1):
        support = select_support(matrix, keep, **options)
        if float(ratio(support.value, total)) >= target:
            return support, True
    return support, False


@given(
    seed=st.integers(0, 10_000),
    tokens=st.integers(4, 40),
    batch=st.sampled_from([1, 3, 16]),
    images=st.integers(1, 3),
    target=st.floats(0.05, 1.0),
    ends=st.tuples(st.floats(0, 1), st.floats(0, 1)),
)
@profile(max_examples=120)
def test_it_is_the_first_k_that_reaches(seed, tokens, batch, images, target, ends):
    matrix = clients(seed, 30, tokens)
    ids = torch.arange(tokens) * images // tokens
    low, high = sorted(images + int(end * (tokens - images)) for end in ends)
    options = {"image_ids": ids, "images": images, "batch": batch}
    found, reached = smallest_support(matrix, target, low, high, **options)
    expected, possible = by_trying(matrix, target, low, high, **options)
    assert reached == possible
    assert torch.equal(found.indices, expected.indices)
    assert torch.equal(found.progress, expected.progress)
    assert float(found.certificate) == float(expected.certificate)


@given(seed=st.integers(0, 10_000), batch=st.integers(1, 9), images=st.integers(1, 3))
@profile(max_examples=40)
def test_supports_of_ascending_budgets_are_nested(seed, batch, images):
    """What the bisection rests on."""
    matrix = clients(seed, 25, 24)
    ids = torch.arange(24) * images // 24
    before, value = set(), 0.0
    for keep in range(images, 25):
        support = select_support(matrix, keep, ids, images, batch)
        now = set(support.indices.tolist())
        assert before <= now and float(support.value) >= value
        before, value = now, float(support.value)


def test_a_matrix_large_enough_for_the_compiled_loops():
    matrix = clients(3, 1100, 1000, 1.0)
    total = matrix.amax(1).sum()
    found, reached = smallest_support(matrix, 0.5, 1, 1000)
    keep = len(found.indices)
    assert reached and keep > 16
    assert float(ratio(select_support(matrix, keep).value, total)) >= 0.5
    assert float(ratio(select_support(matrix, keep - 1).value, total)) < 0.5


def test_the_largest_k_is_returned_when_nothing_reaches():
    matrix = clients(0, 30, 30)
    found, reached = smallest_support(matrix, 1.0, 2, 5)
    assert not reached and len(found.indices) == 5
    assert torch.equal(found.indices, select_support(matrix, 5).indices)


@pytest.mark.parametrize(("target", "low", "high"), [(0.0, 1, 2), (1.1, 1, 2), (0.5, 3, 2)])
def test_targets_that_mean_nothing_are_refused(target, low, high):
    with pytest.raises(BudgetError, match="allowed are coverages"):
        smallest_support(clients(0, 5, 5), target, low, high)
