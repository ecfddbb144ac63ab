"""Merging as the method itself says: each carrier holds a weighted sum of tokens."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from vicoset.core import checks, realise
from vicoset.errors import MethodError
from vicoset.methods.base import About, Merge, Realisation, Scene, Selection
from vicoset.methods.registry import register_realiser


@register_realiser
@dataclass(frozen=True)
class Merged:
    """Apply the selection's recovery map; without one, the mean of each nearest-carrier cluster.

    The fall-back gives every token to the carrier of its image with the largest cosine and
    averages, the carrier included, without restoring the carrier's RMS.
    """

    name: ClassVar[str] = "merge"
    needs: ClassVar[frozenset[str]] = frozenset()
    about: ClassVar[About] = About(
        title="Merge",
        source="the recovery map of each merging method; Bolya et al., ToMe, ICLR 2023, for the "
        "plain mean",
        acts="where the plan compresses",
        reads="states, or tower features where the method merges before the projector",
        merges=True,
        notes=("methods without a map of their own: mean of the nearest-carrier cluster",),
        checked=("the map is the sum, in every dtype; without a map the mean of what is nearest",),
    )

    def realise(self, scene: Scene, selection: Selection) -> Realisation:
        """Fill the carriers by the map."""
        if selection.merge is None:
            return _nearest(scene, selection.indices)
        kept, tokens = len(selection.indices), len(scene.states)
        _check(selection.merge, kept, tokens)
        target, source, weight, features = selection.merge
        own = scene.states.index_select(0, selection.indices)
        if features:
            project = scene.tower.project
            if project is None:
                raise MethodError(
                    "a selection merges tower features and this model's projector takes whole "
                    "groups of patches, not single features; allowed are maps over states. Give "
                    "Merge(features=False) on such models."
                )
            moved = _summed(scene.tower.features, target, source, weight, kept)
            moved = project(moved.to(scene.tower.features.dtype)).to(scene.states.dtype)
        else:
            moved = _summed(scene.states, target, source, weight, kept).to(own.dtype)
        touched = torch.zeros(kept, dtype=torch.bool, device=own.device).index_fill(0, target, True)
        carrier, mass = _carriers(selection.indices, selection.merge, tokens)
        states = torch.where(touched[:, None], moved, own)
        return Realisation(states, carrier, mass, mass.new_zeros(()))


def _summed(states: Tensor, target: Tensor, source: Tensor, weight: Tensor, kept: int) -> Tensor:
    """sum_e w_e h_source(e) by target, [K, d] in the compute dtype."""
    lifted = checks.lift(states, "states").index_select(0, source)
    total = lifted.new_zeros(kept, states.shape[1])
    return total.index_add(0, target, lifted * weight.to(lifted.dtype)[:, None])


def _carriers(indices: Tensor, merge: Merge, tokens: int) -> tuple[Tensor, Tensor]:
    """pi [N] by the largest weight (kept tokens carry themselves), and m [N], their sum."""
    weight = checks.lift(merge.weight, "weight").abs()
    mass = weight.new_zeros(tokens).index_add(0, merge.source, weight)
    carrier = torch.full((tokens,), -1, dtype=torch.long, device=indices.device)
    # Stable, lightest first: what is written last for a source is its heaviest entry.
    for_source = weight.argsort(stable=True)
    order = for_source[merge.source[for_source].argsort(stable=True)]
    sources = merge.source[order]
    last = torch.ones_like(sources, dtype=torch.bool)
    last[:-1] = sources[1:] != sources[:-1]
    carrier[sources[last]] = merge.target[order][last]
    places = torch.arange(len(indices), device=indices.device)
    carrier = carrier.index_copy(0, indices, places)
    untouched = mass.index_select(0, indices) == 0
    return carrier, mass.index_add(0, indices, untouched.to(mass.dtype))


def _nearest(scene: Scene, kept: Tensor) -> Realisation:
    assignment = realise.assign(
        scene.states,
        scene.coordinates,
        scene.image_ids,
        kept,
        images=scene.images,
        weight=0.0,
    )
    mass = assignment.gate.new_ones(len(scene.states))
    moved = realise.centroids(scene.states, assignment.carrier, mass, len(kept))
    return Realisation(moved.to(scene.states.dtype), assignment.carrier, mass, mass.new_zeros(()))


def _check(merge: Merge, kept: int, tokens: int) -> None:
    lengths = {name: len(getattr(merge, name)) for name in ("target", "source", "weight")}
    if len(set(lengths.values())) != 1:
        raise MethodError(
            f"a recovery map has {lengths}; allowed is one target, source and weight an entry."
        )
    if merge.target.device.type != "cpu" or not len(merge.target):
        return  # looking would cost a device read
    for name, bound in (("target", kept), ("source", tokens)):
        low, high = (int(end) for end in getattr(merge, name).aminmax())
        if low < 0 or high >= bound:
            raise MethodError(
                f"a recovery map has {name}s from {low} to {high}; allowed are 0 to {bound - 1}. "
                "Targets count the kept tokens, sources all tokens of the scene."
            )
