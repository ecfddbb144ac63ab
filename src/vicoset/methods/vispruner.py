"""VisPruner: half the tokens by the tower's attention, half by removing what resembles the rest."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from vicoset.errors import SettingError
from vicoset.methods.base import TOWER, About, Scene, Selection
from vicoset.methods.cosines import ROWS, Cosines
from vicoset.methods.images import shares
from vicoset.methods.presets import single
from vicoset.methods.registry import register_selector
from vicoset.methods.visionzip import scores_of

STEP = 8  # tokens that one round of matching removes
NEAR = 16  # partners that are remembered of each token


@register_selector
@dataclass(frozen=True)
class VisPruner:
    """The best by attention, then what repeated bipartite matching leaves of the others.

    Attributes:
        important: share of K that attention alone decides, in [0, 1]; rounded down.
    """

    important: float = 0.5
    name: ClassVar[str] = "vispruner"
    query_aware: ClassVar[bool] = False
    needs: ClassVar[frozenset[str]] = frozenset({TOWER})
    about: ClassVar[About] = About(
        title="VisPruner",
        source="Zhang et al., Beyond Text-Visual Attention: Exploiting Visual Cues for Effective "
        "Token Pruning in VLMs (VisPruner), ICCV 2025",
        acts="vision tower's output",
        reads="vision tower: attention of the class token (LLaVA) or received (Qwen), and features "
        "before the projector",
        positions="packed",
        code="Theia-4869/VisPruner",
        licence="Apache-2.0",
        budget="tokens kept",
        notes=(
            "order of the lists as in the released code: by attention at first, then the matched "
            "half by similarity before the other half",
            "a round removes 8 tokens, or as many as there are to match; the released code needs "
            "an even remainder, here any is served",
            "Qwen: received attention, pooled like the merger's groups, as the authors advise",
            "images: each gets its share of K; the released code chooses per crop, here all crops "
            "of an image are one population",
        ),
        checked=(
            "rounds of matching against a plain form",
            "by hand: the token with a double goes",
        ),
    )

    def __post_init__(self) -> None:
        """Refuse what is no share."""
        if not 0.0 <= self.important <= 1.0:
            raise SettingError(
                f"important={self.important!r}; allowed are numbers in [0, 1]. Pass important=0.5."
            )

    def select(self, scene: Scene, keep: int) -> Selection:
        """Choose per image."""
        scores, features = scores_of(scene), scene.tower.features
        kept = []
        for tokens, budget in shares(scene, keep):
            order = scores[tokens].argsort(descending=True, stable=True)
            first, rest = order.tensor_split([int(budget * self.important)])
            left = distinct(features[tokens].index_select(0, rest), budget - len(first))
            kept.append(torch.cat([first, rest[left]]).sort().values + tokens.start)
        return Selection(torch.cat(kept), {})


def distinct(features: Tensor, keep: int) -> Tensor:
    """[keep] places of the rows that stay when those with the closest partners go.

    Each round splits the list alternately and removes the ``STEP`` tokens of the first half whose
    largest cosine to the second half is largest.

    Args:
        features: [R, d], in the order of the list.
        keep: rows that stay.
    """
    order = torch.arange(len(features), device=features.device)
    if not keep:
        return order[:0]
    partners = _Partners(features) if len(order) > keep else None
    while len(order) > keep:
        assert partners is not None
        first, second = order[::2], order[1::2]
        closest = partners.closest(order)
        going = min(STEP, len(order) - keep, len(first))
        staying = closest.argsort(descending=True, stable=True)[going:]
        order = torch.cat([first[staying], second])
    return order


class _Partners:
    """Each token's nearest ones, so that a round looks at a few of them and not at all pairs."""

    def __init__(self, features: Tensor) -> None:
        self._cosines = Cosines(features, len(features))
        near = min(NEAR, len(features))
        self._values = features.new_zeros(len(features), near, dtype=self._cosines.dtype)
        self._places = torch.zeros_like(self._values, dtype=torch.long)
        self._sought = 2 * len(features)  # tokens among which they were sought last

    def closest(self, order: Tensor) -> Tensor:
        """[n] the largest cosine of each token at an even place to one at an odd place.

        Args:
            order: tokens that are left.
        """
        if 2 * len(order) <= self._sought:
            self._seek(order)
        first, second = order[::2], order[1::2]
        there = torch.zeros(len(self._values), dtype=torch.bool, device=order.device)
        there[second] = True
        values = self._values[first].masked_fill(~there[self._places[first]], -torch.inf)
        best = values.amax(1)
        alone = (best == -torch.inf).nonzero()[:, 0]  # none of the nearest is in the other half
        for part in torch.split(alone, max(1, ROWS // max(1, len(second)))):
            best[part] = self._cosines.between(first[part], second).amax(1)
        return best

    def _seek(self, order: Tensor) -> None:
        """The nearest tokens among those that are left."""
        self._sought = len(order)
        near = min(self._values.shape[1], len(order))
        for part in torch.split(order, max(1, ROWS // len(order))):
            found = self._cosines.between(part, order).topk(near, dim=1)
            self._values[part, :near] = found.values
            self._places[part, :near] = order[found.indices]


single("vispruner", "vispruner", 0, "drop")
