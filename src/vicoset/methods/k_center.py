"""Feature k-center: the farthest-first traversal of the boundary states."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from vicoset.core import checks
from vicoset.methods.base import About, Scene, Selection
from vicoset.methods.cosines import Cosines
from vicoset.methods.greedy import farthest_first
from vicoset.methods.registry import register_selector


@register_selector
@dataclass(frozen=True)
class KCenter:
    """Each pick is the token that is farthest, by 1 - cos, from what was picked before.

    The first is the token with the largest norm. Over all images together.
    """

    name: ClassVar[str] = "k-center"
    query_aware: ClassVar[bool] = False
    needs: ClassVar[frozenset[str]] = frozenset()
    about: ClassVar[About] = About(
        title="Feature k-center",
        source="control; Gonzalez, 1985, for the traversal",
        acts="where the plan compresses",
        reads="states",
        notes=(
            "start: the token with the largest norm, ties to the lower index; the paper leaves the "
            "start open",
            "differs from DivPrune by the start and by reading boundary states",
            "images: one traversal over all, the last picks go to images without a carrier",
        ),
        checked=("the traversal against its recomputation",),
    )

    def select(self, scene: Scene, keep: int) -> Selection:
        """Traverse until ``keep`` tokens are picked."""
        norms = checks.lift(scene.states, "states").norm(dim=1)
        picks, nearest = farthest_first(scene, keep, norms, Cosines(scene.states, keep).row)
        return Selection(picks.indices(), {"radius": 1.0 - nearest.amin()})
