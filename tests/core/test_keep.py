"""A budget by coverage, as a user writes it."""

import pytest

from vicoset.core.keep import Keep
from vicoset.errors import BudgetError


def test_limits_of_a_coverage():
    assert Keep(coverage=0.95).limits(100, 3) == (3, 100)
    assert Keep(coverage=0.95, min=16, max=0.5).limits(100, 3) == (16, 50)
    assert Keep(coverage=0.95, min=0.5, max=20).limits(100) == (20, 20)
    assert Keep(coverage=0.95, min=200).limits(100) == (100, 100)
    assert Keep(coverage=0.95, max=1).limits(100, 2) == (2, 2)
    assert Keep(tokens=7).limits(100) == (7, 7) and Keep(tokens=7).of(100) == 7


def test_a_coverage_reads_back():
    keep = Keep(coverage=0.95, min=16, max=0.5)
    assert Keep(**keep.to_json()) == keep == eval(repr(keep))
    assert str(keep) == "coverage 95% (16 to 50%)"
    assert str(Keep(coverage=0.9)) == "coverage 90%"
    assert str(Keep(coverage=1, max=8)) == "coverage 100% (1 to 8)"
    assert Keep(coverage=0.9).note(100) is None


def test_no_number_is_known_before_the_request():
    assert Keep(coverage=0.9, min=4, max=4).of(100) == 4
    with pytest.raises(BudgetError, match="between 1 and 100 of 100 tokens"):
        Keep(coverage=0.9).of(100)


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"coverage": 0.9, "tokens": 4}, "2 of them"),
        ({"coverage": 0.0}, "allowed are numbers in"),
        ({"coverage": 95}, r"coverage=95.0; allowed"),
        ({"coverage": "0.9"}, "allowed are numbers in"),
        ({"coverage": True}, "allowed are numbers in"),
        ({"tokens": 4, "min": 2}, "drop min and max"),
        ({"coverage": 0.9, "min": 8, "max": 4}, "allowed are min <= max"),
        ({"coverage": 0.9, "min": 0}, "allowed are counts from 1"),
        ({"coverage": 0.9, "max": 1.5}, "fractions in"),
    ],
)
def test_budgets_that_name_nothing_are_refused(given, words):
    with pytest.raises(BudgetError, match=words):
        Keep(**given)


@pytest.mark.parametrize(
    ("text", "keep"),
    [
        ("128", Keep(tokens=128)),
        ("10%", Keep(fraction=0.1)),
        (" 0.25 ", Keep(fraction=0.25)),
        ("coverage=0.95", Keep(coverage=0.95)),
        ("coverage=95%:min=16:max=256", Keep(coverage=0.95, min=16, max=256)),
        ("coverage=0.9, max=50%", Keep(coverage=0.9, max=0.5)),
        ("min=4:coverage=0.9", Keep(coverage=0.9, min=4)),
    ],
)
def test_a_budget_is_read_as_it_is_written(text, keep):
    assert Keep.read(text) == keep


@pytest.mark.parametrize(
    ("text", "fragment"),
    [
        ("", "budget ''"),
        ("many", "budget 'many'"),
        ("128:4", "budget '128:4'"),
        ("coverage=", "budget 'coverage='"),
        ("coverage=0.9:1", "coverage=0.95:min=16:max=256"),
        ("coverage=0.9:least=1", "budget"),
        ("tokens=4", "budget"),
        ("coverage=0.9:min=9:max=4", "min <= max"),
        ("coverage=2.5", "(0, 1]"),
        ("0", "tokens=0"),
        ("1.5", "keep=1.5"),
    ],
)
def test_what_is_no_budget_is_refused(text, fragment):
    with pytest.raises(BudgetError) as caught:
        Keep.read(text)
    assert fragment in str(caught.value)
