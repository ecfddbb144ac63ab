"""Where on an image each visual token lies."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

_EPS = 1e-6


def boxes(coordinates: Floats) -> Floats:
    """The cell [N, 4] (left, top, right, bottom) of every token of one image, in its frame [0, 1].

    The tokens may come from several rasters over the same frame (a base view and a finer grid, or
    tiles with a thumbnail); each has cells of its own size.

    Args:
        coordinates: [N, 2] cell centres (y, x) in source order.
    """
    found = np.empty((len(coordinates), 4))
    for start, stop in _rasters(coordinates):
        y, x = coordinates[start:stop].T
        down, across = _pitch(y) / 2, _pitch(x) / 2
        found[start:stop] = np.stack([x - across, y - down, x + across, y + down], 1)
    return found.clip(0.0, 1.0)


def pixels(cells: Floats, frame: tuple[float, float, float, float]) -> Ints:
    """The same cells in whole pixels [N, 4], right and bottom excluded.

    Neighbouring cells share their edges, so they tile the frame without gaps.

    Args:
        cells: [N, 4] in [0, 1].
        frame: (left, top, right, bottom) of the cells' frame in pixels.
    """
    left, top, right, bottom = frame
    scale = np.array([right - left, bottom - top, right - left, bottom - top])
    edges = cells * scale + np.array([left, top, left, top])
    # Rounded twice: an edge on half a pixel is computed from either side and has to be one edge.
    whole: Ints = np.floor(edges.round(6) + 0.5).astype(np.int64)
    return whole


def labels(rectangles: Ints, size: tuple[int, int], numbers: NDArray[Any]) -> Ints:
    """An array [height, width] with the number of the cell at every pixel, -1 outside all cells.

    Args:
        rectangles: [N, 4] pixels; where cells overlap, the smaller one wins.
        size: (width, height).
        numbers: [N] what to write.
    """
    page = np.full((size[1], size[0]), -1, np.int64)
    areas = (rectangles[:, 2] - rectangles[:, 0]) * (rectangles[:, 3] - rectangles[:, 1])
    for token in np.argsort(-areas, kind="stable"):
        left, top, right, bottom = rectangles[token]
        page[max(top, 0) : max(bottom, 0), max(left, 0) : max(right, 0)] = numbers[token]
    return page


def _rasters(coordinates: Floats) -> list[tuple[int, int]]:
    """Stretches of tokens that fill a grid row by row.

    One ends where the next token lies higher up, or where a row begins in another column than the
    raster's first one.
    """
    y, x = coordinates.T
    starts = [0]
    for token in range(1, len(coordinates)):
        higher = y[token] < y[token - 1] - _EPS
        lower = y[token] > y[token - 1] + _EPS
        if higher or (lower and abs(x[token] - x[starts[-1]]) > _EPS):
            starts.append(token)
    return list(zip(starts, [*starts[1:], len(coordinates)], strict=True))


def _pitch(centres: Floats) -> float:
    """Distance of neighbouring cell centres; a single one is the middle of its cell."""
    steps = np.diff(np.unique(centres.round(9)))
    steps = steps[steps > _EPS]
    if len(steps):
        return float(steps.min())
    return float(2 * min(centres[0], 1 - centres[0])) or 1.0
