"""Hard deletion: kept tokens keep their own states, the others are gone."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import torch

from vicoset.core import checks
from vicoset.methods.base import About, Realisation, Scene, Selection
from vicoset.methods.registry import register_realiser


@register_realiser
@dataclass(frozen=True)
class Drop:
    """Leave the kept states as they are, bit for bit."""

    name: ClassVar[str] = "drop"
    needs: ClassVar[frozenset[str]] = frozenset()
    about: ClassVar[About] = About(
        title="Drop",
        source="control: hard deletion, the recovery map of every method that only ranks",
        acts="where the plan compresses",
        reads="nothing",
        checked=("kept states stay, bit for bit",),
    )

    def realise(self, scene: Scene, selection: Selection) -> Realisation:
        """Kept tokens carry themselves; deleted ones have no carrier and no mass."""
        states, kept = scene.states, selection.indices
        dtype = checks.compute_dtype(states.dtype, "states")
        carrier = torch.full_like(scene.image_ids, -1, dtype=torch.long)
        carrier[kept] = torch.arange(len(kept), device=states.device)
        return Realisation(
            states=states.index_select(0, kept),
            carrier=carrier,
            mass=(carrier >= 0).to(dtype),
            gate=torch.zeros((), dtype=dtype, device=states.device),
        )
