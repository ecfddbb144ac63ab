"""Colours that say where on the page a carrier lies."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from vicoset.view.cells import Floats, Ints

Colour = tuple[int, int, int]

_PALEST, _STRONGEST = 0.35, 0.95  # saturation in the middle and at the edge
_VALUE = 0.85  # of the strongest channel


def by_place(cells: Floats) -> Ints:
    """The colour [N, 3] of every cell: the hue is its direction from the middle of the page.

    Neighbours have nearly the same colour and opposite sides opposite ones, so a token that went
    to a carrier far away stands out. Colours are paler towards the middle.

    Args:
        cells: [N, 4] (left, top, right, bottom) in [0, 1].
    """
    across = (cells[:, 0] + cells[:, 2]) / 2 - 0.5
    down = (cells[:, 1] + cells[:, 3]) / 2 - 0.5
    hue = np.arctan2(down, across) / (2 * np.pi) % 1.0
    far = np.hypot(across, down).clip(0.0, 0.5) * 2
    saturation = _PALEST + (_STRONGEST - _PALEST) * far
    steps = np.array([5.0, 3.0, 1.0]) + 6 * hue[:, None]  # the hexagon of hues, a channel a column
    ramp = np.minimum(steps % 6, 4 - steps % 6).clip(0.0, 1.0)
    shown: Ints = (255 * _VALUE * (1 - saturation[:, None] * ramp)).round().astype(np.int64)
    return shown


def borders(clusters: Ints) -> NDArray[np.bool_]:
    """The pixels [height, width] where a cluster begins, seen from the left and from above.

    Args:
        clusters: [height, width] number of the cluster at every pixel.
    """
    found = np.zeros(clusters.shape, np.bool_)
    found[:, 1:] = clusters[:, 1:] != clusters[:, :-1]
    found[1:] |= clusters[1:] != clusters[:-1]
    return found
