"""Average normalised Levenshtein similarity (Biten et al., 2019): DocVQA."""

from __future__ import annotations

from collections.abc import Sequence


def distance(one: str, other: str) -> int:
    """Fewest insertions, deletions and replacements that turn one text into the other.

    Args:
        one: a text.
        other: a text.
    """
    if len(one) < len(other):
        one, other = other, one
    row = list(range(len(other) + 1))
    for i, mine in enumerate(one, 1):
        corner, row[0] = row[0], i
        for j, theirs in enumerate(other, 1):
            cost = corner if mine == theirs else 1 + min(corner, row[j], row[j - 1])
            corner, row[j] = row[j], cost
    return row[-1]


def similarity(answer: str, references: Sequence[str], threshold: float = 0.5) -> float:
    """The best similarity over the references; 0 below the threshold, kept at it.

    As lmms-eval's ``anls``: the distance is between normalised texts, the length that divides it is
    that of the texts as they came.

    Args:
        answer: of the model.
        references: at least one.
        threshold: below which an answer counts as wrong.
    """
    said = _folded(answer)
    shares = []
    for reference in references:
        length = max(len(reference.upper()), len(answer.upper()))
        shares.append(distance(_folded(reference), said) / length if length else 0.0)
    best = 1 - min(shares)
    return best if best >= threshold else 0.0


def _folded(text: str) -> str:
    return " ".join(text.strip().lower().split())
