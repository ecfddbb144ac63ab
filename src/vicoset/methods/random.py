"""Uniformly random support: the control that every selection has to beat."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from typing import ClassVar

import torch

from vicoset.errors import SettingError
from vicoset.methods.base import About, Scene, Selection, check_keep
from vicoset.methods.registry import register_selector


@register_selector
@dataclass(frozen=True)
class Random:
    """A random permutation's first token of each image, then its next ones.

    The draw depends on this seed, the sample's seed and N alone, so a smaller budget keeps a
    subset of what a larger one keeps.

    Attributes:
        seed: of the method; each sample adds its own.
    """

    seed: int = 0
    name: ClassVar[str] = "random"
    query_aware: ClassVar[bool] = False
    needs: ClassVar[frozenset[str]] = frozenset()
    about: ClassVar[About] = About(
        title="Random",
        source="control",
        acts="where the plan compresses",
        reads="nothing",
        notes=(
            "uniform without replacement by a CPU generator; tables give the mean over seeds",
            "images: one token of each, the rest uniform over all",
        ),
        checked=("every token drawn equally often; smaller budgets keep subsets",),
    )

    def __post_init__(self) -> None:
        """Refuse what is no seed."""
        if isinstance(self.seed, bool) or not isinstance(self.seed, int):
            raise SettingError(f"seed={self.seed!r}; allowed are whole numbers. Pass seed=0.")

    def select(self, scene: Scene, keep: int) -> Selection:
        """Draw ``keep`` tokens without replacement, at least one per image."""
        check_keep(scene, keep)
        # Hashed: neighbouring seeds of method and sample must not share draws.
        key = hashlib.sha256(f"{self.seed}:{scene.seed}".encode()).digest()
        generator = torch.Generator(device="cpu").manual_seed(int.from_bytes(key[:7], "big"))
        order = torch.randperm(len(scene.states), generator=generator)
        ids = scene.image_ids.cpu().index_select(0, order)
        rank = torch.arange(len(order))
        for image in range(scene.images):
            rank[(ids == image).long().argmax()] = -1
        drawn = order[rank.argsort(stable=True)[:keep]]
        evidence = {"seed": self.seed, "sample_seed": scene.seed}
        return Selection(drawn.sort().values.to(scene.states.device), evidence)
