"""Scenes as pictures."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from vicoset.tiny.draw import atlas
from vicoset.tiny.draw.background import paint
from vicoset.tiny.scenes.scene import UNITS, Blob, Glyph, Panel, Scene

Page = NDArray[np.int16]


def draw(scene: Scene, cell: int) -> NDArray[np.uint8]:
    """The picture [side * cell, side * cell, 3] of a scene.

    Args:
        scene: what to draw, in cells.
        cell: pixels per cell side, one of ``atlas.CELLS``.
    """
    page = paint(scene.paper, scene.side * cell)
    for mark in scene.marks:
        if isinstance(mark, Panel):
            _panel(page, mark, cell)
        elif isinstance(mark, Glyph):
            ink = atlas.glyph(cell, mark.character, mark.font, mark.size)
            _stamp(page, ink, mark.row * cell, mark.column * cell, mark, cell)
        else:
            _blob(page, mark, cell)
    return page.clip(0, 255).astype(np.uint8)


def _panel(page: Page, panel: Panel, cell: int) -> None:
    """A rectangle that tints or covers what lies under it, its edges in units of a cell."""
    top, left, bottom, right = (edge * cell // UNITS for edge in panel.edges)
    area = page[max(top, 0) : bottom, max(left, 0) : right]
    if panel.tint:
        area += np.array(panel.colour, np.int16)
    else:  # an eighth of the paper shines through, so that no area is flat
        area >>= 3
        area += np.array(panel.colour, np.int16)
        area -= np.int16(16)


def _blob(page: Page, blob: Blob, cell: int) -> None:
    side = max(blob.size * cell // UNITS, 4)
    mask = atlas.shape(blob.shape, side)
    inset = (cell - side) // 2
    _stamp(page, mask, blob.row * cell + inset, blob.column * cell + inset, blob, cell)


def _stamp(
    page: Page, ink: NDArray[np.uint8], top: int, left: int, mark: Glyph | Blob, cell: int
) -> None:
    """Lay a colour through a mask, cut off at the page's edges."""
    top += mark.down * cell // UNITS
    left += mark.across * cell // UNITS
    above, before = max(-top, 0), max(-left, 0)
    area = page[top + above : top + len(ink), left + before : left + ink.shape[1]]
    cover = ink[above : above + len(area), before : before + area.shape[1], None].astype(np.int32)
    if area.size:
        area += ((np.array(mark.colour, np.int32) - area) * cover // 255).astype(np.int16)
