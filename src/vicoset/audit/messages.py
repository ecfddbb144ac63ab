"""Signed messages: what the image tells the prompt at a block, in Full and behind a compaction.

A message is native attention times native values, before the output projection
(eq:cond-native-message): Full's ``y_g = sum_i a_gi v_i`` over the visual tokens and the compact
``y~_g = sum_j a_gj v~_j`` over the carriers, for every query row and head g. Both come from what
the block's attention was called with in each of the two runs, and everything is float64.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import torch
from torch import Tensor

from vicoset.audit.checks import Check, check
from vicoset.audit.path import Path
from vicoset.audit.rows import HeadRows, head_rows
from vicoset.core.bounds import (
    direction_lower_bounds,
    direction_magnitude,
    message_bound,
    message_budget,
    message_decomposition,
    softmax_mass_bound,
)
from vicoset.core.bounds.statement import Identity, Inequality
from vicoset.runtime.tap import Seen

EPSILON = 1e-8  # eq:cond-message-error


@dataclass(frozen=True)
class Messages:
    """The messages of one block, stacked over heads and queries with the weights omega_h nu_t.

    A stack weighs a message by the root of its weight, so that squared norms are weighted sums.

    Attributes:
        block: whose attention.
        error: e_M = ||Y - Y~|| / (||Y|| + 1e-8).
        direction: kappa, the cosine of Y and Y~; None where one of them is 0.
        amplitude: alpha = ||Y~|| / ||Y||; None where Y is 0.
        norm: ||Y||.
        representation: norm of the part of Y - Y~ that carriers cause by holding other values than
            the tokens they stand for, over ||Y||.
        mass: norm of the part that changed attention to the clusters causes, over ||Y||. The two
            parts add up to Y - Y~ as vectors, not as norms.
        budget: the norms' bound (sum_g eta_g B_g^2)^(1/2) / ||Y||, at least ||Y - Y~|| / ||Y||.
        grouped: mean over g, by weight, of ||M_g - a~_g||_1: what clusters gained or lost.
        grouped_bound: mean of its softmax bound ||u_g^F - u_g^S||_inf; inf where a query sees a
            cluster without its carrier.
        grouped_sharp: mean of 2 tanh(range / 4), the best such bound.
        attention: mean of s_g, what the image gets of Full's attention.
        compact_attention: what the carriers get behind the compaction.
        checks: the statements that were looked at, each on all g.
    """

    block: int
    error: float
    direction: float | None
    amplitude: float | None
    norm: float
    representation: float
    mass: float
    budget: float
    grouped: float
    grouped_bound: float
    grouped_sharp: float
    attention: float
    compact_attention: float
    checks: tuple[Check, ...]


@dataclass(frozen=True)
class _Head:
    """One head: messages and parts [T, dh], masses [T], and the statements."""

    weights: Tensor
    full: Tensor
    compact: Tensor
    representation: Tensor
    mass: Tensor
    errors: Tensor
    budgets: Tensor
    grouped: Inequality
    attention: Tensor
    compact_attention: Tensor
    decomposition: Identity
    bound: Inequality


def messages_at(block: int, full: Seen, compact: Seen, path: Path) -> Messages:
    """What became of a block's messages.

    Args:
        block: its number.
        full: what its attention was called with in the uncompressed run.
        compact: the same behind the compactions.
        path: of the prompt to this block.
    """
    heads = list(_heads(full, compact, path))
    y, z, representation, mass = (
        torch.stack([head.weights.sqrt()[:, None] * getattr(head, name) for head in heads])
        for name in ("full", "compact", "representation", "mass")
    )
    weights = torch.cat([head.weights for head in heads])
    size = torch.linalg.vector_norm(y)
    over = torch.where(size > 0, size, 1.0)
    budget = message_budget(
        torch.cat([head.errors for head in heads]),
        torch.cat([head.budgets for head in heads]),
        weights,
    )
    direction, amplitude, polar = _polar(y, z)

    def mean(rows: list[Tensor]) -> float:
        return float(weights @ torch.cat(rows))

    return Messages(
        block=block,
        error=float(torch.linalg.vector_norm(y - z) / (size + EPSILON)),
        direction=direction,
        amplitude=amplitude,
        norm=float(size),
        representation=float(torch.linalg.vector_norm(representation) / over),
        mass=float(torch.linalg.vector_norm(mass) / over),
        budget=float(budget.rhs / over),
        grouped=mean([head.grouped.lhs for head in heads]),
        grouped_bound=mean([head.grouped.rhs for head in heads]),
        grouped_sharp=mean([head.grouped.terms["sharp"] for head in heads]),
        attention=mean([head.attention for head in heads]),
        compact_attention=mean([head.compact_attention for head in heads]),
        checks=(
            *_checks(heads),
            check("stacked message error <= budget", budget),
            *polar,
        ),
    )


def _heads(full: Seen, compact: Seen, path: Path) -> Iterator[_Head]:
    device = full.queries.device
    query_weights = path.query_weights.double().to(device)
    rows = zip(
        path.head_weights.double().tolist(),
        head_rows(full, path.queries),
        head_rows(compact, path.compact_queries),
        strict=True,
    )
    for weight, before, behind in rows:
        yield _head(weight * query_weights, before, behind, path)


def _head(weights: Tensor, before: HeadRows, behind: HeadRows, path: Path) -> _Head:
    attention = before.attention[:, path.visual]
    realised = behind.attention[:, path.slots]
    values, kept = before.values[path.visual], behind.values[path.slots]
    identity = torch.eye(values.shape[1], dtype=values.dtype, device=values.device)
    given = attention, realised, path.carrier, values, kept, identity
    parts, bound = message_decomposition(*given), message_bound(*given)
    grouped = softmax_mass_bound(
        before.scores[:, path.visual],
        behind.scores[:, path.slots],
        path.carrier,
        torch.cat([before.scores[:, path.others], before.sink], 1),
        torch.cat([behind.scores[:, path.compact_others], behind.sink], 1),
    )
    return _Head(
        weights=weights,
        full=attention @ values,
        compact=realised @ kept,
        representation=parts.terms["representation"],
        mass=parts.terms["mass"],
        errors=bound.lhs,
        budgets=bound.rhs,
        grouped=grouped,
        attention=attention.sum(1),
        compact_attention=realised.sum(1),
        decomposition=parts,
        bound=bound,
    )


def _checks(heads: list[_Head]) -> Iterator[Check]:
    """The statements that speak of single heads, on all of them."""
    yield worst([check("message error = representation + mass", h.decomposition) for h in heads])
    yield worst([check("message error <= its two norms", h.bound) for h in heads])
    yield worst([check("grouped mass error <= softmax bound", h.grouped) for h in heads])
    sharp = [
        Inequality(h.grouped.lhs, h.grouped.terms["sharp"], {}, h.grouped.scale) for h in heads
    ]
    yield worst([check("grouped mass error <= sharp bound", one) for one in sharp])


def worst(found: list[Check]) -> Check:
    """The one that fails, else the one with the least slack.

    Args:
        found: the same statement in several places; at least one.
    """
    return min(found, key=lambda one: (one.holds, one.slack))


def _polar(y: Tensor, z: Tensor) -> tuple[float | None, float | None, list[Check]]:
    """kappa, alpha and the statements about them, as far as they are defined."""
    if not bool(y.any()):
        return None, None, []
    identity = direction_magnitude(y, z)
    amplitude = float(identity.terms["alpha"])
    direction = float(identity.terms["kappa"]) if bool(z.any()) else None
    return (
        direction,
        amplitude,
        [
            check("squared error = direction and amplitude", identity),
            check("amplitude and direction <= error", direction_lower_bounds(y, z)),
        ],
    )
