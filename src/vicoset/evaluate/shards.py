"""Contiguous shares of a task, for processes that know nothing of each other."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TypeVar

from vicoset.errors import SettingError

T = TypeVar("T")


@dataclass(frozen=True)
class Shard:
    """The number-th of count shares.

    Attributes:
        number: from 1 on.
        count: of all shares.
    """

    number: int = 1
    count: int = 1

    def __post_init__(self) -> None:
        """Refuse a share that there is not."""
        if not 1 <= self.number <= self.count:
            raise SettingError(
                f"shard {self.number}/{self.count}; allowed are 1/{max(self.count, 1)} to "
                f"{max(self.count, 1)}/{max(self.count, 1)}. Shards count from 1."
            )

    @classmethod
    def parse(cls, text: str) -> Shard:
        """The shard of ``"1/4"``."""
        number, slash, count = text.partition("/")
        if not (slash and number.strip().isdecimal() and count.strip().isdecimal()):
            raise SettingError(
                f"shard {text!r}; allowed are a number and a count, such as 1/4 for the first of "
                "four."
            )
        return cls(int(number), int(count))

    @classmethod
    def from_environment(cls, variables: Mapping[str, str] | None = None) -> Shard:
        """The shard of torchrun's RANK and WORLD_SIZE; the whole where they are not set."""
        found = os.environ if variables is None else variables
        if "RANK" not in found or "WORLD_SIZE" not in found:
            return cls()
        return cls(int(found["RANK"]) + 1, int(found["WORLD_SIZE"]))

    def of(self, blocks: Sequence[T]) -> Sequence[T]:
        """Its contiguous range; the ranges of all shards are the whole, and differ by one at most.

        Args:
            blocks: what is not to be divided further.
        """
        total = len(blocks)
        first = total * (self.number - 1) // self.count
        return blocks[first : total * self.number // self.count]

    def __str__(self) -> str:
        """``1/4``."""
        return f"{self.number}/{self.count}"
