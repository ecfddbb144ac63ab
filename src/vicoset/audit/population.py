"""Diagnostics of many requests: harmful changes, how VIE orders them, what goes together."""

from __future__ import annotations

from collections.abc import Hashable, Sequence

import torch
from torch import Tensor

from vicoset.errors import ShapeError


def harmful(full_correct: bool, full_answer: str, compact_answer: str) -> bool:
    """h_x: Full was right and compression changed the normalised answer (eq:cond-harmful).

    Args:
        full_correct: whether Full's answer is right.
        full_answer: Full's, as the task's scorer normalises it.
        compact_answer: the compact run's, normalised the same way.
    """
    return full_correct and full_answer != compact_answer


def auroc(scores: Sequence[float], events: Sequence[bool]) -> float | None:
    """P(score of an event > score of another) with ties as halves; None without one of the two.

    Args:
        scores: such as VIE, of Full-correct requests.
        events: such as harmful changes.
    """
    _same_length(len(scores), len(events))
    wins = concordance(torch.tensor(scores), torch.tensor(events))
    happened = torch.tensor(events, dtype=torch.bool)
    pairs = int(happened.sum()) * int((~happened).sum())
    return float(wins.sum()) / pairs if pairs else None


def concordance(scores: Tensor, events: Tensor) -> Tensor:
    """[E, R]: 1 where an event's score is above another's, 1/2 where they tie, else 0.

    Args:
        scores: [n].
        events: [n] bool, E of them true and R not.
    """
    events = events.bool()
    higher, lower = scores.double()[events][:, None], scores.double()[~events][None, :]
    return (higher > lower).double() + (higher == lower).double() / 2


def grouped_means(values: Sequence[float], groups: Sequence[Hashable]) -> list[float]:
    """The mean of every group, in the order in which groups first come.

    Args:
        values: of the operating points.
        groups: the question that each belongs to.
    """
    _same_length(len(values), len(groups))
    found: dict[Hashable, list[float]] = {}
    for value, group in zip(values, groups, strict=True):
        found.setdefault(group, []).append(value)
    return [sum(own) / len(own) for own in found.values()]


def correlation(
    left: Sequence[float], right: Sequence[float], groups: Sequence[Hashable] | None = None
) -> float | None:
    """Pearson's r; None where it is not defined.

    Operating points of one question are no independent observations: with ``groups`` a question
    counts once, by the mean of its points.

    Args:
        left: such as the centred distortion of candidate logits.
        right: such as VIE.
        groups: the question of every point.
    """
    _same_length(len(left), len(right))
    if groups is not None:
        left, right = grouped_means(left, groups), grouped_means(right, groups)
    x, y = (torch.tensor(list(side), dtype=torch.float64) for side in (left, right))
    if len(x) < 2:
        return None
    x, y = x - x.mean(), y - y.mean()
    size = torch.linalg.vector_norm(x) * torch.linalg.vector_norm(y)
    return float(x @ y / size) if float(size) > 0 else None


def _same_length(one: int, other: int) -> None:
    if one != other:
        raise ShapeError(
            f"{one} values came with {other} labels; allowed is one label for every value."
        )
