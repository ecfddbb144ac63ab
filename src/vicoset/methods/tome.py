"""Token merging in the manner of ToMe: pairs of similar tokens become their weighted mean."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from vicoset.core import checks
from vicoset.errors import SettingError
from vicoset.methods.base import About, Scene, Selection
from vicoset.methods.greedy import unit
from vicoset.methods.images import Part, merged
from vicoset.methods.nearest import nearest
from vicoset.methods.presets import single
from vicoset.methods.registry import register_selector


@register_selector
@dataclass(frozen=True)
class ToMe:
    """Rounds of bipartite matching, each merging the most similar pairs by size-weighted mean.

    Attributes:
        rounds: over how many rounds the merges are spread, at least; a round merges at most half
            of the tokens that are left.
    """

    rounds: int = 24
    name: ClassVar[str] = "tome"
    query_aware: ClassVar[bool] = False
    needs: ClassVar[frozenset[str]] = frozenset()
    about: ClassVar[About] = About(
        title="ToMe-style merging",
        source="Bolya et al., Token Merging: Your ViT But Faster (ToMe), ICLR 2023",
        acts="inside the vision tower, between attention and MLP of every block",
        reads="keys of every block of the tower; here the states where the plan compresses",
        merges=True,
        code="facebookresearch/ToMe",
        licence="CC BY-NC 4.0",
        budget="tokens merged per block of the tower",
        notes=(
            "a reconstruction, written from the paper's equations: matching and weighted mean are "
            "ToMe's, the place is not: merging inside the tower breaks the grid on which "
            "multimodal positions and merge groups rest, so it happens at the decoder's input (or "
            "any boundary)",
            "similarity is the cosine of states; equal merges per round over 24 rounds, the blocks "
            "of the CLIP tower of LLaVA",
            "a cluster stays in the place of the token that the others were merged into; no "
            "attention bias by size, no protected class token",
            "images: each gets its share of K, merges stay inside an image",
        ),
        checked=(
            "by hand: two rounds",
            "clusters are the means of their members",
        ),
    )

    def __post_init__(self) -> None:
        """Refuse what is no number of rounds."""
        rounds: object = self.rounds
        if isinstance(rounds, bool) or not isinstance(rounds, int) or rounds < 1:
            raise SettingError(
                f"rounds={self.rounds!r}; allowed are whole numbers from 1 on. Pass rounds=24."
            )

    def select(self, scene: Scene, keep: int) -> Selection:
        """Merge per image until ``keep`` clusters are left."""
        states = checks.lift(scene.states, "states")

        def choose(tokens: slice, budget: int) -> Part:
            return self.of_image(states[tokens], budget)

        kept, merge = merged(scene, keep, choose)
        return Selection(kept, {}, merge=merge)

    def of_image(self, states: Tensor, keep: int) -> Part:
        """One image's carriers and the mean of each cluster.

        Args:
            states: [n, d] in the compute dtype.
            keep: K of the image.
        """
        tokens, device = len(states), states.device
        pace = max(1, math.ceil((tokens - keep) / self.rounds))
        carrier = torch.arange(tokens, device=device)  # pi, as an index among the tokens
        alive, means = carrier.clone(), states
        sizes = states.new_ones(tokens)
        while len(alive) > keep:
            going = min(pace, len(alive) - keep, len(alive) // 2)
            gone, into = pairs(means, going)
            carrier = _rerouted(carrier, alive[gone], alive[into])
            means, sizes, staying = _merged(means, sizes, gone, into)
            alive = alive[staying]
        slot = torch.searchsorted(alive, carrier)
        many = sizes[slot] > 1  # clusters of one stay as they are, bit for bit
        source = many.nonzero().flatten()
        return Part(alive, slot[source], source, 1.0 / sizes[slot[source]])


def pairs(means: Tensor, count: int) -> tuple[Tensor, Tensor]:
    """[count] tokens that are merged away, and [count] tokens that take them in.

    Every token of even place proposes the most similar one of odd place; the closest pairs win.

    Args:
        means: [n, d].
        count: at most n // 2.
    """
    rows = unit(means)
    first, second = rows[::2], rows[1::2]
    values, places = nearest(first, second)
    chosen = values.argsort(descending=True, stable=True)[:count]
    return 2 * chosen, 2 * places[chosen] + 1


def _rerouted(carrier: Tensor, gone: Tensor, into: Tensor) -> Tensor:
    """The carriers, with every ``gone`` one replaced."""
    follow = torch.arange(len(carrier), device=carrier.device).index_copy(0, gone, into)
    return follow[carrier]


def _merged(
    means: Tensor, sizes: Tensor, gone: Tensor, into: Tensor
) -> tuple[Tensor, Tensor, Tensor]:
    """Means and sizes of the clusters that stay, and which of them those are."""
    sums = means * sizes[:, None]
    sums = sums.index_add(0, into, sums[gone])
    counts = sizes.index_add(0, into, sizes[gone])
    free = torch.ones(len(sizes), dtype=torch.bool, device=sizes.device).index_fill(0, gone, False)
    staying = free.nonzero().flatten()
    counts = counts[staying]
    return sums[staying] / counts[:, None], counts, staying


single("tome", "tome", 0, "merge")
