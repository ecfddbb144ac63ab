"""What a support covers, by bank, and what is left uncovered of appearance and of the grid."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor

from vicoset.audit.checks import CHOSEN, Check, check
from vicoset.core.bounds import Identity, Inequality, coverage_to_quantisation
from vicoset.core.clients import appearance_features, spatial_columns
from vicoset.core.coreset import Grounding
from vicoset.core.coverage import bank_report, batch_certificate, cover, ratio
from vicoset.methods.base import Scene, Selection, Selector
from vicoset.methods.gmc import GMC

_CLIENTS = 512  # appearance clients that are looked at together


class Bank(NamedTuple):
    """One family of clients; all numbers as in ``vicoset.core.coverage.BankReport``.

    Attributes:
        name: grounded, appearance or spatial.
        rows: M_b, potential clients.
        active: clients that carry mass.
        nominal: beta_b.
        deployed: beta^_b.
        attainable: Z_b = F_b(V).
        covered: F_b(S).
        saturation: c_b.
        share: omega_b.
    """

    name: str
    rows: int
    active: int
    nominal: float
    deployed: float
    attainable: float
    covered: float
    saturation: float
    share: float


class Quantisation(NamedTuple):
    """How far the appearance clients are from the nearest carrier of their image, and its bound.

    Attributes:
        clients: M, appearance clients.
        distance: mean_m d_m(S)^2, squared chord of unit features.
        bound: 2 tau_v / (beta_V p_0 r_0) D_V(S), never below the distance.
        sharp: the bound with log(1 / r_0) / (1 - r_0) for 1 / r_0.
        deficit: D_V(S).
        least_mass: p_0, the least mass that a client gives itself.
        least_ratio: r_0, the least ratio of the best carrier's mass to it.
        bank_mass: beta_V; 1 where the bank is switched off.
    """

    clients: int
    distance: float
    bound: float
    sharp: float
    deficit: float
    least_mass: float
    least_ratio: float
    bank_mass: float


@dataclass(frozen=True)
class Coverage:
    """The facility objective on one support.

    Attributes:
        boundary: p.
        selector: that chose the support.
        objective: whose clients are covered: the selector's own where it is ``gmc``, else those of
            ``gmc`` as it is deployed.
        tokens: N.
        kept: K.
        value: F(S).
        total: F(V).
        ratio: F(S)/F(V), at most F(S)/F(S*).
        banks: by bank.
        certificate: c_B; None for a selector that does not cover in rounds.
        rounds: q_t; empty without rounds.
        start: F(S_0); None without rounds.
        grid: D_grid(S), the mean over landmarks of 1 - max_{i in S} P_m(i).
        quantisation: of the appearance.
        checks: the statements that were looked at.
    """

    boundary: int
    selector: str
    objective: str
    tokens: int
    kept: int
    value: float
    total: float
    ratio: float
    banks: tuple[Bank, ...]
    certificate: float | None
    rounds: tuple[float, ...]
    start: float | None
    grid: float
    quantisation: Quantisation
    checks: tuple[Check, ...]

    def bank(self, name: str) -> Bank:
        """One of the banks.

        Args:
            name: grounded, appearance or spatial.
        """
        return next(bank for bank in self.banks if bank.name == name)


def objective_of(selector: Selector) -> GMC:
    """The objective that a selector's support is measured by.

    Args:
        selector: of a stage.
    """
    return selector if isinstance(selector, GMC) else GMC()


def coverage_of(
    scene: Scene, selector: Selector, selection: Selection
) -> tuple[Coverage, Grounding]:
    """The coverage of a selection, and how the prompt reads the image.

    Args:
        scene: with its views.
        selector: that chose.
        selection: what it chose.
    """
    objective = objective_of(selector)
    grounding, clients = objective.objective(scene)
    support = selection.indices
    report = bank_report(clients, cover(clients.matrix, support))
    value, total = report.covered.sum(), report.attainable.sum()
    columns = zip(*(_numbers(column) for column in report[1:]), strict=True)
    banks = tuple(
        Bank(name, int(rows), int(active), nominal, deployed, attainable, covered, part, share)
        for name, (nominal, rows, active, deployed, attainable, share, covered, part) in zip(
            report.names, columns, strict=True
        )
    )
    rounds = selection.evidence.get("progress")
    start = selection.evidence.get("start_value")
    certificate = None if rounds is None else batch_certificate(rounds)
    quantisation, bound = quantisation_of(scene, support)
    checks = [
        check("F(S) <= F(V)", Inequality(value, total), CHOSEN),
        check("every bank's saturation <= 1", _at_most_one(report.saturation), CHOSEN),
        check(
            "F(S)/F(V) is the banks' mixture",
            Identity(ratio(value, total), (report.share * report.saturation).sum()),
            CHOSEN,
        ),
        check("appearance distance <= coverage bound", bound, CHOSEN),
    ]
    if rounds is not None:
        checks.append(check("every round's progress <= 1", _at_most_one(rounds), CHOSEN))
    found = Coverage(
        boundary=scene.boundary,
        selector=selector.name,
        objective=_named(objective, selector),
        tokens=len(scene.states),
        kept=len(support),
        value=float(value),
        total=float(total),
        ratio=float(ratio(value, total)),
        banks=banks,
        certificate=None if certificate is None else float(certificate),
        rounds=() if rounds is None else tuple(_numbers(rounds)),
        start=None if start is None else float(start),
        grid=grid_distortion(scene, support),
        quantisation=quantisation,
        checks=tuple(checks),
    )
    return found, grounding


def grid_distortion(scene: Scene, support: Tensor) -> float:
    """D_grid(S) over the landmarks of all images (eq:cond-grid-distortion).

    Args:
        scene: coordinates and images.
        support: [K].
    """
    rows = spatial_columns(scene.coordinates, scene.image_ids, scene.images, scene.settings)
    return float((1.0 - rows.index_select(0, support).double().amax(0)).mean())


def quantisation_of(scene: Scene, support: Tensor) -> tuple[Quantisation, Inequality]:
    """The appearance distance with its bound, in float64, some clients at a time.

    Args:
        scene: states and images.
        support: [K].
    """
    settings = scene.settings
    features, clients = appearance_features(scene.states.double(), settings)
    if clients is None:
        clients = torch.arange(len(features), device=features.device)
    mass = settings.appearance_mass or 1.0
    temperature = settings.appearance_temperature
    parts = [
        coverage_to_quantisation(features, support, temperature, mass, scene.image_ids, part)
        for part in torch.split(clients, _CLIENTS)
    ]
    sizes = features.new_tensor([len(part) for part in torch.split(clients, _CLIENTS)])
    weights = sizes / sizes.sum()
    distance = weights @ torch.stack([part.lhs for part in parts])
    deficit = weights @ torch.stack([part.terms["deficit"] for part in parts])
    least = torch.stack([part.terms["p_0"] for part in parts]).amin()
    lowest = torch.stack([part.terms["r_0"] for part in parts]).amin()
    slope = 2 * temperature / (mass * least) * deficit
    bound = slope / lowest
    spread = 1 - lowest
    curve = torch.where(spread > 0, -lowest.log() / torch.where(spread > 0, spread, 1), 1)
    found = Quantisation(
        clients=len(clients),
        distance=float(distance),
        bound=float(bound),
        sharp=float(slope * curve),
        deficit=float(deficit),
        least_mass=float(least),
        least_ratio=float(lowest),
        bank_mass=float(mass),
    )
    return found, Inequality(distance, torch.minimum(bound, slope * curve), scale=1 + bound)


def _at_most_one(values: Tensor) -> Inequality:
    return Inequality(values, torch.ones_like(values))


def _numbers(values: Tensor) -> list[float]:
    return [float(value) for value in values.tolist()]


def _named(objective: GMC, selector: Selector) -> str:
    return "gmc" if objective is not selector or objective == GMC() else "gmc with switches"
