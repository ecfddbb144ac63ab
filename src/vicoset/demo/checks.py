"""Statements of ``core.bounds`` on one compressed page: each with both of its sides."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import torch
from torch import Tensor

from vicoset.core import bounds, realise
from vicoset.core.banks import unit
from vicoset.core.bounds import Identity, Inequality
from vicoset.core.settings import Settings
from vicoset.demo.measure import Row, Study, random_support
from vicoset.demo.page import rms_norm


class Check(NamedTuple):
    """One statement; of many elements, the sides of the one with the largest left side."""

    name: str
    left: float
    right: float
    identity: bool
    holds: bool


def checks(study: Study, row: Row) -> list[Check]:
    """The statements that bear on a support, its transport and its messages."""
    return [
        _check(name, statement)
        for part in (_coverage(study, row), _transport(study, row), _messages(study, row))
        for name, statement in part
    ]


def _check(name: str, statement: Identity | Inequality) -> Check:
    identity = isinstance(statement, Identity)
    both = statement.lhs + statement.rhs  # for its shape
    left, right = (side.expand_as(both).flatten() for side in (statement.lhs, statement.rhs))
    shown = left.argmax()
    return Check(name, float(left[shown]), float(right[shown]), identity, statement.holds())


def _coverage(study: Study, row: Row) -> Iterator[tuple[str, Identity | Inequality]]:
    matrix, support = study.clients.matrix, row.support
    sizes = [bank.stop - bank.start for bank in study.clients.banks]
    bank = torch.repeat_interleave(torch.arange(len(sizes)), torch.tensor(sizes))
    yield (
        "coverage is the mixture of its banks",
        bounds.bank_mixture(matrix, support.indices, bank, len(sizes)),
    )
    batches = torch.tensor_split(support.order, list(support.starts[1:]))
    rival = random_support(matrix.shape[1], row.keep, 0)
    yield (
        "batch certificate, against a random support",
        bounds.batched_certificate(matrix, support.order[:0], batches, rival, row.keep),
    )
    settings = Settings()
    yield (
        "coverage to quantisation",
        bounds.coverage_to_quantisation(
            _directions(study),
            support.indices,
            settings.appearance_temperature,
            settings.appearance_mass,
        ),
    )


def _transport(study: Study, row: Row) -> Iterator[tuple[str, Identity | Inequality]]:
    population, coreset, settings = study.page.population, row.coreset, Settings()
    states, support, carrier, mass = (
        population.states,
        coreset.indices,
        coreset.carrier,
        coreset.mass,
    )
    given = realise.assign(
        states, population.coordinates, population.image_ids, support, images=population.images
    )
    ambiguity = (1.0 - given.margin / settings.assignment_margin).clamp(0.0, 1.0)
    bonus = settings.assignment_weight * given.gate * ambiguity
    bonus = bonus.index_fill(0, support, 0.0)
    assigned = bounds.assignment_bound(_directions(study), support, carrier, bonus)
    others = torch.ones_like(bonus, dtype=torch.bool).index_fill(0, support, False)
    yield (
        "assignment, per dropped token",
        Inequality(assigned.lhs[others], assigned.rhs[others], scale=torch.ones(())),
    )
    yield "first moment", bounds.first_moment(states, carrier, mass, row.keep)
    yield (
        "pre-transport distortion",
        bounds.pretransport_bound(states, support, carrier, mass, bonus),
    )
    yield (
        "distortion after RMS restoration",
        bounds.rms_split(states, carrier, mass, coreset.states),
    )


def _messages(study: Study, row: Row) -> Iterator[tuple[str, Identity | Inequality]]:
    block, native = study.page.blocks[0], study.page.readings[0].attention
    full, kept = rms_norm(study.page.population.states), rms_norm(row.coreset.states)
    parts = row.transport.identities
    yield (
        "message decomposition, all heads",
        Identity(
            torch.cat([part.lhs for part in parts]),
            torch.cat([part.rhs for part in parts]),
            scale=torch.cat([part.lhs if part.scale is None else part.scale for part in parts]),
        ),
    )
    group = len(native) // len(block.value)
    limits = [
        bounds.message_bound(a, b, row.coreset.carrier, full, kept, block.value[head // group])
        for head, (a, b) in enumerate(zip(native, row.transport.compact, strict=True))
    ]
    yield (
        "message bound, per head and query",
        Inequality(torch.cat([x.lhs for x in limits]), torch.cat([x.rhs for x in limits])),
    )
    value = block.value.repeat_interleave(group, 0).mT
    message, other = native @ (full @ value), row.transport.compact @ (kept @ value)
    yield "direction and magnitude", bounds.direction_magnitude(message, other)


def _directions(study: Study) -> Tensor:
    return unit(study.page.population.states)
