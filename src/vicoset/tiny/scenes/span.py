"""Where on the grid the content lies."""

from __future__ import annotations

from typing import NamedTuple


class Span(NamedTuple):
    """A square of cells."""

    top: int
    left: int
    size: int
