"""Exact matches and relaxed numbers: GQA, ChartQA."""

from __future__ import annotations

import string

_NO_PUNCTUATION = str.maketrans("", "", string.punctuation)


def plain(text: str) -> str:
    """Lower case without punctuation; blanks stay, as in lmms-eval's ``exact_match``.

    Args:
        text: an answer.
    """
    # NumPy's strings, in which lmms-eval compares, keep the length of the text they were made from
    # and know no zeros at the end.
    return text.lower()[: len(text)].translate(_NO_PUNCTUATION).rstrip("\0")


def number(text: str) -> float | None:
    """The number that a text is; a percent sign at the end divides by 100.

    Args:
        text: an answer.
    """
    try:
        return float(text.rstrip("%")) / 100.0 if text.endswith("%") else float(text)
    except ValueError:
        return None


def relaxed(answer: str, gold: str, tolerance: float = 0.05) -> bool:
    """Within 5% of a number, else equal but for case (ChartQA, Masry et al., 2022).

    A gold of zero is compared as text, so "0.0" is not "0"; and "1,000", "$12" and "Yes." are no
    numbers and no equal texts. That is lmms-eval's ``relaxed_correctness``.

    Args:
        answer: of the model.
        gold: the reference.
        tolerance: of the gold's magnitude.
    """
    said, wanted = number(answer), number(gold)
    if said is not None and wanted:
        return abs(said - wanted) / abs(wanted) <= tolerance
    return answer.lower() == gold.lower()
