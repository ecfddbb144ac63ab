"""Statistics of a resampled set that are no function of sums: AUROC and quantiles."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray

from vicoset.audit.population import concordance
from vicoset.errors import StatisticsError
from vicoset.evaluate.statistics.bootstrap import Floats, UnitSums
from vicoset.evaluate.statistics.draws import Draws


class Column(NamedTuple):
    """What is ranked.

    Attributes:
        values: [n] of the samples that count.
        events: [n] for AUROC; None for a quantile.
        chosen: [samples] which of all samples count.
        share: of the quantile.
    """

    values: Floats
    events: NDArray[np.bool_] | None
    chosen: NDArray[np.bool_]
    share: float = 0.5


def auroc(weights: Floats, scores: Floats, events: NDArray[np.bool_]) -> Floats:
    """P(score of an event > score of another), ties as halves, in every replicate, [b].

    NaN where a replicate has no event, or nothing else.

    Args:
        weights: [b, n] how often each sample is in the replicate.
        scores: [n].
        events: [n].
    """
    wins = concordance(torch.from_numpy(scores), torch.from_numpy(events)).numpy()
    happened, not_happened = weights[:, events], weights[:, ~events]
    pairs = happened.sum(1) * not_happened.sum(1)
    won = ((happened @ wins) * not_happened).sum(1)
    found = np.full(len(weights), np.nan)
    np.divide(won, pairs, out=found, where=pairs > 0)
    return found


def quantile(weights: Floats, values: Floats, share: float) -> Floats:
    """A quantile in every replicate, between neighbours as NumPy's default has it, [b].

    Args:
        weights: [b, n] how often each sample is in the replicate; NaN where none is.
        values: [n].
        share: in [0, 1].
    """
    if not len(values):
        return np.full(len(weights), np.nan)
    order = np.argsort(values, kind="stable")
    ranked, reach = values[order], weights[:, order].cumsum(1)
    place = share * (reach[:, -1] - 1)
    below = np.floor(place + 1e-9)
    ends = [ranked[(reach > at[:, None] + 0.5).argmax(1)] for at in (below, below + 1)]
    low, high = ends[0], np.where(below + 1 < reach[:, -1], ends[1], ends[0])
    found: Floats = low + (high - low) * np.clip(place - below, 0.0, 1.0)
    return np.where(reach[:, -1] > 0, found, np.nan)


def drawn(
    sums: UnitSums,
    units: Sequence[int],
    columns: Mapping[str, Column],
    replicates: int,
    seed: int,
) -> Draws:
    """A column per name, in the same replicates as every score of the task.

    Args:
        sums: of the task, whose units are drawn.
        units: [n] the unit of every sample.
        columns: name -> what is ranked.
        replicates: B.
        seed: of the draws.
    """
    if not columns:
        raise StatisticsError(f"no columns of {sums.task!r} came; at least one is needed.")
    place = np.asarray(units, np.intp)
    found = np.empty((replicates, len(columns)))
    once = np.ones((1, len(place)))
    for rows, counts in sums.drawn(replicates, seed):
        weights = counts[:, place]
        for column, one in enumerate(columns.values()):
            found[rows, column] = _of(weights, one)
    value = np.array([_of(once, one)[0] for one in columns.values()])
    return Draws(tuple(columns), value, found)


def _of(weights: Floats, one: Column) -> Floats:
    own = weights[:, one.chosen]
    if one.events is None:
        return quantile(own, one.values, one.share)
    return auroc(own, one.values, one.events)
