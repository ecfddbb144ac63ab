"""Blanks and case are forgiven, nothing else."""

import pytest

from vicoset.tiny import bench


@pytest.mark.parametrize(
    ("raw", "answer"),
    [
        ("407", "407"),
        ("4 0 7", "407"),
        (" 4 0 7\n", "407"),
        ("0 4", "04"),
        ("Yes", "yes"),
        ("Q", "q"),
        ("y\te\ns", "yes"),
    ],
)
def test_right(raw: str, answer: str) -> None:
    assert bench.correct(raw, answer)


@pytest.mark.parametrize(
    ("raw", "answer"),
    [
        ("4", "04"),
        ("4 0 7 0", "407"),
        ("704", "407"),
        ("yes.", "yes"),
        ("yes no", "yes"),
        ("", "no"),
        ("4O7", "407"),
    ],
)
def test_wrong(raw: str, answer: str) -> None:
    assert not bench.correct(raw, answer)


def test_normalised() -> None:
    assert bench.normalised("  A b\n C ") == "abc"
