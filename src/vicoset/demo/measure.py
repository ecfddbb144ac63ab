"""Compress the page at several budgets and compare what the current block then reads.

A message is what a head hands over for a query from the visual tokens: attention times values. The
relative signed message error stacks the messages of all heads and queries, weighted by head and
query as the grounded clients are, and divides the norm of the change by the norm of the whole
(eq:cond-message-error). Compact attention is computed anew, from the keys of the carriers.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from vicoset.core import realise
from vicoset.core.bounds import Identity, batched_certificate, message_decomposition
from vicoset.core.clients import Clients
from vicoset.core.coreset import Coreset, Grounding, build_coreset, clients_of, ground
from vicoset.core.coverage import BankReport, bank_report, cover
from vicoset.core.support import Support
from vicoset.demo.page import BEFORE, Page, attention, rms_norm

DRAWS = 3  # random supports per budget


class Fidelity(NamedTuple):
    """Relative signed message errors, and the share of each part of the decomposition.

    Attributes:
        error: ||Y - Y~|| / ||Y||.
        representation: norm of the representation term over ||Y||.
        mass: norm of the attention mass term over ||Y||.
        compact: A-bar [H, T, K], attention on the carriers.
        identities: the decomposition of each head.
    """

    error: float
    representation: float
    mass: float
    compact: Tensor
    identities: tuple[Identity, ...]


class Row(NamedTuple):
    """What was measured at one budget.

    Attributes:
        keep: realised K.
        coreset: the coreset.
        support: how its support was found.
        certificate: c_B, computed again from the rounds, so that it is the same on every path.
        coverage: coverage of its support, by bank.
        transport: its message error.
        deletion: the same support with the states left as they are.
        random_coverage: coverage of each random support.
        random_transport: message error of random supports with transport, mean over the draws.
        random_deletion: and with the states left as they are.
    """

    keep: int
    coreset: Coreset
    support: Support
    certificate: float
    coverage: BankReport
    transport: Fidelity
    deletion: Fidelity
    random_coverage: tuple[BankReport, ...]
    random_transport: float
    random_deletion: float


class Study(NamedTuple):
    """The page, its clients, and one row per budget."""

    page: Page
    grounding: Grounding
    clients: Clients
    rows: tuple[Row, ...]


def study(page: Page, keeps: list[int], seed: int = 0) -> Study:
    """Measure the page at every realised budget in ``keeps``, each below N."""
    grounding = ground(page.readings)
    clients = clients_of(page.population, grounding)
    rows = tuple(_measure(page, grounding, clients, keep, seed) for keep in keeps)
    return Study(page, grounding, clients, rows)


def fidelity(
    page: Page, grounding: Grounding, support: Tensor, carrier: Tensor, kept: Tensor
) -> Fidelity:
    """Message error when the carriers at ``support`` [K] hold ``kept`` [K, d]."""
    block, full = page.blocks[0], page.population.states
    before, after = block.states[:BEFORE], block.states[page.visual[-1] + 1 :]
    shorter = torch.cat([before, kept, after])
    places = torch.arange(BEFORE, BEFORE + len(support))
    positions = page.positions - (len(full) - len(support))
    compact = attention(block, shorter, positions, places)
    native = page.readings[0].attention
    group = len(native) // len(block.value)

    weight = (grounding.head_weights[:, None] * grounding.query_weights).sqrt()
    identities, stacked = [], []
    for head, (a, b) in enumerate(zip(native, compact, strict=True)):
        value = block.value[head // group]
        parts = message_decomposition(a, b, carrier, rms_norm(full), rms_norm(kept), value)
        message = a @ (rms_norm(full) @ value.T)
        terms = (message, parts.lhs, parts.terms["representation"], parts.terms["mass"])
        stacked.append(torch.stack(terms) * weight[head, :, None])
        identities.append(parts)
    size, error, moved, mass = torch.stack(stacked, 1).flatten(1).norm(dim=1)
    return Fidelity(
        error=float(error / size),
        representation=float(moved / size),
        mass=float(mass / size),
        compact=compact,
        identities=tuple(identities),
    )


def random_support(tokens: int, keep: int, seed: int) -> Tensor:
    """[K] distinct tokens, ascending, each set equally likely."""
    random = torch.Generator(device="cpu").manual_seed(seed)
    return torch.randperm(tokens, generator=random)[:keep].sort().values


def _measure(page: Page, grounding: Grounding, clients: Clients, keep: int, seed: int) -> Row:
    states = page.population.states
    coreset = build_coreset(page.population, page.readings, keep)
    if coreset.support is None or coreset.coverage is None:
        raise RuntimeError(f"keep={keep} of {len(states)} tokens compressed nothing")
    chosen = coreset.indices
    coverage, moved, left = [], [], []
    for draw in range(DRAWS):
        support = random_support(len(states), keep, 1000 * (seed + 1) + draw)
        carrier, kept = _transport(page, grounding, support)
        coverage.append(bank_report(clients, cover(clients.matrix, support)))
        moved.append(fidelity(page, grounding, support, carrier, kept).error)
        left.append(fidelity(page, grounding, support, carrier, states[support]).error)
    return Row(
        keep=keep,
        coreset=coreset,
        support=coreset.support,
        certificate=_certificate(clients, coreset.support),
        coverage=coreset.coverage,
        transport=fidelity(page, grounding, chosen, coreset.carrier, coreset.states),
        deletion=fidelity(page, grounding, chosen, coreset.carrier, states[chosen]),
        random_coverage=tuple(coverage),
        random_transport=sum(moved) / DRAWS,
        random_deletion=sum(left) / DRAWS,
    )


def _certificate(clients: Clients, support: Support) -> float:
    batches = torch.tensor_split(support.order, list(support.starts[1:]))
    keep = len(support.order)
    rounds = batched_certificate(clients.matrix, support.order[:0], batches, support.indices, keep)
    return float(rounds.terms["certificate"])


def _transport(page: Page, grounding: Grounding, support: Tensor) -> tuple[Tensor, Tensor]:
    """Assignment [N] and transported states [K, d] of any support, as in ``build_coreset``."""
    states, coordinates, image_ids, images = page.population
    given = realise.assign(states, coordinates, image_ids, support, images=images)
    mass = realise.population_mass(grounding.energy, given.gate)
    return given.carrier, realise.transport(states, support, given.carrier, mass)
