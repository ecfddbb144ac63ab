"""VisPruner: half the tokens by the tower's attention, half by removing what resembles the rest."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from vicoset.errors import SettingError
from vicoset.methods.base import TOWER, About, Scene, Selection
from vicoset.methods.greedy import steady, unit
from vicoset.methods.images import shares
from vicoset.methods.presets import single
from vicoset.methods.registry import register_selector
from vicoset.methods.visionzip import scores_of

STEP = 8  # tokens that one round of matching removes
GRAM = 1 << 28  # entries up to which the cosines are kept instead of taken again, 1 GiB


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
    rows = unit(features)
    order = torch.arange(len(rows), device=rows.device)
    if not keep:
        return order[:0]
    gram = steady(rows @ rows.mT) if len(rows) ** 2 <= GRAM and len(rows) > keep else None
    while len(order) > keep:
        first, second = order[::2], order[1::2]
        if gram is None:
            closest = steady(rows[first] @ rows[second].mT).amax(1)
        else:
            closest = gram[first[:, None], second].amax(1)
        going = min(STEP, len(order) - keep, len(first))
        staying = closest.argsort(descending=True, stable=True)[going:]
        order = torch.cat([first[staying], second])
    return order


single("vispruner", "vispruner", 0, "drop")
