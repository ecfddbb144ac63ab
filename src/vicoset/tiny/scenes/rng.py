"""Draws that are the same on every machine and in every version of Python."""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import TypeVar

T = TypeVar("T")


class Dice:
    """Draws from the one stream that Python keeps stable, ``random()`` seeded by a text."""

    def __init__(self, name: str) -> None:
        self._next = random.Random(name).random

    def below(self, n: int) -> int:
        """A whole number from 0 to n - 1."""
        return int(self._next() * n)

    def between(self, low: int, high: int) -> int:
        """A whole number from low to high, both included."""
        return low + int(self._next() * (high - low + 1))

    def chance(self, p: float) -> bool:
        """True with probability p."""
        return self._next() < p

    def pick(self, options: Sequence[T]) -> T:
        """One of the options."""
        return options[self.below(len(options))]

    def shuffled(self, options: Sequence[T]) -> list[T]:
        """The options in random order."""
        found = list(options)
        for last in range(len(found) - 1, 0, -1):
            other = self.below(last + 1)
            found[last], found[other] = found[other], found[last]
        return found

    def sample(self, options: Sequence[T], n: int) -> list[T]:
        """n different options, or all of them in random order if there are fewer."""
        return self.shuffled(options)[:n]
