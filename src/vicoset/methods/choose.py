"""The last step of every ranking method: exactly K ascending indices, a carrier for every image."""

from __future__ import annotations

import torch
from torch import Tensor

from vicoset.core import checks
from vicoset.methods.base import Scene, check_keep


def top(scene: Scene, scores: Tensor, keep: int) -> Tensor:
    """[K] indices, ascending: each image's best token, then the best of all.

    Ties go to the lower index; NaN ranks last.

    Args:
        scene: the scene.
        scores: [N], larger is better.
        keep: K.
    """
    check_keep(scene, keep)
    best_first = ranked(scene, scores)
    return best_first[:keep].sort().values


def ranked(scene: Scene, scores: Tensor) -> Tensor:
    """[N] indices, best first, where each image's best token comes before everything else.

    Args:
        scene: the scene.
        scores: [N], larger is better.
    """
    scores = checks.lift(scores, "scores").nan_to_num(nan=float("-inf"))
    order = scores.argsort(descending=True, stable=True)
    if scene.images == 1:
        return order
    leads = torch.ones_like(order, dtype=torch.bool)
    leads[leaders(scene, order)] = False
    return order[leads[order].to(torch.uint8).argsort(stable=True)]


def leaders(scene: Scene, order: Tensor) -> Tensor:
    """[I] the first token of every image in an order.

    Args:
        scene: the scene.
        order: [N] indices, best first.
    """
    rank = torch.empty_like(order).index_copy(0, order, torch.arange(len(order)).to(order))
    first = rank.new_full((scene.images,), len(order))
    first = first.scatter_reduce(0, scene.image_ids, rank, "amin")
    return order[first]


def quotas(scene: Scene, keep: int) -> list[int]:
    """K_i of every image: at least one each, the rest by its share of the tokens.

    For methods that choose inside an image (lattices, chunks). Largest remainders, ties to the
    earlier image; no image gets more than it has.

    Args:
        scene: the scene.
        keep: K.
    """
    check_keep(scene, keep)
    return dealt(torch.bincount(scene.image_ids.cpu(), minlength=scene.images).tolist(), keep)


def dealt(sizes: list[int], keep: int) -> list[int]:
    """K_i of images with so many tokens each, see :func:`quotas`.

    Args:
        sizes: N_i, from 1 on.
        keep: K, from the number of images to the sum of the sizes.
    """
    spare, room = keep - len(sizes), sum(sizes) - len(sizes)
    shares = [divmod(spare * (size - 1), max(room, 1)) for size in sizes]
    given = [1 + whole for whole, _ in shares]
    by_remainder = sorted(range(len(sizes)), key=lambda image: (-shares[image][1], image))
    for image in by_remainder[: keep - sum(given)]:
        given[image] += 1
    return given
