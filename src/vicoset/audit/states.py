"""What carriers hold instead of the tokens they stand for: distortion and its bounds."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from vicoset.audit.checks import CHOSEN, Check, check
from vicoset.audit.path import assignment_of, carriers_of
from vicoset.core.bounds import (
    assignment_bound,
    centroid_optimality,
    first_moment,
    pretransport_bound,
    rms_split,
)
from vicoset.core.bounds.geometry import directions
from vicoset.core.realise import Assignment
from vicoset.runtime.compact import Compaction


@dataclass(frozen=True)
class Distortion:
    """Squared distance of the tokens from their carriers, by mass, over the tokens' own energy.

    A token that was deleted counts with mass 1 and with the most similar carrier of its image.

    Attributes:
        boundary: p.
        realiser: that filled the carriers.
        before: E_pre / sum m ||h||^2: from the clusters' centroids, the least for this assignment.
        behind: E_post / sum m ||h||^2: from what the carriers hold.
        correction: behind - before, what RMS restoration, rounding or another recovery map costs.
        bound: eq:cond-pretransport without its factor 2, over the same energy; None where another
            assignment than the method's own was made.
        gate: s_x.
        checks: the statements that were looked at.
    """

    boundary: int
    realiser: str
    before: float
    behind: float
    correction: float
    bound: float | None
    gate: float
    checks: tuple[Check, ...]


def distortion_of(one: Compaction) -> Distortion:
    """The distortion of a compaction.

    Args:
        one: what a stage did to a row.
    """
    scene, realised = one.scene, one.realisation
    support, carrier = one.selection.indices, carriers_of(one)
    states, after = scene.states.double(), realised.states.to(scene.states.device).double()
    deleted = realised.carrier < 0
    masses = torch.where(deleted, 1.0, realised.mass.double())
    energy = masses @ states.square().sum(-1)
    energy = torch.where(energy > 0, energy, 1.0)
    split = rms_split(states, carrier, masses, after)
    checks = [
        check("centroids keep the first moment", first_moment(states, carrier, masses, len(after))),
        check("E(u) = E(c) + M |u - c|^2", centroid_optimality(states, carrier, masses, after)),
        check("E_post = E_pre + correction", split),
    ]
    own = assignment_of(one)
    bound: float | None = None
    if torch.equal(own.carrier, carrier):
        limits = _bonus_limits(own, scene.settings.assignment_weight, one)
        image = None if scene.images == 1 else scene.image_ids
        directed = directions(states)[1]
        nearest = assignment_bound(directed, support, carrier, limits, image)
        pre = pretransport_bound(states, support, carrier, masses, limits, image)
        bound = float(pre.rhs / energy)
        checks.append(check("carrier's distance <= nearest + bonus", nearest, CHOSEN))
        checks.append(check("E_pre <= four terms", pre, CHOSEN))
    return Distortion(
        boundary=one.stage.boundary,
        realiser=one.stage.realiser.name,
        before=float(split.terms["pre"] / energy),
        behind=float(split.lhs / energy),
        correction=float(split.terms["correction"] / energy),
        bound=bound,
        gate=float(realised.gate),
        checks=tuple(checks),
    )


def _bonus_limits(own: Assignment, weight: float, one: Compaction) -> Tensor:
    """lambda_i [N]: the most that the spatial term can give to a token's candidate."""
    margin = one.scene.settings.assignment_margin
    ambiguous = (1.0 - own.margin.double() / margin).clamp(0.0, 1.0)
    return weight * own.gate.double() * ambiguous
