"""Which prompt rows read the image, and how much each of them weighs."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from vicoset.errors import SettingError, ShapeError


class Queries(NamedTuple):
    """The prompt rows that are read.

    Attributes:
        positions: [T] sequence indices, ascending, the prompt-terminal one last.
        potential: text rows that can see the image, before ``max_queries`` was applied.
    """

    positions: Tensor
    potential: int

    @property
    def bounded(self) -> bool:
        """Whether ``max_queries`` left rows out."""
        return len(self.positions) < self.potential


def evenly_spaced(count: int, limit: int, device: torch.device | None = None) -> Tensor:
    """At most ``limit`` of the indices 0..count-1, at the centres of equal cells."""
    if count <= limit:
        return torch.arange(count, device=device)
    return (2 * torch.arange(limit, device=device) + 1) * count // max(2 * limit, 1)


def query_positions(text: Tensor, visual: Tensor, max_queries: int = 128) -> Queries:
    """The text rows after the first visual token; the terminal one plus evenly spaced others.

    Args:
        text: [S] sequence indices of text tokens, ascending, without padding and without the
            image's structural tokens.
        visual: [N] sequence indices of visual tokens.
        max_queries: most rows to return.
    """
    if max_queries < 1:
        raise SettingError(f"max_queries={max_queries}; allowed are counts from 1 on.")
    rows = text[text > visual.min()]
    potential = len(rows)
    if potential == 0:
        raise ShapeError(
            "no text token follows the image, so no query reads it; at least one is needed. "
            "Put the question behind the image, or pass the last position as text."
        )
    if potential > max_queries:
        rest = rows[:-1][evenly_spaced(potential - 1, max_queries - 1, rows.device)]
        rows = torch.cat([rest, rows[-1:]])
    return Queries(rows, potential)


def query_weights(
    queries: int,
    terminal: float = 2.0,
    dtype: torch.dtype = torch.float32,
    device: torch.device | None = None,
) -> Tensor:
    """nu [T]: 1 for each query, ``terminal`` for the last one, normalised to sum 1."""
    if queries < 1:
        raise ShapeError(f"{queries} queries; at least the prompt-terminal one is needed.")
    weights = torch.ones(queries, dtype=dtype, device=device)
    weights[-1] = terminal
    return weights.div_(weights.sum())
