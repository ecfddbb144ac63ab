"""Nearest and farthest: the most similar of some rows, and a traversal from one to the next."""

from __future__ import annotations

import torch
from torch import Tensor

from vicoset.core import checks
from vicoset.methods.greedy import steady

ENTRIES = 1 << 24  # cosines that are held at a time, 64 MiB in float32


@checks.full_precision
def nearest(rows: Tensor, centres: Tensor) -> tuple[Tensor, Tensor]:
    """The largest cosine [n] of every row, and [n] whose it is; ties to the lower index.

    Args:
        rows: [n, d], of length 1.
        centres: [k, d], of length 1, at least one.
    """
    values, places = [], []
    for part in torch.split(rows, max(1, ENTRIES // len(centres))):
        found = steady(part @ centres.mT).max(1)
        values.append(found.values)
        places.append(found.indices)
    return torch.cat(values), torch.cat(places)


def outermost(rows: Tensor, first: Tensor, count: int) -> Tensor:
    """[count] different rows by farthest-first traversal in squared distance; ties to the lower.

    Args:
        rows: [n, d].
        first: [n] scores of the first pick.
        count: from 1 to n.
    """
    picks = [first.nan_to_num(nan=-1.0).argmax(0, keepdim=True)]
    away = torch.full_like(first, torch.inf)
    while len(picks) < count:
        gaps = (rows - rows.index_select(0, picks[-1])).square().sum(1).nan_to_num(nan=0.0)
        away = torch.minimum(away, gaps).index_fill(0, picks[-1], -1.0)
        picks.append(away.argmax(0, keepdim=True))
    return torch.cat(picks)
