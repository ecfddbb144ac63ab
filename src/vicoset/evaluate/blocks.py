"""Items that are answered together, cut the same way on every run."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from vicoset.errors import SettingError
from vicoset.evaluate.task import Item


@dataclass(frozen=True)
class Block:
    """Neighbours of a task that make one batch.

    Attributes:
        first: place of the first item in the task.
        items: in the order of the task.
    """

    first: int
    items: tuple[Item, ...]

    @property
    def ids(self) -> list[str]:
        """Of its samples."""
        return [item.sample_id for item in self.items]

    def alone(self, place: int) -> Block:
        """The block of one of its items.

        Args:
            place: of the item in the block.
        """
        return Block(self.first + place, (self.items[place],))


def cut(items: Sequence[Item], size: int) -> list[Block]:
    """Blocks of at most ``size`` neighbours with the same limit and number of images.

    They depend on the task alone, not on what was answered before or on the shard: whoever
    computes a sample again computes it in the same batch.

    Args:
        items: of the whole task.
        size: most items of a block.
    """
    if size < 1:
        raise SettingError(f"batch={size}; allowed are whole numbers from 1 on. Pass batch=1.")
    blocks: list[Block] = []
    first = 0
    for place in range(1, len(items) + 1):
        full = place - first == size
        if place == len(items) or full or _kind(items[place]) != _kind(items[first]):
            blocks.append(Block(first, tuple(items[first:place])))
            first = place
    return blocks


def _kind(item: Item) -> tuple[int, int]:
    return item.limit, len(item.pictures)
