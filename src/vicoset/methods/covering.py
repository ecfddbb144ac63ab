"""Selectors that can choose their own K: the smallest that covers enough."""

from __future__ import annotations

from typing import NamedTuple, Protocol, runtime_checkable

from vicoset.methods.base import Scene, Selection


class Target(NamedTuple):
    """A coverage to reach, and between which K.

    Attributes:
        coverage: least F(S)/F(V), in (0, 1].
        low: least K.
        high: largest K, taken when no K reaches the coverage.
    """

    coverage: float
    low: int
    high: int


@runtime_checkable
class Covering(Protocol):
    """What a selector adds to serve a budget by coverage."""

    def select_covering(self, scene: Scene, target: Target) -> Selection:
        """Choose the smallest K that reaches the target.

        The evidence says ``target`` (the coverage asked for) and ``reached``.
        """
