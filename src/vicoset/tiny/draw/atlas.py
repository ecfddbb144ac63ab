"""The shipped bitmaps: what a character and a shape look like."""

from __future__ import annotations

import functools
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

PATH = Path(__file__).with_name("atlas.npz")
CELLS = (28, 14)  # pixels per cell side: of the 1,008-pixel pictures and of the 336-pixel ones
FONTS = 4
LETTERS = "ABCDEFGHJKLMNPQRSTUVWXYZ"  # without I and O, which look like 1 and 0
DIGITS = "0123456789"
SMALL = "abcdefghijklmnopqrstuvwxyz"
CHARACTERS = LETTERS + DIGITS + ":" + SMALL
SHAPES = ("circle", "square", "triangle", "diamond", "cross", "star")
SHAPE_SIDE = 96  # pixels of the masters, from which every size is sampled


@functools.cache
def _sheets() -> dict[str, NDArray[np.uint8]]:
    with np.load(PATH) as found:
        return {name: found[name] for name in found.files}


def glyph(cell: int, character: str, font: int, size: int) -> NDArray[np.uint8]:
    """Ink [cell, cell] of a character, 0 to 255.

    Args:
        cell: pixels per cell side, one of ``CELLS``.
        character: one of ``CHARACTERS``.
        font: 0 to 3.
        size: any whole number; the sheet's sizes repeat.
    """
    sheet = _sheets()[f"glyphs{cell}"]
    found: NDArray[np.uint8] = sheet[font, size % sheet.shape[1], CHARACTERS.index(character)]
    return found


@functools.lru_cache(maxsize=512)
def shape(name: str, side: int) -> NDArray[np.uint8]:
    """Coverage [side, side] of a shape, averaged from its master in whole numbers.

    Args:
        name: one of ``SHAPES``.
        side: pixels.
    """
    master = _sheets()["shapes"][SHAPES.index(name)].astype(np.int64)
    total = np.zeros((SHAPE_SIDE + 1, SHAPE_SIDE + 1), np.int64)
    total[1:, 1:] = master.cumsum(0).cumsum(1)
    edges = np.arange(side + 1) * SHAPE_SIDE // side
    low, high = edges[:-1], edges[1:]
    boxes = total[np.ix_(high, high)] - total[np.ix_(low, high)]
    boxes += total[np.ix_(low, low)] - total[np.ix_(high, low)]
    area = np.outer(high - low, high - low)
    return (boxes // area).astype(np.uint8)
