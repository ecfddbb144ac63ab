"""Cosines between tokens: all at once where they fit and are used, else one pass for each row."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import torch
from torch import Tensor

from vicoset.core import checks
from vicoset.methods.greedy import steady, unit

HELD = 1 << 28  # cosines that are held at once, 1 GiB in float32: those of 16,384 tokens
BLOCK = 1 << 9  # rows of a block: products of this size run at the speed of large ones
ROWS = 1 << 22  # elements of a temporary, 16 MiB in float32
WORTH = 16  # a row on its own costs this many times its share of the product, or more


class Cosines:
    """cos [N, N] between the rows of a matrix.

    A greedy method asks for one row a pick. Where it asks for many, all of them come cheaper from
    one product, of which symmetry saves half; where it asks for few, each is a pass of its own.
    """

    def __init__(self, rows: Tensor, wanted: int, *, rounded: bool = True) -> None:
        """Hold what is worth it.

        Args:
            rows: [N, d].
            wanted: how many rows of cosines will be asked for.
            rounded: to the lattice of ``steady``, for methods that compare them with each other.
        """
        self._unit = unit(rows)
        self._read = steady if rounded else lambda values: values
        tokens = len(rows)
        worth = tokens**2 <= HELD and WORTH * wanted >= tokens
        self.held: Tensor | None = _gram(self._unit, self._read) if worth else None

    def rows(self, tokens: Tensor) -> Tensor:
        """[T, N] the cosines of some tokens to all.

        Args:
            tokens: [T] indices.
        """
        if self.held is not None:
            return self.held.index_select(0, tokens)
        return self._read(_product(self._unit.index_select(0, tokens), self._unit))

    @property
    def dtype(self) -> torch.dtype:
        """Of the cosines."""
        return self._unit.dtype

    def between(self, some: Tensor, others: Tensor) -> Tensor:
        """[S, O] the cosines of some tokens to some others.

        Args:
            some: [S] indices.
            others: [O] indices.
        """
        if self.held is not None:
            return self.held[some[:, None], others]
        return self._read(_product(self._unit[some], self._unit[others]))

    def row(self, token: Tensor) -> Tensor:
        """[N] the cosines of one token, [1], to all."""
        return self.rows(token)[0]

    def pieces(self) -> Iterator[tuple[Tensor, Tensor]]:
        """All rows, in order, piece by piece: indices [T] and cosines [T, N]."""
        tokens = len(self._unit)
        everything = torch.arange(tokens, device=self._unit.device)
        for part in torch.split(everything, max(1, ROWS // max(tokens, 1))):
            yield part, self.rows(part)

    def to_the_nearest(self) -> Tensor:
        """[N] each token's largest cosine to another one; -inf for a single token."""
        found = []
        for part, cosines in self.pieces():
            found.append(cosines.scatter(1, part[:, None], -torch.inf).amax(1))
        return torch.cat(found)


@checks.full_precision
def _gram(rows: Tensor, read: Callable[[Tensor], Tensor]) -> Tensor:
    """[N, N] products of all pairs of rows, symmetric to the bit.

    Args:
        rows: [N, d], of length 1.
        read: is applied to every product.
    """
    tokens = len(rows)
    found = rows.new_empty(tokens, tokens)
    for start in range(0, tokens, BLOCK):
        end = min(start + BLOCK, tokens)
        below = found[start:, start:end]
        below.copy_(read(rows[start:] @ rows[start:end].mT))
        found[start:end, end:] = below[end - start :].mT
        block = found[start:end, start:end]
        block.triu_().add_(block.triu(1).mT)
    return found


@checks.full_precision
def _product(left: Tensor, right: Tensor) -> Tensor:
    return left @ right.mT
