"""The whole method for one sample at one boundary, in the order of the paper's Algorithm 1."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor

from vicoset.core import banks, checks, heads, messages, realise
from vicoset.core.budget import realised_keep
from vicoset.core.clients import Clients, build_clients
from vicoset.core.coverage import BankReport, bank_report
from vicoset.core.settings import Settings
from vicoset.core.support import Support, select_support
from vicoset.errors import ShapeError


class Reading(NamedTuple):
    """How one block reads the image.

    Attributes:
        attention: A [H, T, N], the visual columns of the native softmax.
        messages: Z [H, N, r], the probed values.
    """

    attention: Tensor
    messages: Tensor


class Population(NamedTuple):
    """The visual tokens of one sample at the boundary.

    Attributes:
        states: h [N, d].
        coordinates: p [N, axes] in [0, 1], (y, x) or (t, y, x).
        image_ids: [N], 0..I-1.
        images: I.
    """

    states: Tensor
    coordinates: Tensor
    image_ids: Tensor
    images: int = 1


class Grounding(NamedTuple):
    """What the prompt's reading says about heads, clients and masses.

    Attributes:
        views: A and atom norms by view, the current one first.
        head_weights: omega [H].
        query_weights: nu [T].
        energy: e [N], mean 1, of the current view.
    """

    views: tuple[banks.View, ...]
    head_weights: Tensor
    query_weights: Tensor
    energy: Tensor


@dataclass(frozen=True)
class Coreset:
    """K carriers, what they hold, and the evidence.

    Attributes:
        support: the kept tokens and how they were found; None when nothing was compressed.
        states: h~ [K, d] in the dtype of the population.
        indices: [K] kept indices, ascending.
        carrier: pi [N] position of each token's carrier in ``indices``.
        mass: m [N].
        gate: s_x.
        coverage: coverage by bank; None when nothing was compressed.
        finite: scalar bool tensor, whether the carriers and their coverage are; read it when
            convenient, it costs a device synchronisation.
    """

    support: Support | None
    states: Tensor
    indices: Tensor
    carrier: Tensor
    mass: Tensor
    gate: Tensor
    coverage: BankReport | None
    finite: Tensor


def ground(readings: Sequence[Reading], settings: Settings | None = None) -> Grounding:
    """Head weights, query weights and energy from the blocks' readings.

    Args:
        readings: the current block first, then history in ascending block order; at least one.
        settings: the method's numbers.
    """
    settings = settings or Settings()
    if not readings:
        raise ShapeError("no reading came; at least the current block's is needed.")
    views, grams = [], []
    sizes: dict[str, int] = {}
    for number, reading in enumerate(readings):
        attention, coordinates = (
            checks.lift(t, f"readings[{number}].{n}") for n, t in reading._asdict().items()
        )
        sizes = checks.shape(attention, f"readings[{number}].attention", "H T N", **sizes)
        checks.shape(coordinates, f"readings[{number}].messages", "H N r", **sizes)
        mass = messages.mass_coordinate(coordinates)
        grams.append(heads.view_gram(attention, coordinates, mass))
        views.append(banks.View(attention, messages.atom_norms(coordinates, mass)))
    gram = heads.head_gram(grams, banks.view_masses(len(readings) - 1, settings.current_mass))
    clusters = heads.head_clusters(gram, settings.head_clusters)
    omega = heads.head_weights(gram, clusters, settings.head_dispersion)
    now = views[0]
    nu = messages.query_weights(
        now.attention.shape[1],
        settings.terminal_weight,
        dtype=now.attention.dtype,
        device=now.attention.device,
    )
    energy = messages.energy(now.attention, now.norms, omega, nu)
    return Grounding(tuple(views), omega, nu, energy)


def clients_of(
    population: Population,
    grounding: Grounding,
    settings: Settings | None = None,
    spatial: Tensor | None = None,
) -> Clients:
    """The client matrix of a grounded population."""
    return build_clients(
        *population,
        grounding.views,
        grounding.head_weights,
        grounding.query_weights,
        settings or Settings(),
        spatial,
    )


def assign(population: Population, support: Tensor, settings: Settings) -> realise.Assignment:
    """The carrier of every token, by the settings' numbers.

    Args:
        population: the visual tokens at the boundary.
        support: [K] kept indices, ascending.
        settings: the method's numbers.
    """
    return realise.assign(
        population.states,
        population.coordinates,
        population.image_ids,
        support,
        images=population.images,
        weight=settings.assignment_weight,
        temperature=settings.spatial_temperature,
        margin=settings.assignment_margin,
        gate_scale=settings.gate_scale,
        gate_power=settings.gate_power,
    )


def build_coreset(
    population: Population,
    readings: Sequence[Reading],
    keep: int | float,
    settings: Settings | None = None,
    spatial: Tensor | None = None,
) -> Coreset:
    """Select K carriers, assign every token to one and move the population into them.

    Args:
        population: the visual tokens at the boundary.
        readings: how blocks read them, the current one first.
        keep: a count (int) or a fraction (float) of visual tokens.
        settings: the method's numbers.
        spatial: spatial columns of this grid, when the caller keeps them.
    """
    settings = settings or Settings()
    states, coordinates, image_ids, images = population
    checks.lift(states[:0], "states")
    tokens = checks.shape(states, "states", "N d")["N"]
    checks.shape(coordinates, "coordinates", "N axes", N=tokens)
    checks.shape(image_ids, "image_ids", "N", N=tokens)
    if states.device.type == "cpu":  # elsewhere these would each cost a synchronisation
        checks.image_ids(image_ids, images)
        checks.finite({"states": states, "coordinates": coordinates})
        for number, reading in enumerate(readings):
            checks.finite({f"readings[{number}].{n}": t for n, t in reading._asdict().items()})
    kept = realised_keep(keep, tokens, images)
    if kept == tokens:
        return _identity(states)
    grounding = ground(readings, settings)
    clients = clients_of(population, grounding, settings, spatial)
    support = select_support(
        clients.matrix,
        kept,
        image_ids,
        images,
        settings.solver_batch(tokens),
        settings.pool_factor,
        settings.responsibility_temperature,
    )
    assignment = assign(population, support.indices, settings)
    mass = realise.population_mass(grounding.energy, assignment.gate, settings.population_strength)
    moved = realise.transport(
        states, support.indices, assignment.carrier, mass, settings.transport_strength
    )
    return Coreset(
        support=support,
        states=moved,
        indices=support.indices,
        carrier=assignment.carrier,
        mass=mass,
        gate=assignment.gate,
        coverage=bank_report(clients, support.cover),
        finite=torch.isfinite(moved).all() & torch.isfinite(support.cover).all(),
    )


def _identity(states: Tensor) -> Coreset:
    """Nothing to compress: every token carries itself, bit for bit."""
    everyone = torch.arange(len(states), device=states.device)
    dtype = checks.compute_dtype(states.dtype, "states")
    return Coreset(
        support=None,
        states=states,
        indices=everyone,
        carrier=everyone,
        mass=torch.ones(len(states), dtype=dtype, device=states.device),
        gate=torch.zeros((), dtype=dtype, device=states.device),
        coverage=None,
        finite=torch.isfinite(states).all(),
    )
