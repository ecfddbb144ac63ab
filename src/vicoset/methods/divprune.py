"""DivPrune: tokens that are far from each other, the max-min diversity greedy."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from torch import Tensor

from vicoset.methods.base import EMBEDDINGS, TOWER, About, Scene, Selection
from vicoset.methods.cosines import Cosines
from vicoset.methods.greedy import farthest_first
from vicoset.methods.registry import register_selector

_SOURCE = "Alvar et al., DivPrune: Diversity-based Visual Token Pruning, CVPR 2025"
_CODE = "vbdi/divprune"
_LICENCE = "CC BY-NC 4.0"
_NOTES = (
    "written from the equations; distances in FP32, where the released code has the model's dtype",
    "a running minimum gives the released sequence of picks, which recomputes all distances",
    "the released code can return a duplicate's index twice; a pick is never picked again here",
    "images: one greedy over all, the last picks go to images without a carrier",
)


@register_selector
@dataclass(frozen=True)
class DivPrune:
    """Greedy ``argmax min_u 1 - cos(x_v, x_u)`` over picks u, on what enters the decoder.

    The first pick is the token whose nearest neighbour is farthest.
    """

    name: ClassVar[str] = "divprune"
    query_aware: ClassVar[bool] = False
    needs: ClassVar[frozenset[str]] = frozenset({EMBEDDINGS})
    about: ClassVar[About] = About(
        title="DivPrune",
        source=_SOURCE,
        acts="at the decoder's input",
        reads="embeddings of visual tokens (projector or merger outputs)",
        positions="packed",
        code=_CODE,
        licence=_LICENCE,
        budget="tokens kept",
        notes=_NOTES,
        checked=(
            "by hand: five points on the unit circle",
            "the running minimum against the recomputation of all distances",
            "duplicates never repeat an index",
        ),
    )

    def select(self, scene: Scene, keep: int) -> Selection:
        """Spread over the embeddings."""
        return spread(scene, keep, scene.embeddings)


@register_selector
@dataclass(frozen=True)
class DivPruneTower:
    """DivPrune on the vision tower's features, before the projector."""

    name: ClassVar[str] = "divprune-vit"
    query_aware: ClassVar[bool] = False
    needs: ClassVar[frozenset[str]] = frozenset({TOWER})
    about: ClassVar[About] = About(
        title="DivPrune (tower features)",
        source=_SOURCE,
        acts="at the decoder's input",
        reads="features of the vision tower before the projector",
        positions="packed",
        code=_CODE,
        licence=_LICENCE,
        budget="tokens kept",
        notes=(
            "what the port in Ironieser/MMTok does for Qwen2.5-VL; it selects other tokens than "
            "the paper's reading, which is divprune",
            *_NOTES,
        ),
        checked=("the greedy of divprune, on the tower's features in models",),
    )

    def select(self, scene: Scene, keep: int) -> Selection:
        """Spread over the tower's features."""
        return spread(scene, keep, scene.tower.features)


def spread(scene: Scene, keep: int, features: Tensor) -> Selection:
    """The max-min greedy on some features.

    Args:
        scene: the scene.
        keep: K.
        features: [N, d].
    """
    cosines = Cosines(features, len(features))  # the first pick reads all of them
    picks, nearest = farthest_first(scene, keep, -cosines.to_the_nearest(), cosines.row)
    return Selection(picks.indices(), {"radius": 1.0 - nearest.amin()})
