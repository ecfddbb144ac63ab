"""A batch of rows in the making."""

from __future__ import annotations

import random
from dataclasses import dataclass, field, replace
from typing import Any

import torch
from torch import Tensor

from tests.zoo_parts import IMAGE


@dataclass
class Batch:
    """Rows in the making.

    `rows` are token ids; `kinds` their modality (0 text, 1 image, 2 video); `pixels` and `sizes`
    what the vision tower gets, row by row; `films` the same for videos; `fine` are the fine
    grids of any-resolution images, `tilings` the tile grids of tiled ones.
    """

    model: Any
    rng: random.Random
    generator: torch.Generator
    rows: list[list[int]] = field(default_factory=list)
    kinds: list[list[int]] = field(default_factory=list)
    pixels: list[list[Tensor]] = field(default_factory=list)
    sizes: list[list[tuple[int, ...]]] = field(default_factory=list)
    seen: int = 0
    images: int = 0
    films: list[list[tuple[Tensor, tuple[int, int, int]]]] = field(default_factory=list)
    fine: list[tuple[int, int]] = field(default_factory=list)
    tilings: list[tuple[int, int]] = field(default_factory=list)

    def say(self, *tokens: int) -> None:
        self.rows[-1] += tokens
        self.kinds[-1] += [0] * len(tokens)

    def chat(self, least: int, most: int) -> None:
        self.say(*(self.rng.randrange(10, 140) for _ in range(self.rng.randint(least, most))))

    def show(self, count: int, token: int = IMAGE, kind: int = 1) -> None:
        self.rows[-1] += [token] * count
        self.kinds[-1] += [kind] * count

    def noise(self, *shape: int) -> Tensor:
        return torch.randn(*shape, generator=self.generator)

    def see(self, pixels: Tensor, *size: int) -> None:
        self.pixels[-1].append(pixels)
        if size:
            self.sizes[-1].append(size)

    def open(self, images: int) -> None:
        """Begin a row that will show so many images."""
        self.images = images
        for part in (self.rows, self.kinds, self.pixels, self.sizes, self.films):
            part.append([])

    def only(self, row: int) -> Batch:
        """The same batch with one row left."""
        names = ("rows", "kinds", "pixels", "sizes", "films")
        return replace(self, **{name: [getattr(self, name)[row]] for name in names})

    def flat_sizes(self) -> list[tuple[int, ...]]:
        return [size for row in self.sizes for size in row]

    def flat(self) -> list[Tensor]:
        return [pixels for row in self.pixels for pixels in row]

    def turn(self, options: list[Any]) -> Any:
        """The next of some shapes, so that neighbours differ."""
        self.seen += 1
        return options[(self.seen - 1) % len(options)]
