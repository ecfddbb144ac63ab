"""The option that an answer names: MMBench (Liu et al., 2023), without a language model as judge.

Two rules as in lmms-eval's evaluator, letter before text, and for what they leave open its offline
extraction by ranked patterns.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

_LETTERS = "ABCDE"
_UNAVAILABLE = "Failed to obtain answer via API"
# What may stand around a letter, in the order in which the forms are tried.
_AROUND = (
    *(("", after) for after in (".", ",", ":", ")", ").")),
    *(("(", after) for after in (")", ").")),
    *((":", after) for after in ("", ",", ".", ")", ").")),
)
_PHRASES = (
    *(f"{lead}answer is" for lead in ("", "the ", "correct ", "the correct ")),
    *(f"{lead}{what} is" for what in ("best answer", "correct option") for lead in ("the ", "")),
    *(f"{lead}{what} is" for what in ("best option", "correct choice") for lead in ("the ", "")),
    *("the choice is", "choice is", "my answer is", "my choice is"),
    *("i choose", "i select", "i pick"),
    *("옵션", "정답은", "답은", "답:", "答案是", "答案为", "选", "答えは"),
)
# Forms of a letter in running text, the more telling the higher.
_FORMS = (("({})", 6), ("{}.", 5), ("{}:", 4), ("{})", 3), ("{} ", 2))
_START, _END, _PHRASE, _ANYWHERE = 10, 9, 7, 0


def by_letter(answer: str) -> str:
    """The letter that an answer names as a word of its own; empty if none or several.

    Letters are capital. An "A" among more than three words is taken for an article.

    Args:
        answer: of the model.
    """
    if _UNAVAILABLE in answer:
        return ""
    words = answer.split()
    plain = [letter for letter in _LETTERS if letter in words]
    if len(plain) == 1 and not ("A" in words and len(words) > 3):
        return plain[0]
    for before, after in _AROUND:
        found = [letter for letter in _LETTERS if f"{before}{letter}{after}" in words]
        if len(found) == 1:
            return found[0]
    return ""


def by_text(answer: str, options: Mapping[str, str]) -> str:
    """The letter of the one option whose text the answer contains; empty if none or several.

    Args:
        answer: of the model.
        options: letter to text.
    """
    said = answer.lower()
    found = [letter for letter, text in options.items() if text.lower() in said]
    return found[0] if len(found) == 1 else ""


def by_pattern(answer: str, letters: Sequence[str]) -> str:
    """The most tellingly placed letter of a free answer, the last of the most telling; or empty.

    Args:
        answer: of the model.
        letters: those of the options.
    """
    if not answer.strip():
        return ""
    bare = answer.strip()
    for mark in ",.!?;:'\"":
        bare = bare.strip(mark)
    text = f" {bare} "
    found: list[tuple[int, int, str]] = []
    for form, rank in _FORMS:
        found += [(rank, text.rfind(form.format(c)), c) for c in letters if form.format(c) in text]
    folded = text.lower()
    for phrase in _PHRASES:
        place = folded.find(phrase)
        if place >= 0:
            after = place + len(phrase)
            found += [(_PHRASE, text.find(c, after), c) for c in letters if c in text[after:]]
    core = text.strip()
    first, last = core[:1], core[-1:]
    found += [(_START, 0, first)] if first in letters and not core[1:2].isalpha() else []
    found += [(_END, len(text) - 1, last)] if last in letters and not core[-2:-1].isalpha() else []
    found = found or [(_ANYWHERE, text.rfind(c), c) for c in letters if c in text]
    # Of equals the first: max() keeps it, as a stable descending sort would put it in front.
    return max(found, key=lambda entry: entry[:2])[2] if found else ""


def chosen(answer: str, options: Mapping[str, str]) -> str:
    """The option an answer names: by letter, else by text, else by pattern; empty if none.

    Args:
        answer: of the model.
        options: letter to text; the evaluator takes the word "nan", by which the public files mark
            a missing option, for a text like any other.
    """
    return by_letter(answer) or by_text(answer, options) or by_pattern(answer, sorted(options))
