"""Methods that are defined on one image: each gets its share of the budget, and maps are joined."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import accumulate, pairwise
from typing import NamedTuple

import torch
from torch import Tensor

from vicoset.methods.base import Merge, Scene, check_keep
from vicoset.methods.choose import quotas


class Part(NamedTuple):
    """What a method answers for one image; indices count the image's own tokens.

    Attributes:
        kept: [k] ascending.
        target: [E] positions among the kept.
        source: [E].
        weight: [E].
    """

    kept: Tensor
    target: Tensor
    source: Tensor
    weight: Tensor


def shares(scene: Scene, keep: int) -> Iterator[tuple[slice, int]]:
    """The tokens and the budget of every image, in order; nothing is read where there is one.

    Args:
        scene: the scene.
        keep: K.
    """
    check_keep(scene, keep)
    if scene.images == 1:
        yield slice(0, len(scene.states)), keep
        return
    sizes = torch.bincount(scene.image_ids.cpu(), minlength=scene.images).tolist()
    edges = pairwise(accumulate(sizes, initial=0))
    for (start, stop), budget in zip(edges, quotas(scene, keep), strict=True):
        yield slice(start, stop), budget


def merged(
    scene: Scene, keep: int, choose: Callable[[slice, int], Part], features: bool = False
) -> tuple[Tensor, Merge]:
    """The kept tokens of all images and one recovery map.

    Args:
        scene: the scene.
        keep: K.
        choose: (tokens of an image, its budget) -> its part.
        features: as in ``Merge``.
    """
    found: list[Part] = []
    before = 0
    for tokens, budget in shares(scene, keep):
        part = choose(tokens, budget)
        start = tokens.start
        found.append(
            Part(part.kept + start, part.target + before, part.source + start, part.weight)
        )
        before += budget
    kept, target, source, weight = (torch.cat(column) for column in zip(*found, strict=True))
    return kept, Merge(target, source, weight, features)


def others(kept: Tensor, tokens: int) -> Tensor:
    """[n - k] ascending, the tokens of an image that are not kept.

    Args:
        kept: [k] distinct indices.
        tokens: n.
    """
    free = torch.ones(tokens, dtype=torch.bool, device=kept.device).index_fill(0, kept, False)
    return free.nonzero().flatten()


def merges_features(scene: Scene) -> bool:
    """Whether a merge goes through the projector: at the decoder's input, where it takes features.

    Args:
        scene: of a method that reads the tower.
    """
    return scene.boundary == 0 and scene.tower.project is not None
