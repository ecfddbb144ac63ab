"""Transport: each carrier becomes the weighted mean of the tokens it stands for."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from vicoset.core import coreset, realise
from vicoset.methods.base import About, Realisation, Scene, Selection, check_finite
from vicoset.methods.registry import register_realiser


@register_realiser
@dataclass(frozen=True)
class Transport:
    """Move the population into the carriers, at the carriers' own RMS.

    Masses follow the grounded energy where the selector read the prompt; otherwise every token
    weighs 1.
    """

    name: ClassVar[str] = "transport"
    needs: ClassVar[frozenset[str]] = frozenset()
    about: ClassVar[About] = About(
        title="Grounded transport",
        source="Grounded Message Coreset Pruning, the paper of this package",
        acts="where the plan compresses",
        reads="states, coordinates, and the selector's grounding where it has one",
        merges=True,
        notes=("without a grounding every token weighs 1",),
        checked=("masses with and without grounding; states of the carriers at strength 0",),
    )

    def realise(self, scene: Scene, selection: Selection) -> Realisation:
        """Assign every token to a carrier of its image and average."""
        settings, states = scene.settings, scene.states
        check_finite({"states": states})
        population = coreset.Population(states, scene.coordinates, scene.image_ids, scene.images)
        assignment = coreset.assign(population, selection.indices, settings)
        if selection.grounding is None:
            mass = assignment.gate.new_ones(len(states))
        else:
            energy = selection.grounding.energy.to(states.device)
            mass = realise.population_mass(energy, assignment.gate, settings.population_strength)
        moved = realise.transport(
            states, selection.indices, assignment.carrier, mass, settings.transport_strength
        )
        return Realisation(moved, assignment.carrier, mass, assignment.gate)
