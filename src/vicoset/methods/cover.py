"""Facility location, greedily and exactly: gains are whole numbers, so a correction costs nothing.

The greedy picks the column with the largest gain ``sum over rows of (offer - best so far)+``. Most
picks raise the best of few rows, so gains are corrected for these rows alone instead of summed
anew. In floats the corrections would pile up rounding and break ties by it; offers are therefore
rounded once, to multiples of a small unit, and everything after that is exact.
"""

from __future__ import annotations

from typing import Protocol

import torch
from torch import Tensor

from vicoset.methods.cosines import ROWS, Cosines
from vicoset.methods.greedy import Picks

PEAK = 1 << 30  # units of a whole share, where offers are held as int32
MOST = 1 << 60  # units of everything that is to be covered: gains are int64


class Offers(Protocol):
    """What N columns offer to some rows, in units."""

    def rows(self, rows: Tensor) -> Tensor:
        """[R, N] the offers to some rows, [R]."""

    def column(self, column: Tensor) -> Tensor:
        """[M] what one column, [1], offers to all rows."""


class Table:
    """Offers that are a matrix [M, N]."""

    def __init__(self, table: Tensor) -> None:
        self._table = table

    def rows(self, rows: Tensor) -> Tensor:
        """[R, N] the offers to some rows, [R]."""
        return self._table.index_select(0, rows)

    def column(self, column: Tensor) -> Tensor:
        """[M] what one column, [1], offers to all rows."""
        return self._table.index_select(1, column)[:, 0]


class Similar:
    """``unit * softmax_v(cos(u, v) / temperature)``: what tokens offer to each other.

    Held as whole numbers in the memory of the cosines where these are held; otherwise made of
    cosines whenever asked for, one pass over the features for a handful of rows, and exact up to
    the last bits of a product.
    """

    def __init__(self, features: Tensor, temperature: float, units: float) -> None:
        """Hold what fits.

        Args:
            features: [N, dz].
            temperature: tau.
            units: of a whole share, at most ``PEAK``.
        """
        self._cosines = Cosines(features, len(features))
        self._temperature, self._units = temperature, units
        spread = [(cosines / temperature).logsumexp(1) for _, cosines in self._cosines.pieces()]
        self._spread = torch.cat(spread)
        self._held: Tensor | None = None
        if self._cosines.held is not None:
            self._held = self._cosines.held.view(torch.int32)
            for part, cosines in self._cosines.pieces():
                self._held.index_copy_(0, part, self._offers(cosines, self._spread[part, None]))
            self._cosines.held = None

    def rows(self, rows: Tensor) -> Tensor:
        """[R, N] the offers to some rows, [R]."""
        if self._held is not None:
            return self._held.index_select(0, rows)
        return self._offers(self._cosines.rows(rows), self._spread[rows, None])

    def column(self, column: Tensor) -> Tensor:
        """[M] what one column, [1], offers to all rows."""
        if self._held is not None:
            return self._held.index_select(1, column)[:, 0]
        return self._offers(self._cosines.row(column), self._spread)

    def _offers(self, cosines: Tensor, spread: Tensor) -> Tensor:
        shares = (cosines / self._temperature).sub_(spread).exp_()
        return shares.mul_(self._units).round_().to(torch.int32)


class Covering:
    """Gains of all columns over one family of rows.

    Attributes:
        gains: [N].
        best: [M] what the picks offer to every row; None before the first.
    """

    def __init__(self, offers: Offers, rows: int, columns: int, device: torch.device) -> None:
        self._offers = offers
        self._step = max(1, ROWS // max(1, columns))
        everything = torch.arange(rows, device=device)
        self.gains = torch.zeros(columns, dtype=torch.int64, device=device)
        for part in torch.split(everything, self._step):
            self.gains += offers.rows(part).sum(0, dtype=torch.int64)
        self.best: Tensor | None = None

    def enter(self, column: Tensor) -> None:
        """Correct the gains for one more pick, [1]; the rows that it raises are read back."""
        offered = self._offers.column(column)
        before = torch.zeros_like(offered) if self.best is None else self.best
        for rows in torch.split((offered > before).nonzero()[:, 0], self._step):
            old, new = before[rows, None], offered[rows, None]
            lost = self._offers.rows(rows).clamp(min=old, max=new)
            self.gains -= lost.sub_(old).sum(0, dtype=torch.int64)
        self.best = torch.maximum(before, offered)


def cover(picks: Picks, families: list[Covering]) -> None:
    """Pick greedily until nothing is left to pick; ties go to the lower index.

    Args:
        picks: of the scene.
        families: of rows, at least one.
    """
    while picks.left:
        gains = torch.stack([family.gains for family in families]).sum(0)
        column = picks.take(gains)
        for family in families:
            family.enter(column)
