"""VLM-Pruner: from a few pivots outwards, what is similar to the kept tokens or far away waits."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, NamedTuple

import torch
from torch import Tensor

from vicoset.core import checks
from vicoset.errors import SettingError
from vicoset.methods.base import PREVIOUS, About, Scene, Selection
from vicoset.methods.greedy import steady, unit
from vicoset.methods.images import Part, merged, others
from vicoset.methods.nearest import nearest, outermost
from vicoset.methods.presets import single
from vicoset.methods.registry import register_selector

RISE = 0.1  # of the threshold, from pass to pass
LOOK = 16  # batches between two looks at the device, to end a pass early


class Space(NamedTuple):
    """Where an image's tokens are.

    Attributes:
        directions: [n, c] of length 1.
        places: [n, 2] such that the grid's diagonal is 1.
    """

    directions: Tensor
    places: Tensor


@register_selector
@dataclass(frozen=True)
class VLMPruner:
    """Centrifugal selection with a buffer in space, then a blend of what was dropped.

    Attributes:
        pivots: tokens that selection starts from.
        threshold: similarity from which a token waits for a later pass.
        batch: candidates that are judged together.
        buffer: how much distance to the kept tokens adds to a similarity.
        channels: of the states, those with the largest variance.
        blend: weight of the dropped tokens in the kept one that they join.
        released_sign: multiply negative similarities by the distance as the released code does.
    """

    pivots: int = 4
    threshold: float = 0.8
    batch: int = 16
    buffer: float = 0.5
    channels: int = 256
    blend: float = 0.7
    released_sign: bool = False
    name: ClassVar[str] = "vlm-pruner"
    query_aware: ClassVar[bool] = False
    needs: ClassVar[frozenset[str]] = frozenset({PREVIOUS})
    about: ClassVar[About] = About(
        title="VLM-Pruner",
        source="VLM-Pruner: Buffering for Spatial Sparsity in an Efficient VLM Centrifugal Token "
        "Pruning Paradigm, CVPR 2026",
        acts="before block 2",
        reads="keys of block p - 1, states and coordinates",
        merges=True,
        code="Casey-bit/VLMPruner",
        licence="Apache-2.0",
        budget="tokens behind block 2, as far as the released loop fills them",
        notes=(
            "the released loop ends after a pass that accepts nothing and then returns fewer than "
            "K tokens (4 to 22 of 128 on redundant synthetic features); ours raises the threshold "
            "until K are kept",
            "the released factor 1 + 0.5 g makes a negative similarity smaller with distance, so "
            "that far tokens win; ours adds 0.5 g |similarity|; released_sign=true is the released "
            "form",
            "a dropped token whose best similarity is negative joins nobody; the released weights "
            "mix signs",
            "grid from the coordinates instead of constants; places are y and x, also in videos",
            "images: each gets its share of K; the released code asserts one image and batch 1",
        ),
        checked=(
            "passes and blend against a plain form, with both signs",
            "redundant tokens: exactly K",
            "by hand: distance and negative similarity",
        ),
    )

    def __post_init__(self) -> None:
        """Refuse what is no count and what is no share."""
        for name in ("pivots", "batch", "channels"):
            value: object = getattr(self, name)
            if isinstance(value, bool) or not isinstance(value, int) or value < 1:
                raise SettingError(f"{name}={value!r}; allowed are whole numbers from 1 on.")
        for name, most in (("buffer", 1.0), ("blend", 1.0)):
            if not 0.0 <= getattr(self, name) <= most:
                raise SettingError(
                    f"{name}={getattr(self, name)!r}; allowed are numbers in [0, {most:g}]."
                )

    def select(self, scene: Scene, keep: int) -> Selection:
        """Choose per image."""
        keys = scene.previous.keys.index_select(1, scene.visual).transpose(0, 1).flatten(1)
        keys, states = checks.lift(keys, "keys"), checks.lift(scene.states, "states")
        places = scene.coordinates[:, -2:]

        def choose(tokens: slice, budget: int) -> Part:
            space = Space(self.screened(states[tokens]), in_diagonals(places[tokens]))
            own = keys[tokens]
            pivots = outermost(own, own.abs().sum(1), min(self.pivots, budget))
            return self.of_image(space, pivots, budget)

        kept, merge = merged(scene, keep, choose)
        return Selection(kept, {}, merge=merge)

    def screened(self, states: Tensor) -> Tensor:
        """[n, c] of length 1: the channels that vary most over the tokens.

        Args:
            states: [n, d].
        """
        # Two passes: the library's variance goes column by column, several times as slowly.
        spread = (states - states.mean(0)).square_().mean(0).argsort(descending=True, stable=True)
        return unit(states.index_select(1, spread[: self.channels].sort().values))

    def of_image(self, space: Space, pivots: Tensor, keep: int) -> Part:
        """One image's tokens and its recovery map.

        Args:
            space: of the image.
            pivots: [1..K] where selection starts.
            keep: K of the image.
        """
        chosen = self.outwards(space, pivots, keep)
        kept, rows = chosen.nonzero().flatten(), space.directions
        dropped = others(kept, len(rows))
        if not len(dropped):
            return Part(kept, dropped, dropped, rows.new_zeros(0))
        closeness, owner = nearest(rows[dropped], rows[kept])
        weight = closeness.clamp_min(0.0)
        total = weight.new_zeros(keep).index_add(0, owner, weight)
        joined, joining = total.nonzero().flatten(), weight.nonzero().flatten()
        owner, weight = owner[joining], weight[joining]
        own = total.new_full((len(joined),), 1.0 - self.blend)
        return Part(
            kept,
            torch.cat([joined, owner]),
            torch.cat([kept[joined], dropped[joining]]),
            torch.cat([own, self.blend * weight / total[owner]]),
        )

    def outwards(self, space: Space, pivots: Tensor, keep: int) -> Tensor:
        """[n] bool, exactly ``keep`` tokens: passes with a rising threshold until there are enough.

        Args:
            space: of the image.
            pivots: the first of them.
            keep: K of the image.
        """
        crowd = _Crowd(space, self.buffer, self.released_sign)
        crowd.take(pivots, torch.ones_like(pivots, dtype=torch.bool))
        tokens, raised = len(space.places), 0
        while left := keep - int(crowd.chosen.sum()):
            bar = self.threshold + raised * RISE
            everything = bar > 1.0 + self.buffer  # also what is not a number
            self._pass(crowd, torch.inf if everything else bar, left, tokens - keep + left)
            raised += 1
        return crowd.chosen

    def _pass(self, crowd: _Crowd, bar: float, left: int, candidates: int) -> None:
        """Judge every candidate once, batch by batch, against what is kept by then."""
        scores = crowd.scores().masked_fill(crowd.chosen, torch.inf)
        order = scores.argsort(stable=True)[:candidates]
        room = torch.full((), left, device=scores.device)
        open_ = torch.ones((), dtype=torch.bool, device=scores.device)
        for number, part in enumerate(torch.split(order, self.batch)):
            now = crowd.scores(part)
            fits = now < bar if bar != torch.inf else torch.ones_like(now, dtype=torch.bool)
            ranks = now.masked_fill(~fits, torch.inf).argsort(stable=True).argsort()
            fits = fits & (ranks < room) & open_
            open_ = fits.any() if number == 0 else open_
            crowd.take(part, fits)
            room = room - fits.sum()
            if number % LOOK == 0 and not bool(open_ & (room > 0)):
                return


class _Crowd:
    """The kept tokens, and how similar and how far each token's nearest of them is."""

    def __init__(self, space: Space, buffer: float, released_sign: bool) -> None:
        self._space, self._buffer, self._released = space, buffer, released_sign
        self._closest = torch.full_like(space.directions[:, 0], -torch.inf)
        self._away = torch.full_like(space.places[:, 0], torch.inf)
        self.chosen = torch.zeros_like(self._away, dtype=torch.bool)

    def take(self, tokens: Tensor, really: Tensor) -> None:
        """Keep those of some tokens that are marked.

        Args:
            tokens: [m] indices.
            really: [m] bool.
        """
        rows, places = self._space
        if rows.device.type == "cpu":  # looking is free, and most candidates are not kept
            tokens, really = tokens[really], really[really]
            if not len(tokens):
                return
        cosines = steady(rows @ rows.index_select(0, tokens).mT)
        gaps = (places[:, None] - places.index_select(0, tokens)).square().sum(2).sqrt()
        self._closest = self._closest.maximum(cosines.masked_fill(~really, -torch.inf).amax(1))
        self._away = self._away.minimum(gaps.masked_fill(~really, torch.inf).amin(1))
        self.chosen = self.chosen.index_put((tokens,), self.chosen[tokens] | really)

    def scores(self, tokens: Tensor | None = None) -> Tensor:
        """Buffered similarity of all or some tokens to the kept ones.

        The buffer grows with the similarity, so the largest buffered similarity is the buffered
        largest similarity.

        Args:
            tokens: [m] indices; None for all.
        """
        closest = self._closest if tokens is None else self._closest[tokens]
        away = self._away if tokens is None else self._away[tokens]
        scale = closest if self._released else closest.abs()
        return steady(closest + self._buffer * away * scale)


def in_diagonals(places: Tensor) -> Tensor:
    """[n, 2] the places in units of the grid's diagonal.

    Args:
        places: [n, 2] (y, x), cell centres in [0, 1] of a grid whose lines they tell.
    """
    ordered = places.sort(0).values
    sides = 1.0 + (ordered[1:] > ordered[:-1]).sum(0).to(places.dtype)  # different y, different x
    return places * (sides / sides.square().sum().sqrt())


single("vlm-pruner", "vlm-pruner", 2, "merge")
