"""Paper that is never blank: gradient, texture and noise under everything."""

from __future__ import annotations

import functools

import numpy as np
from numpy.typing import NDArray

from vicoset.tiny.scenes.scene import Paper

TEXTURES, EXTENT = 12, 1024  # textures repeat after EXTENT pixels


@functools.cache
def textures() -> NDArray[np.int8]:
    """[TEXTURES, 2 * EXTENT, 2 * EXTENT] periodic smooth noise, about -32 to 32.

    Only the raw stream of a bit generator is used, which NumPy keeps for ever.
    """
    sheets = np.empty((TEXTURES, 2 * EXTENT, 2 * EXTENT), np.int8)
    for number in range(TEXTURES):
        raw = np.random.PCG64(7_000 + number).random_raw(EXTENT * EXTENT // 8).view(np.uint8)
        grain = raw.reshape(EXTENT, EXTENT).astype(np.int32) - 128
        widths = ((3, 24), (24, 3), (9, 9), (31, 31), (5, 60), (14, 40))[number % 6]
        smooth = _box(_box(grain, widths), widths)
        peak = int(np.abs(smooth).max())
        sheets[number] = np.tile((smooth * 44 // max(peak, 1)).clip(-32, 32), (2, 2))
    return sheets


@functools.cache
def noise() -> NDArray[np.int8]:
    """[EXTENT + 64, EXTENT + 64] grain of -4 to 4."""
    side = EXTENT + 64
    raw = np.random.PCG64(6_999).random_raw(-(-side * side // 8)).view(np.uint8)[: side * side]
    return (raw.reshape(side, side) % 9).astype(np.int8) - 4


def _box(field: NDArray[np.int32], widths: tuple[int, int]) -> NDArray[np.int32]:
    """Periodic box mean over (rows, columns), in whole numbers."""
    for axis, width in enumerate(widths):
        extended = np.concatenate([field, np.take(field, range(width), axis)], axis)
        total = extended.cumsum(axis, dtype=np.int64)
        ahead = np.take(total, range(width, field.shape[axis] + width), axis)
        behind = np.take(total, range(field.shape[axis]), axis)
        field = ((ahead - behind) // width).astype(np.int32)
    return field


def paint(paper: Paper, side: int) -> NDArray[np.int16]:
    """[side, side, 3] the empty page, not clipped yet.

    Args:
        paper: what it looks like.
        side: pixels.
    """
    along = np.arange(side, dtype=np.int32)
    y, x = paper.texture_offset
    rough = textures()[paper.texture, y : y + side, x : x + side].astype(np.int16)
    rough *= np.int16(paper.texture_gain)
    rough >>= 3
    v, u = paper.noise_offset
    rough += noise()[v : v + side, u : u + side]
    page = np.empty((side, side, 3), np.int16)
    for channel in range(3):
        rise, run = paper.slopes[channel]
        down = (paper.base[channel] + along * rise // side).astype(np.int16)
        across = (along * run // side).astype(np.int16)
        np.add(rough, down[:, None] + across[None, :], out=page[:, :, channel])
    return page
