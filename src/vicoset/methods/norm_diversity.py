"""Norm plus cosine diversity: large tokens that differ from what was picked before."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from vicoset.core import checks
from vicoset.errors import SettingError
from vicoset.methods.base import About, Scene, Selection
from vicoset.methods.cosines import Cosines
from vicoset.methods.greedy import Picks, steady
from vicoset.methods.registry import register_selector


@register_selector
@dataclass(frozen=True)
class NormDiversity:
    """Greedy ``argmax balance * n_v - (1 - balance) * max_u cos(h_v, h_u)`` over picks u.

    Attributes:
        balance: in [0, 1]; 1 ranks by norm alone, 0 by diversity alone.
        log_norm: take the logarithm of the norms before they are scaled to [0, 1], against the few
            states whose norm is far above all others.
    """

    balance: float = 0.5
    log_norm: bool = False
    name: ClassVar[str] = "norm-diversity"
    query_aware: ClassVar[bool] = False
    needs: ClassVar[frozenset[str]] = frozenset()
    about: ClassVar[About] = About(
        title="Norm + diversity",
        source="control",
        acts="where the plan compresses",
        reads="states",
        notes=(
            "the paper names it without a formula; ours is the greedy trade between the norm, "
            "scaled to [0, 1], and the largest cosine to a pick, balance 0.5, largest norm first",
            "log_norm is the variant against massive activations",
            "images: one greedy over all, the last picks go to images without a carrier",
        ),
        checked=("the greedy against its recomputation, every balance",),
    )

    def __post_init__(self) -> None:
        """Refuse what is no share."""
        if not 0.0 <= self.balance <= 1.0:
            raise SettingError(
                f"balance={self.balance!r}; allowed are numbers in [0, 1]. Pass balance=0.5."
            )

    def select(self, scene: Scene, keep: int) -> Selection:
        """Pick ``keep`` tokens, one after the other."""
        cosines = Cosines(scene.states, keep).row
        size = self._sizes(scene.states)
        picks = Picks(scene, keep)
        nearest = cosines(picks.take(size))
        while picks.left:
            scores = self.balance * size - (1.0 - self.balance) * nearest
            nearest = torch.maximum(nearest, cosines(picks.take(scores)))
        return Selection(picks.indices(), {"nearest": nearest.mean()})

    def _sizes(self, states: Tensor) -> Tensor:
        """n [N]: norms, scaled to [0, 1]."""
        norms = checks.lift(states, "states").norm(dim=1)
        norms = norms.clamp_min(torch.finfo(norms.dtype).tiny).log() if self.log_norm else norms
        low, high = norms.aminmax()
        return steady((norms - low) / (high - low).clamp_min(torch.finfo(norms.dtype).tiny))
