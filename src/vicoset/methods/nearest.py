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


def _gaps(rows: Tensor, row: Tensor) -> Tensor:
    """[n] squared distances to one row, [1, d]; 0 between equal rows, in one pass over them."""
    if rows.device.type != "cpu" or rows.dtype not in (torch.float32, torch.float64):
        return (rows - row).square().sum(1)
    exact = "donot_use_mm_for_euclid_dist"  # products would leave a rest between equal rows
    return torch.cdist(rows, row, compute_mode=exact)[:, 0].square()


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
        gaps = _gaps(rows, rows.index_select(0, picks[-1])).nan_to_num(nan=0.0)
        away = torch.minimum(away, gaps).index_fill(0, picks[-1], -1.0)
        picks.append(away.argmax(0, keepdim=True))
    return torch.cat(picks)
