"""Where on a picture the answer stands: the pixel boxes of the marks that a question needs."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from vicoset.tiny.draw import atlas
from vicoset.tiny.scenes.scene import UNITS, Blob, Glyph, Panel, Scene


class Box(NamedTuple):
    """A rectangle of pixels, ends excluded."""

    top: int
    left: int
    bottom: int
    right: int

    def cell(self, size: int) -> tuple[int, int]:
        """Row and column of the cell that holds the box's centre, and with it most of the box.

        Args:
            size: pixels per cell side.
        """
        return (self.top + self.bottom) // 2 // size, (self.left + self.right) // 2 // size


def evidence_boxes(scene: Scene, cells: tuple[tuple[int, int], ...], size: int) -> tuple[Box, ...]:
    """The box of every cell that shows a part of the answer.

    A character or a shape has the smallest box around its ink, which may reach a few pixels into
    the neighbours. The top of a bar has the bar's part in the top's cell.

    Args:
        scene: what is drawn.
        cells: (row, column) each, of a question.
        size: pixels per cell side.
    """
    extent = scene.side * size
    stamps = {(m.row, m.column): m for m in scene.marks if isinstance(m, (Glyph, Blob))}
    tops = {_top(m): m for m in scene.marks if isinstance(m, Panel) and is_bar(m)}
    found = []
    for cell in cells:
        box = _ink(stamps[cell], size) if cell in stamps else _within(tops[cell], cell, size)
        low = (max(box.top, 0), max(box.left, 0))
        found.append(Box(*low, min(box.bottom, extent), min(box.right, extent)))
    return tuple(found)


def _ink(mark: Glyph | Blob, size: int) -> Box:
    """Around the ink that a stamp leaves."""
    if isinstance(mark, Glyph):
        ink, inset = atlas.glyph(size, mark.character, mark.font, mark.size), 0
    else:
        ink = atlas.shape(mark.shape, max(mark.size * size // UNITS, 4))
        inset = (size - len(ink)) // 2
    rows, columns = np.flatnonzero(ink.any(1)), np.flatnonzero(ink.any(0))
    top = mark.row * size + inset + mark.down * size // UNITS
    left = mark.column * size + inset + mark.across * size // UNITS
    ends = top + int(rows[-1]) + 1, left + int(columns[-1]) + 1
    return Box(top + int(rows[0]), left + int(columns[0]), *ends)


def is_bar(panel: Panel) -> bool:
    """A bar begins in the middle of a cell and is narrower than one; no other panel is both."""
    top, left, bottom, right = panel.edges
    narrow = left // UNITS == (right - 1) // UNITS
    return not panel.tint and narrow and top % UNITS == UNITS // 2 and bottom - top >= UNITS


def _top(bar: Panel) -> tuple[int, int]:
    return bar.edges[0] // UNITS, bar.edges[1] // UNITS


def _within(bar: Panel, cell: tuple[int, int], size: int) -> Box:
    """The part of a bar that lies in a cell."""
    top, left, _, right = (edge * size // UNITS for edge in bar.edges)
    return Box(top, left, (cell[0] + 1) * size, right)
