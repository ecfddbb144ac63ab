"""Answers that evaluators trip over, with what lmms-eval 0.7.3 says of them.

The verdicts are written down here, so that they hold where lmms-eval is not installed;
`make test-lmms` compares thousands of answers with its functions themselves.
"""

from typing import Any

import pytest

from vicoset.evaluate.scorers import anls, exact, options, vqa, yesno


@pytest.mark.parametrize(
    ("equal", "value"), [(0, 0.0), (1, 0.3), (2, 0.6), (3, 0.9), (4, 1.0), (10, 1.0)]
)
def test_people_who_agree(equal: int, value: float) -> None:
    others = [f"word{i}" for i in range(10 - equal)]
    assert vqa.agreement("nokia", ["nokia"] * equal + others) == pytest.approx(value, abs=1e-12)


@pytest.mark.parametrize(
    ("text", "normal"),
    [
        ("The Nokia.", "nokia"),
        ("two nokias", "2 nokias"),
        ("None", "0"),
        ("isnt", "isn't"),
        ("wouldn'tve", "wouldn't've"),
        ("wouldntve", "wouldntve"),  # the table knows one missing apostrophe, not two
        ("1,000", "1000"),
        ("1.5", "1.5"),
        ("nokia's", "nokia 's"),
        ("a\tan\nthe", ""),
        ("t-shirt", "t shirt"),
        ("", ""),
    ],
)
def test_normalised_as_evalai_does(text: str, normal: str) -> None:
    assert vqa.normalise(text) == normal


@pytest.mark.parametrize(
    ("answer", "gold", "right"),
    [
        ("10.5", "10", True),
        ("10.51", "10", False),
        ("9.5", "10", True),
        ("0", "0", True),
        ("0.0", "0", False),  # a gold of 0 is compared as text
        ("12.5%", "0.125", True),
        ("12.5", "12.5%", False),
        ("1,000", "1000", False),
        ("$12", "12", False),
        ("yes", "Yes", True),
        ("Yes.", "Yes", False),
        (" Yes", "Yes", False),  # nothing is stripped here; tasks strip before
        ("nan", "10", False),
        ("-10", "10", False),
    ],
)
def test_chartqa(answer: str, gold: str, right: bool) -> None:
    assert exact.relaxed(answer, gold) is right


@pytest.mark.parametrize(
    ("answer", "word"),
    [
        *(("Not sure", "no"), ("I think yes", "other"), ("Yes.", "yes"), ("y", "yes"), ("N", "no")),
        *(("yes and no", "yes"), ("a", "other"), ("", "other"), ("  No", "no"), ("nope", "no")),
    ],
)
def test_mme_looks_at_four_letters(answer: str, word: str) -> None:
    assert yesno.mme(answer) == word


@pytest.mark.parametrize(
    ("answer", "words"),
    [  # lmms, llava, vlmevalkit
        ("yes", ("yes", "yes", "yes")),
        ("Yes", ("yes", "yes", "yes")),
        ("yes.", ("yes.", "yes", "yes")),
        ("Yes, there is", ("yes, there is", "yes", "yes")),
        ("There is no dog", ("there is no dog", "no", "no")),
        ("A dog. No cat", ("a dog. no cat", "yes", "no")),
        ("yes and no", ("yes and no", "no", "other")),
        ("", ("", "yes", "other")),
    ],
)
def test_three_readings_of_pope(answer: str, words: tuple[str, ...]) -> None:
    assert tuple(parse(answer) for parse in yesno.POPE_PARSERS.values()) == words


def test_how_often_the_readings_differ() -> None:
    pairs = [("yes", "yes"), ("yes.", "yes"), ("A dog. No cat", "no"), ("no", "yes")]
    found = yesno.disagreement(pairs)
    assert found["correct"] == {"lmms": 1, "llava": 2, "vlmevalkit": 3}
    assert (found["answers"], found["verdict_differs"]) == (4, 2)
    assert found["reading_differs"] == {
        "lmms/llava": 2,
        "lmms/vlmevalkit": 2,
        "llava/vlmevalkit": 1,
    }


@pytest.mark.parametrize(
    ("answer", "value"),
    [
        ("abcd", 1.0),
        ("ABCD", 1.0),
        ("  ab  cd ", 1 - 1 / 9),  # blanks count in the length, not in the distance
        ("abxx", 0.5),  # exactly at the threshold: kept
        ("axxx", 0.0),
        ("abcdefgh", 0.5),
        ("", 0.0),
    ],
)
def test_anls(answer: str, value: float) -> None:
    assert anls.similarity(answer, ["abcd"]) == value


def test_anls_takes_the_best_reference_and_the_length_as_written() -> None:
    assert anls.similarity("abcd", ["zzzz", "abcx"]) == 0.75
    # one blank is normalised away before the distance and still counts in the length
    assert anls.similarity("ab  cx", ["ab cd"]) == pytest.approx(1 - 1 / 6)


@pytest.mark.parametrize(
    ("answer", "equal"),
    [("Red", True), ("red.", True), (" red", False), ("re d", False), ("r-e-d", True)],
)
def test_gqa_strips_nothing(answer: str, equal: bool) -> None:
    assert (exact.plain(answer) == exact.plain("red")) is equal


FRUIT = {"A": "apple", "B": "banana", "C": "pear", "D": "plum"}


@pytest.mark.parametrize(
    ("answer", "letter"),
    [
        ("B", "B"),
        ("(C).", "C"),
        ("The answer is D", "D"),
        ("a banana", "B"),
        ("apple and pear", ""),
        ("b", ""),  # a letter is a capital
        ("A dog runs over there", "A"),  # no word of its own, but the only sign there is
        ("A banana lies here", "B"),  # an article among more than three words
        ("", ""),
        ("Failed to obtain answer via API", "A"),
    ],
)
def test_mmbench_letters_before_texts(answer: str, letter: str) -> None:
    found = options.chosen(answer, FRUIT)
    assert found == letter


@pytest.mark.parametrize(
    ("answer", "word"),
    [("Yes.", "yes"), ("no", "no"), ("eyes", "yes"), ("", "no"), ("maybe", "no")],
)
def test_hallusionbench_by_rule(answer: str, word: str) -> None:
    assert yesno.hallusion(answer) == word


@pytest.mark.parametrize(
    ("answer", "word"),
    [("Yes, no", "yes"), ("No.", "no"), ("I know", "no"), ("maybe", "other"), ("", "other")],
)
def test_amber(answer: str, word: Any) -> None:
    assert yesno.amber(answer) == word
