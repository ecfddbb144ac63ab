"""Top-K by norm: the largest states."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from vicoset.core import checks
from vicoset.methods.base import About, Scene, Selection
from vicoset.methods.choose import top
from vicoset.methods.registry import register_selector


@register_selector
@dataclass(frozen=True)
class TopkNorm:
    """Keep the tokens whose states are longest."""

    name: ClassVar[str] = "topk-norm"
    query_aware: ClassVar[bool] = False
    needs: ClassVar[frozenset[str]] = frozenset()
    about: ClassVar[About] = About(
        title="Top-K norm",
        source="control",
        acts="where the plan compresses",
        reads="states",
        notes=("images: one ranking over all, each image's longest first",),
        checked=("by hand: lengths rank",),
    )

    def select(self, scene: Scene, keep: int) -> Selection:
        """Rank by the Euclidean norm."""
        norms = checks.lift(scene.states, "states").norm(dim=1)
        return Selection(top(scene, norms, keep), {"norms": norms})
