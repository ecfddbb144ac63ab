"""SparseVLM: what words that look at the image attend to; some of the rest becomes clusters."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from vicoset.core import checks
from vicoset.core.derived import FINAL, Derived
from vicoset.methods.base import (
    EMBEDDINGS,
    PREVIOUS,
    TEXT,
    About,
    Merge,
    Scene,
    Selection,
    check_keep,
    column_sums,
)
from vicoset.methods.choose import ranked, top
from vicoset.methods.dpc_knn import density_peaks
from vicoset.methods.presets import Recipe, Step, moved, register_preset, rescaled
from vicoset.methods.registry import register_selector

BLOCKS, BOUNDARIES = 32, (3, 7, 16)  # behind blocks 2, 6 and 15
TOKENS = 576
# Label, which is a layer average by the authors' count -> tokens kept at each stage, of 576.
SCHEDULES = {192: (300, 200, 110), 128: (303, 110, 36), 96: (238, 48, 26), 64: (66, 30, 17)}


def clusters(dropped: int) -> int:
    """C of so many dropped tokens: a tenth of those that are not lost, and one more.

    Args:
        dropped: tokens that are not kept.
    """
    return pooled(dropped) // 10 + 1 if dropped > 0 else 0


def pooled(dropped: int) -> int:
    """How many of the dropped tokens enter clusters: the best three tenths, and one more."""
    return 3 * dropped // 10 + 1


def carriers(kept: tuple[int, ...], tokens: int = TOKENS) -> list[int]:
    """Tokens behind each stage of a published schedule, clusters included.

    Args:
        kept: tokens that each stage keeps as they are.
        tokens: N.
    """
    found = []
    for count in kept:
        tokens = count + clusters(tokens - count)
        found.append(tokens)
    return found


def split(tokens: int, keep: int, images: int) -> tuple[int, int]:
    """K as tokens that stay and clusters; no fewer stay than there are images.

    Args:
        tokens: before the stage.
        keep: K, clusters included.
        images: I.
    """
    stay = keep
    while stay > images and stay + clusters(tokens - stay) > keep:
        stay -= 1
    return stay, keep - stay


@register_selector
@dataclass(frozen=True)
class SparseVLM:
    """s_v = mean over raters and heads of A[t, v] in block p - 1; raters are words near the image.

    Attributes:
        merging: whether K includes clusters of what is dropped; without, all K are tokens.
        appended: clusters stand behind their image's tokens, as in the released code, and not at
            their centres; only sensible with packed positions and the realiser ``merge``.
    """

    merging: bool = True
    appended: bool = False
    name: ClassVar[str] = "sparsevlm"
    query_aware: ClassVar[bool] = True
    needs: ClassVar[frozenset[str]] = frozenset({PREVIOUS, EMBEDDINGS, TEXT})
    about: ClassVar[About] = About(
        title="SparseVLM",
        source="Zhang et al., SparseVLM, ICML 2025",
        acts="behind blocks 2, 6 and 15 of 32 (plans sparsevlm, sparsevlm-192, -128, -96 and -64); "
        "sparsevlm@p is one stage",
        reads="input embeddings of image and text; attention of block p - 1, rows of the raters; "
        "states of what it merges",
        merges=True,
        positions="packed",
        code="Gumpest/SparseVLMs",
        licence="Apache-2.0",
        budget="a layer average by its authors' count",
        notes=(
            "the plans named by a number have the fixed counts of the released code, which are "
            "layer averages by its authors: 192, 128 and 64 end with 113, 39 and 18 tokens, and by "
            "the tokens that enter each block they average 206.5, 145.4 and 82.3 of 576",
            "plan sparsevlm meets any K behind its last stage on lines through those counts",
            "K counts clusters. A cluster stands at its centre; sparsevlm[appended=true] with "
            "packed positions puts it behind the tokens, as released",
            "the released code adds noise to the densities; here ties go to the lower index",
            "sparsevlm[-merging] drops without clusters, as version 2.0 does; its division by a "
            "content-free attention is not offered",
        ),
        checked=(
            "published schedules: 113, 39 and 18 final tokens; averages of 192.0, 128.6 and 64.8 "
            "by the authors' count, 206.5, 145.4 and 82.3 by the tokens that enter a block",
            "raters, scores and clusters against loops",
        ),
    )

    def select(self, scene: Scene, keep: int) -> Selection:
        """Keep the best, and clusters of the next best."""
        check_keep(scene, keep)
        rows = raters(scene)
        scores = column_sums(scene, scene.previous, rows)
        evidence = {"raters": len(rows)}
        tokens = len(scores)
        stay, groups = split(tokens, keep, scene.images) if self.merging else (keep, 0)
        if not groups:
            return Selection(top(scene, scores, keep), evidence)
        order = ranked(scene, scores)
        kept = order[:stay].sort().values
        pool = order[stay : stay + pooled(tokens - stay)].sort().values
        centres, owner = density_peaks(scene.states[pool], scene.image_ids[pool], groups)
        names = torch.cat([kept, pool[centres]])
        indices, place = names.sort()
        member = (owner >= 0).nonzero()[:, 0]
        cluster = owner[member]
        sizes = torch.bincount(cluster, minlength=groups)
        weight = sizes.to(scores.dtype).reciprocal()[cluster]
        if self.appended:
            behind = torch.arange(keep, device=names.device) >= stay
            place = (2 * scene.image_ids[names] + behind).argsort(stable=True)
        target = torch.empty_like(place).index_copy(0, place, torch.arange(keep).to(place))
        merge = Merge(target[stay + cluster], pool[member], weight)
        if self.appended:
            merge = Merge(
                torch.cat([target[:stay], merge.target]),
                torch.cat([kept, merge.source]),
                torch.cat([weight.new_ones(stay), weight]),
            )
        return Selection(indices, {**evidence, "clusters": groups}, None, merge)


def raters(scene: Scene) -> Tensor:
    """[R] sequence indices of the words that the image is close to, above the average.

    m_t is the mean over visual tokens of softmax over words of x_v . e_t, on what entered the
    decoder; words are those behind the last image. Where there are none: the scene's prompt rows.

    Args:
        scene: the scene.
    """
    text = scene.text
    behind = text.positions > scene.visual[-1]
    rows = text.positions[behind]
    if not len(rows):
        return scene.queries
    words = checks.lift(text.embeddings[behind], "embeddings")
    image = checks.lift(scene.every_embedding, "embeddings")
    mass = (image @ words.mT).softmax(1).mean(0)
    chosen = rows[mass > mass.mean()]
    return chosen if len(chosen) else rows


def recipe(depth: int) -> Recipe:
    """Three stages whose budgets follow from the final K on lines through the published counts.

    Args:
        depth: L.
    """
    here = rescaled(BOUNDARIES, BLOCKS, depth, behind=1)
    published = sorted([carriers(kept) for kept in SCHEDULES.values()], key=lambda one: one[-1])
    shares = [[count / TOKENS for count in counts] for counts in published]
    lines = [tuple((counts[-1], counts[stage]) for counts in shares) for stage in (0, 1)]
    budgets = (*(Derived(through=line) for line in lines), FINAL)
    steps = [Step(p, "sparsevlm", keep) for p, keep in zip(here, budgets, strict=True)]
    note = (
        "sparsevlm's published names are layer averages: '192', '128' and '64' end with 113, 39 "
        "and 18 tokens of 576; here K is behind the last stage"
    )
    return Recipe(tuple(steps), "merge", (note, *moved("sparsevlm", BOUNDARIES, BLOCKS, here)))


def _published(label: int) -> None:
    """Register the plan of a published schedule."""
    name, counts = f"sparsevlm-{label}", carriers(SCHEDULES[label])

    def maker(depth: int) -> Recipe:
        here = rescaled(BOUNDARIES, BLOCKS, depth, behind=1)
        steps = [
            Step(p, "sparsevlm", Derived(share=count / TOKENS))
            for p, count in zip(here, counts, strict=True)
        ]
        note = (
            f"{name} is named for a layer average; it keeps {counts[-1]} of {TOKENS} tokens behind "
            "its last stage, at other N the same share, whatever budget the run has"
        )
        return Recipe(tuple(steps), "merge", (note, *moved(name, BOUNDARIES, BLOCKS, here)))

    register_preset(name, maker)


register_preset("sparsevlm", recipe)
for _label in SCHEDULES:
    _published(_label)
