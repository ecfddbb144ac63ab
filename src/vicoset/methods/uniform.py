"""Uniform transport: the cluster mean in which every token weighs 1, at the carrier's own RMS."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from vicoset.core import coreset, realise
from vicoset.methods.base import About, Realisation, Scene, Selection, check_finite
from vicoset.methods.registry import register_realiser


@register_realiser
@dataclass(frozen=True)
class Uniform:
    """Transport without the grounded masses, whatever the selector found out about the prompt."""

    name: ClassVar[str] = "uniform"
    needs: ClassVar[frozenset[str]] = frozenset()
    about: ClassVar[About] = About(
        title="Uniform mean",
        source="control: the recovery map beside drop and transport",
        acts="where the plan compresses",
        reads="states and coordinates",
        merges=True,
        notes=("same assignment and RMS restoration as transport, m_i = 1",),
        checked=("transport whose tokens weigh 1",),
    )

    def realise(self, scene: Scene, selection: Selection) -> Realisation:
        """Assign every token to a carrier of its image and average."""
        states, settings = scene.states, scene.settings
        check_finite({"states": states})
        population = coreset.Population(states, scene.coordinates, scene.image_ids, scene.images)
        assignment = coreset.assign(population, selection.indices, settings)
        mass = assignment.gate.new_ones(len(states))
        moved = realise.transport(
            states, selection.indices, assignment.carrier, mass, settings.transport_strength
        )
        return Realisation(moved, assignment.carrier, mass, assignment.gate)
