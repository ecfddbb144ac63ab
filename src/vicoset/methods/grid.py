"""A uniform lattice over the image: the control that looks at nothing."""

from __future__ import annotations

import itertools
from dataclasses import dataclass
from typing import ClassVar

import torch

from vicoset.methods.base import About, Scene, Selection
from vicoset.methods.choose import quotas
from vicoset.methods.registry import register_selector


@register_selector
@dataclass(frozen=True)
class Grid:
    """Evenly spaced lines of tokens, and evenly spaced tokens in each of them.

    The number of lines makes the lattice as square as K allows.
    """

    name: ClassVar[str] = "grid"
    query_aware: ClassVar[bool] = False
    needs: ClassVar[frozenset[str]] = frozenset()
    about: ClassVar[About] = About(
        title="Uniform lattice",
        source="control",
        acts="where the plan compresses",
        reads="coordinates",
        notes=(
            "exactly K tokens: lines of the raster share K by their lengths",
            "videos count every line of every frame; any-resolution images those of every level",
            "images: each gets its share of K by its number of tokens",
        ),
        checked=("by hand: lattices; exactly K, lines equally full",),
    )

    def select(self, scene: Scene, keep: int) -> Selection:
        """Lay a lattice over every image."""
        budgets = quotas(scene, keep)
        lines = _lines(scene)
        chosen: list[int] = []
        for image, budget in enumerate(budgets):
            chosen += lattice([line for owner, line in lines if owner == image], budget)
        kept = torch.tensor(sorted(chosen), device=scene.states.device)
        return Selection(kept, {"quotas": budgets})


def lattice(lines: list[range], keep: int) -> list[int]:
    """Exactly ``keep`` tokens of some lines, evenly spaced.

    Args:
        lines: the tokens of every line, top to bottom.
        keep: at most as many as there are tokens.
    """
    total = sum(map(len, lines))
    height, width = len(lines), total / len(lines)
    wanted = min(height, max(1, round((keep * height / width) ** 0.5)))
    while True:
        used = [lines[place] for place in _spaced(height, wanted)]
        if sum(map(len, used)) >= keep:
            break
        wanted += 1
    return [
        line[place]
        for line, n in zip(used, _shared(used, keep), strict=True)
        for place in _spaced(len(line), n)
    ]


def _spaced(size: int, count: int) -> list[int]:
    """``count`` different places in 0..size-1, in the middles of equal parts."""
    return [(2 * place + 1) * size // (2 * count) for place in range(count)]


def _shared(lines: list[range], keep: int) -> list[int]:
    """How many of ``keep`` each line gets: rounded running shares, so that extras spread out."""
    total, before, given = sum(map(len, lines)), 0, []
    done = 0
    for line in lines:
        before += len(line)
        upto = (2 * keep * before + total) // (2 * total)
        given.append(upto - done)
        done = upto
    return given


def _lines(scene: Scene) -> list[tuple[int, range]]:
    """(image, tokens) of every line: runs of one image whose last coordinate ascends."""
    where = scene.coordinates.cpu()
    ids = scene.image_ids.cpu()
    same = (where[1:, :-1] == where[:-1, :-1]).all(1) & (where[1:, -1] > where[:-1, -1])
    starts = (~same | (ids[1:] != ids[:-1])).nonzero().flatten().add(1).tolist()
    edges = [0, *starts, len(ids)]
    return [(int(ids[a]), range(a, b)) for a, b in itertools.pairwise(edges)]
