"""FitPrune's schedule: how many tokens each block may lose, from what blocks read uncompressed."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from vicoset.core import checks
from vicoset.errors import PlanError
from vicoset.methods.base import Scene, View, column_sums
from vicoset.methods.rows import behind_the_images

TOLERANCE = 0.01  # of alpha, as released


class Statistics(NamedTuple):
    """What the blocks of an uncompressed sample read.

    Attributes:
        within: [L, N] received from the visual rows, largest over heads, mean over rows.
        across: [L, N] the same from the text rows behind the image.
    """

    within: Tensor
    across: Tensor


class Schedule(NamedTuple):
    """Tokens that go behind each block.

    Attributes:
        deleted: per block but the last, the share of N; mean over the samples.
        alpha: share of the mass that every block may lose.
    """

    deleted: tuple[float, ...]
    alpha: float

    def counts(self, tokens: int) -> list[int]:
        """Tokens deleted behind each block but the last, rounded down.

        Args:
            tokens: N.
        """
        return [math.floor(share * tokens + 1e-6) for share in self.deleted]

    def kept(self) -> list[float]:
        """K_l / N entering each block, the first 1."""
        left = [1.0]
        for share in self.deleted:
            left.append(left[-1] - share)
        return left


def statistics_of(scene: Scene, views: Sequence[View]) -> Statistics:
    """What the given blocks read of a sample.

    Args:
        scene: of the sample, uncompressed.
        views: of the blocks, in order, with every query.
    """
    rows = (scene.visual, behind_the_images(scene))
    sums = [[column_sums(scene, v, r, heads="max") / len(r) for v in views] for r in rows]
    return Statistics(torch.stack(sums[0]), torch.stack(sums[1]))


def search(samples: Sequence[Statistics], work_share: float) -> Schedule:
    """The schedule with the smallest alpha whose average work is at most a share of Full's.

    At each block a token may go when it lies among the lightest by both kinds of mass, as many of
    each kind as leave at least 1 - alpha of the block's uncompressed mass. The search halves alpha
    down to ``TOLERANCE``; deletion ends at the block where the work that is left would do.

    The released search runs the compressed blocks anew for every alpha and counts operations; this
    one reads one uncompressed pass and counts visual token-layer work.

    Args:
        samples: of the calibration; all with the same L.
        work_share: of Full's work, in (0, 1).
    """
    if not samples or not 0 < work_share < 1:
        raise PlanError(
            f"a schedule for {work_share!r} of the work from {len(samples)} samples; allowed are "
            "shares between 0 and 1 and one sample or more. Write search(samples, 0.2)."
        )
    low, high, best = 0.0, 1.0, _walk(samples, 1.0, work_share)
    if best is None:
        raise PlanError(
            f"no schedule comes down to {work_share:g} of the work on these samples; the first "
            "block runs on every token. Ask for a larger share."
        )
    while high - low > TOLERANCE + 1e-6:
        middle = (low + high) / 2
        found = _walk(samples, middle, work_share)
        if found is None:
            low = middle
        else:
            high, best = middle, found
    return Schedule(best, high)


def _walk(samples: Sequence[Statistics], alpha: float, goal: float) -> tuple[float, ...] | None:
    """Shares deleted behind each block; None where the work stays above the goal."""
    depth = len(samples[0].within)
    alive = [torch.ones(one.within.shape[1], dtype=torch.bool) for one in samples]
    spent, deleted = 0.0, list[float]()
    for block in range(depth):
        left = sum(float(some.float().mean()) for some in alive) / len(samples)
        if (spent + (depth - block) * left) / depth <= goal:
            return (*deleted, *[0.0] * (depth - 1 - block))
        spent += left
        gone = 0.0
        for one, some in zip(samples, alive, strict=True):
            light = _lightest(one.within[block], some, alpha)
            light &= _lightest(one.across[block], some, alpha)
            some &= ~light
            gone += float(light.float().mean())
        deleted.append(gone / len(samples))
    return None


def _lightest(mass: Tensor, alive: Tensor, alpha: float) -> Tensor:
    """[N] bool: the longest run of light tokens whose loss leaves 1 - alpha of the whole mass."""
    mass = checks.lift(mass, "mass").cpu()
    order = mass.masked_fill(~alive, torch.inf).argsort(stable=True)[: int(alive.sum())]
    remaining = mass[order].sum() - mass[order].cumsum(0)
    count = int((remaining >= (1 - alpha) * mass.sum()).sum())
    found = torch.zeros_like(alive)
    found[order[: min(count, len(order) - 1)]] = True
    return found
