"""Where the prompt's tokens went: positions before and behind the compactions, and carriers."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from vicoset.core import coreset
from vicoset.core.coreset import Grounding
from vicoset.core.realise import Assignment
from vicoset.runtime.compact import Compaction


@dataclass(frozen=True)
class Path:
    """The prompt and its compact form, as a block sees them.

    Attributes:
        visual: [N] positions of the visual tokens in the prompt.
        slots: [K] positions of the carriers in the compact sequence.
        carrier: [N] which carrier stands for each token. A deleted token has the carrier that
            transport would have given it, the most similar one of its image.
        queries: [T] positions of the text rows that read the image, in the prompt.
        compact_queries: [T] the same rows in the compact sequence.
        others: [J] positions that are not visual, in the prompt.
        compact_others: [J] the same positions in the compact sequence.
        head_weights: omega [H], how much each head counts.
        query_weights: nu [T], how much each query counts.
    """

    visual: Tensor
    slots: Tensor
    carrier: Tensor
    queries: Tensor
    compact_queries: Tensor
    others: Tensor
    compact_others: Tensor
    head_weights: Tensor
    query_weights: Tensor


def path_to(
    block: int,
    compactions: Sequence[Compaction],
    groundings: Sequence[Grounding],
    length: int,
) -> Path:
    """The path of a prompt to a block behind at least one boundary.

    Weights are those of the last boundary before the block.

    Args:
        block: behind the first boundary.
        compactions: of all stages, in order.
        groundings: how the prompt read the image at each of them.
        length: L, prompt positions.
    """
    done = [one for one in compactions if one.stage.boundary <= block]
    first = done[0].scene
    visual = first.visual
    kept = torch.arange(len(visual), device=visual.device)
    carrier = kept
    for one in done:
        carrier = carriers_of(one)[carrier]
        kept = kept[one.selection.indices]
    stays = torch.ones(length, dtype=torch.bool, device=visual.device)
    stays[visual] = False
    others = stays.nonzero()[:, 0]
    stays[visual[kept]] = True
    rank = stays.cumsum(0) - 1
    grounding = groundings[len(done) - 1]
    return Path(
        visual=visual,
        slots=rank[visual[kept]],
        carrier=carrier,
        queries=first.queries,
        compact_queries=rank[first.queries],
        others=others,
        compact_others=rank[others],
        head_weights=grounding.head_weights,
        query_weights=grounding.query_weights,
    )


def carriers_of(one: Compaction) -> Tensor:
    """[N]: the carrier of every token of a stage, also of those that it deleted."""
    own = one.realisation.carrier
    deleted = own < 0
    if not bool(deleted.any()):
        return own
    return torch.where(deleted, assignment_of(one).carrier, own)


def assignment_of(one: Compaction) -> Assignment:
    """The method's own assignment of a scene's tokens to the kept ones."""
    scene = one.scene
    people = coreset.Population(scene.states, scene.coordinates, scene.image_ids, scene.images)
    return coreset.assign(people, one.selection.indices, scene.settings)
