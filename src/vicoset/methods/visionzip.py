"""VisionZip: the tokens that the vision tower attends to, and a few that stand for the rest."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from vicoset.core import checks
from vicoset.errors import SettingError
from vicoset.methods.base import TOWER, About, Scene, Selection
from vicoset.methods.greedy import unit
from vicoset.methods.images import Part, merged, merges_features, others, shares
from vicoset.methods.nearest import nearest
from vicoset.methods.presets import single
from vicoset.methods.registry import register_selector

_SOURCE = "Yang et al., VisionZip: Longer is Better but Not Necessary in VLMs, CVPR 2025"
_CODE = "dvlab-research/VisionZip"
_READS = (
    "vision tower: attention of the class token (LLaVA) or received in the last block with full "
    "attention (Qwen), and the keys of that block"
)
_NOTES = (
    "K = dominant + contextual with 10 contextual tokens in 64, the ratio of the released settings",
    "LLaVA: the released K counts the class token and hands it to the decoder; here all K are "
    "patches, since a class token has no place in the image",
    "LLaVA merges before the projector (at the decoder's input; behind it, states are merged)",
    "Qwen2.5-VL: the authors' code is newer than the snapshot that was read; scores are the "
    "attention that every patch receives in the last block with full attention, exact and "
    "streamed, pooled over a merge group and brought back to raster order; merged are the "
    "decoder's input states, without a class token",
    "the released LLaVA code packs positions and lists contextual tokens last; here every token "
    "stays in its place",
    "images: each gets its share of K, as each is chosen from alone in the released code; of an "
    "any-resolution image all crops together",
)


def dominant(scores: Tensor, count: int) -> Tensor:
    """[count] indices, ascending; ties to the lower index.

    Args:
        scores: [n], larger is better.
        count: D.
    """
    return scores.argsort(descending=True, stable=True)[:count].sort().values


def contextual(keys: Tensor, rest: Tensor, count: int) -> tuple[Tensor, Tensor, Tensor]:
    """Targets [C], the other tokens [R - C] and which target each of them joins.

    Targets stand at 0, s, 2s, ... of the rest with s = max(1, R // C); every other token joins the
    target whose key has the largest cosine to its own.

    Args:
        keys: [n, dk].
        rest: [R] ascending, tokens that are not dominant.
        count: C, from 1 to R.
    """
    places = torch.arange(count, device=rest.device) * max(1, len(rest) // count)
    targets, joining = rest[places], rest[others(places, len(rest))]
    rows = unit(keys)
    _, owner = nearest(rows.index_select(0, joining), rows.index_select(0, targets))
    return targets, joining, owner


def scores_of(scene: Scene) -> Tensor:
    """[N]: attention of the class token; received attention where there is none.

    Args:
        scene: with a tower.
    """
    found = scene.tower.received if scene.tower.cls is None else scene.tower.cls
    return checks.lift(found, "scores").nan_to_num(nan=-math.inf)


@register_selector
@dataclass(frozen=True)
class VisionZip:
    """Dominant tokens, and contextual ones that hold themselves plus the mean of what joined them.

    Attributes:
        contextual: share of K for contextual tokens, in [0, 1]; rounded half up.
    """

    contextual: float = 10 / 64
    name: ClassVar[str] = "visionzip"
    query_aware: ClassVar[bool] = False
    needs: ClassVar[frozenset[str]] = frozenset({TOWER})
    mean: ClassVar[bool] = False
    about: ClassVar[About] = About(
        title="VisionZip",
        source=_SOURCE,
        acts="vision tower's output, before the projector (LLaVA); decoder input (Qwen)",
        reads=_READS,
        merges=True,
        positions="packed",
        code=_CODE,
        licence="Apache-2.0",
        budget="tokens kept, the class token among them",
        notes=(
            "contextual tokens are the target plus the mean of what joined it, as released: a sum "
            "of two, not an average (that is visionzip-mean)",
            *_NOTES,
        ),
        checked=(
            "by hand: 10 tokens, 3 dominant, 2 contextual; an empty target; the sum rule",
            "released splits 108 + 20 and 54 + 10",
            "tiny Qwen2.5-VL with windows: pooled scores in raster order",
            "tiny LLaVA: projected sums",
        ),
    )

    def __post_init__(self) -> None:
        """Refuse what is no share."""
        if not 0.0 <= self.contextual <= 1.0:
            raise SettingError(
                f"contextual={self.contextual!r}; allowed are numbers in [0, 1]. Pass "
                "contextual=0.15625 for 10 in 64."
            )

    def select(self, scene: Scene, keep: int) -> Selection:
        """Choose per image, and say which tokens the contextual ones stand for."""
        scores, keys = scores_of(scene), scene.tower.keys

        counts = []

        def choose(tokens: slice, budget: int) -> Part:
            counts.append(self.split(budget)[1])
            return self.of_image(scores[tokens], keys[tokens], budget)

        kept, merge = merged(scene, keep, choose, merges_features(scene))
        return Selection(kept, {"contextual": sum(counts)}, merge=merge)

    def split(self, keep: int) -> tuple[int, int]:
        """D and C of a budget.

        Args:
            keep: K.
        """
        count = math.floor(keep * self.contextual + 0.5)
        return keep - count, count

    def of_image(self, scores: Tensor, keys: Tensor, keep: int) -> Part:
        """One image's tokens and its recovery map.

        Args:
            scores: [n].
            keys: [n, dk].
            keep: K of the image.
        """
        first, count = self.split(keep)
        best = dominant(scores, first)
        if not count:
            return Part(best, best[:0], best[:0], scores[:0])
        targets, joining, owner = contextual(keys, others(best, len(scores)), count)
        kept = torch.cat([best, targets]).sort().values
        counts = scores.new_zeros(count).index_add(0, owner, scores.new_ones(len(owner)))
        joined = counts.nonzero().flatten()  # a target that nothing joined stays as it is
        own = 1.0 / (1.0 + counts) if self.mean else torch.ones_like(counts)
        each = own if self.mean else 1.0 / counts
        slots = torch.searchsorted(kept, targets)
        return Part(
            kept,
            torch.cat([slots[joined], slots[owner]]),
            torch.cat([targets[joined], joining]),
            torch.cat([own[joined], each[owner]]),
        )


@register_selector
@dataclass(frozen=True)
class VisionZipMean(VisionZip):
    """VisionZip whose contextual tokens are the means of their clusters."""

    name: ClassVar[str] = "visionzip-mean"
    mean: ClassVar[bool] = True
    about: ClassVar[About] = VisionZip.about._replace(
        title="VisionZip (mean)",
        notes=(
            "contextual tokens are the means of their clusters, target included: what merging "
            "usually means; the released code adds target and mean",
            *_NOTES,
        ),
        checked=("by hand: means over clusters",),
    )


@register_selector
@dataclass(frozen=True)
class VisionZipDominant:
    """VisionZip's ranking alone: all K are dominant tokens."""

    name: ClassVar[str] = "visionzip-dominant"
    query_aware: ClassVar[bool] = False
    needs: ClassVar[frozenset[str]] = frozenset({TOWER})
    about: ClassVar[About] = VisionZip.about._replace(
        title="VisionZip (dominant only)",
        merges=False,
        notes=("no contextual tokens: what the ranking alone is worth", *_NOTES[1:2], *_NOTES[3:]),
        checked=("the ranking of visionzip in tiny models",),
    )

    def select(self, scene: Scene, keep: int) -> Selection:
        """Rank per image."""
        scores = scores_of(scene)
        kept = [dominant(scores[at], budget) + at.start for at, budget in shares(scene, keep)]
        return Selection(torch.cat(kept), {})


single("visionzip", "visionzip", 0, "merge")
single("visionzip-mean", "visionzip-mean", 0, "merge")
single("visionzip-dominant", "visionzip-dominant", 0, "drop")
