"""Answers that models give and that scorers trip over: thousands of them, the same in every run."""

from __future__ import annotations

import random
from collections.abc import Iterator

# One line for every trap: case, blanks, punctuation, articles, numbers, contractions, letters that
# are words, percent signs, zeros, other scripts, nothing at all.
EDGES = (
    *("", " ", "\n", ".", "?!", "yes", "Yes", "YES.", "yes.", " yes ", "no", "No", "No.", "nO\n"),
    *("Yes, there is", "There is no dog", "Not sure", "I think yes", "yes and no", "y", "n", "Y."),
    *("A", "B.", "(C)", "(D).", ":A", "b", "A and B", "A dog is in it", "The answer is C"),
    *("Answer: D", "the correct option is B", "E", "A.B", "A, because B is wrong", "a", "ABCD"),
    *("0", "0.0", "0%", "10", "10.0", "10.4", "10.51", "9.5", "-10", "+10", "1e1", "1,000", "$12"),
    *("12.5%", "12.5", "0.125", "12.5 %", "%", "%%", "nan", "inf", "infinity", "ten", "1_0"),
    *("red", " red", "red.", "Red", "re d", "t-shirt", "tshirt", "T-Shirt!", "the nokia", "Nokia"),
    *("a nokia", "nokia.", "nokia's", "isnt", "isn't", "wouldntve", "two nokias", "none", "None"),
    *("3.5", "1.5.2", "1,5", "a.b", "a . b", "it's 5 o'clock", "no?", "yes\tno", "naïve", "İ", "ß"),
    *("University of California", "university  of california", "Univ. of Cal", "Universit"),
    *("dakota", "the  dakota", "Failed to obtain answer via API", "apple", "banana and apple"),
    *(
        "nan",
        "pear plum",
        "the apple.",
        "옵션 B",
        "答案是C",
        "\x00",
        "red\x00",
        "👍",
        "\u0661\u0660",
    ),
)
_MARKS = (*".,:;!?'\"()[]{}-_/\\%$#@&*+=<>|~`^", " ", "\n", "\t", "  ")
_WORDS = (
    *("yes", "no", "not", "A", "B", "C", "D", "E", "the", "a", "an", "answer", "is", "option"),
    *("ten", "zero", "10", "0.5", "nokia", "dakota", "red", "apple", "isnt", "dont", "there"),
)


def made(golds: list[str], seed: int, count: int) -> list[str]:
    """The edge cases, then answers near the references and far from them."""
    dice = random.Random(seed)
    found = list(EDGES)
    source = _endless(golds, dice)
    while len(found) < count:
        found.append(next(source))
    dice.shuffle(found)
    return found


def _endless(golds: list[str], dice: random.Random) -> Iterator[str]:
    while True:
        text = dice.choice(golds) if dice.random() < 0.7 else dice.choice(_WORDS)
        for _ in range(dice.choice((0, 0, 1, 1, 2, 4))):
            text = _changed(text, dice)
        yield text


def _changed(text: str, dice: random.Random) -> str:
    at = dice.randint(0, len(text))
    kind = dice.randrange(7)
    if kind == 0:
        return text[:at] + dice.choice(_MARKS) + text[at:]
    if kind == 1:
        return text[:at] + text[at + 1 :]
    if kind == 2:
        return dice.choice((text.upper(), text.lower(), text.capitalize(), text.swapcase()))
    if kind == 3:
        return f"{dice.choice(_WORDS)} {text}"
    if kind == 4:
        return f"{text} {dice.choice(_WORDS)}"
    if kind == 5:
        return f"{dice.choice(_MARKS)}{text}{dice.choice(_MARKS)}"
    return text[:at] + chr(dice.choice((233, 223, 304, 0x4E2D, 0x661, 65, 98))) + text[at:]
