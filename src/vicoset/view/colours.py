"""A colour for every cluster, such that neighbouring clusters differ."""

from __future__ import annotations

from collections import Counter, defaultdict

import numpy as np

from vicoset.view.cells import Ints

Colour = tuple[int, int, int]

# Ten hues of similar lightness that stay apart under a white veil.
PALETTE: tuple[Colour, ...] = (
    (31, 119, 180),
    (255, 127, 14),
    (44, 160, 44),
    (214, 39, 40),
    (148, 103, 189),
    (23, 190, 207),
    (227, 119, 194),
    (188, 189, 34),
    (140, 86, 75),
    (0, 80, 90),
)


def colouring(clusters: Ints) -> dict[int, int]:
    """The index into ``PALETTE`` of every cluster of a page.

    Clusters are coloured from the largest to the smallest; each gets the colour that shares the
    shortest border with it already, of these the one used least so far.

    Args:
        clusters: [height, width] number of the cluster at every pixel, -1 for none.
    """
    borders = _borders(clusters)
    names, sizes = np.unique(clusters[clusters >= 0], return_counts=True)
    order = sorted(zip(names.tolist(), sizes.tolist(), strict=True), key=lambda x: (-x[1], x[0]))
    chosen: dict[int, int] = {}
    used: Counter[int] = Counter()
    for name, _ in order:
        shared: Counter[int] = Counter()
        for other, length in borders[name].items():
            if other in chosen:
                shared[chosen[other]] += length
        best = min(range(len(PALETTE)), key=lambda ink: (shared[ink], used[ink], ink))
        chosen[name] = best
        used[best] += 1
    return chosen


def _borders(clusters: Ints) -> dict[int, Counter[int]]:
    """Cluster -> neighbouring cluster -> pixels of their common border."""
    found: dict[int, Counter[int]] = defaultdict(Counter)
    sides = ((clusters[:, :-1], clusters[:, 1:]), (clusters[:-1], clusters[1:]))
    for one, other in sides:
        touching = (one != other) & (one >= 0) & (other >= 0)
        pairs = np.stack([one[touching], other[touching]], 1)
        unique, counts = np.unique(pairs, axis=0, return_counts=True)
        for (a, b), count in zip(unique.tolist(), counts.tolist(), strict=True):
            found[a][b] += count
            found[b][a] += count
    return found
