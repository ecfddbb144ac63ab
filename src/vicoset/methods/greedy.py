"""Picking one token after another, with a carrier for every image and ties to the lowest index."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor
from torch.nn.functional import normalize

from vicoset.core import checks
from vicoset.methods.base import Scene, check_keep

STEP = 2.0**-20  # cosines that differ by less are ties: duplicates tie whatever a kernel rounds


def unit(rows: Tensor) -> Tensor:
    """[N, d] in the compute dtype, every row of length 1; a row of zeros stays zero.

    Args:
        rows: [N, d].
    """
    return normalize(checks.lift(rows, "rows"), dim=1)


def steady(values: Tensor) -> Tensor:
    """The values on a lattice of ``STEP``.

    Args:
        values: of the order of 1, such as cosines.
    """
    return values.div(STEP).round_().mul_(STEP)


class Picks:
    """The picks of a greedy method, over all images together.

    A pick is free until as many are left as there are images without a carrier; from then on only
    those images are open. Nothing is read back from the device.
    """

    def __init__(self, scene: Scene, keep: int) -> None:
        check_keep(scene, keep)
        self._ids, self._left = scene.image_ids, keep
        device = scene.states.device
        self.free = torch.ones(len(scene.states), dtype=torch.bool, device=device)
        self._bare = torch.ones(scene.images, dtype=torch.bool, device=device)
        self._taken: list[Tensor] = []

    @property
    def left(self) -> int:
        """How many picks are still to come."""
        return self._left

    def open(self) -> Tensor:
        """[N] bool, the tokens that the next pick may be."""
        if len(self._bare) == 1:
            return self.free
        forced = self._bare.sum() >= self._left
        return self.free & (self._bare[self._ids] | ~forced)

    def take(self, scores: Tensor) -> Tensor:
        """[1] the open token with the largest score; NaN and -inf rank last.

        Args:
            scores: [N], floats, or whole numbers that are not negative.
        """
        return self.add(self._ranked(scores).argmax(0, keepdim=True))

    def take_best(self, scores: Tensor, count: int) -> None:
        """Take the open tokens with the largest scores, as ``count`` calls of :meth:`take` would.

        Args:
            scores: [N], as for :meth:`take`.
            count: how many.
        """
        if len(self._bare) > 1:
            for _ in range(count):
                self.take(scores)
        elif count:
            self.add(self._ranked(scores).argsort(descending=True, stable=True)[:count])

    def add(self, tokens: Tensor) -> Tensor:
        """[T] the same tokens, taken.

        Args:
            tokens: [T] indices of open tokens.
        """
        self.free.index_fill_(0, tokens, False)
        if len(self._bare) > 1:
            self._bare.index_fill_(0, self._ids[tokens].long(), False)
        self._taken.append(tokens)
        self._left -= len(tokens)
        return tokens

    def _ranked(self, scores: Tensor) -> Tensor:
        """The scores, where tokens that are not open rank behind everything."""
        if not scores.is_floating_point():
            return scores.masked_fill(~self.open(), -1)
        least = torch.finfo(scores.dtype).min
        return scores.nan_to_num(nan=least, neginf=least).masked_fill(~self.open(), -torch.inf)

    def order(self) -> Tensor:
        """[K] the picks in the order in which they were made."""
        return torch.cat(self._taken)

    def indices(self) -> Tensor:
        """[K] the picks, ascending."""
        return self.order().sort().values


def farthest_first(
    scene: Scene, keep: int, first: Tensor, cosines: Callable[[Tensor], Tensor]
) -> tuple[Picks, Tensor]:
    """The picks, and [N] the cosine of each token to the nearest of them.

    Each pick is the token whose nearest pick is farthest; the nearest is a running maximum.

    Args:
        scene: the scene.
        keep: K.
        first: [N] scores of the first pick.
        cosines: [1] index -> [N] cosines to that token.
    """
    picks = Picks(scene, keep)
    nearest = cosines(picks.take(first))
    while picks.left:
        nearest = torch.maximum(nearest, cosines(picks.take(-nearest)))
    return picks, nearest
