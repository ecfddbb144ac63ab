"""The client matrix: all banks in one, preweighted, with its bookkeeping (eq:cond-coverage).

C [M, N] is stored token-major (``C.t()`` is contiguous): a token's column, what it offers to every
client, is what the solver reads all the time.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor

from vicoset.core import banks, checks
from vicoset.core.queries import evenly_spaced
from vicoset.core.settings import Settings

GROUNDED, APPEARANCE, SPATIAL = "grounded", "appearance", "spatial"


class Bank(NamedTuple):
    """Where a bank stands in the client matrix, and the mass it was given."""

    name: str
    start: int
    stop: int
    mass: float


@dataclass(frozen=True)
class Clients:
    """The client matrix with its bookkeeping.

    Attributes:
        matrix: C [M, N] = row mass * row, token-major in memory.
        row_mass: [M] mass of each row, zero on inactive rows.
        banks: the banks, in row order.
    """

    matrix: Tensor
    row_mass: Tensor
    banks: tuple[Bank, ...]

    def bank_sums(self, per_client: Tensor) -> Tensor:
        """Sums of a per-client vector [M] over each bank, [banks]."""
        return torch.stack([per_client[bank.start : bank.stop].sum() for bank in self.banks])

    def active(self) -> Tensor:
        """Clients that carry mass in each bank, [banks] int64."""
        return self.bank_sums((self.row_mass > 0).long())

    def deployed_mass(self) -> Tensor:
        """beta^_b: the mass of each bank's active rows, [banks] (eq:cond-effective-bank-mass)."""
        return self.bank_sums(self.row_mass)

    def attainable(self) -> Tensor:
        """Z_b = F_b(V): what all tokens together cover of each bank, [banks]."""
        return self.bank_sums(self.matrix.amax(1))


@torch.no_grad()  # the matrix is written in place
def build_clients(
    states: Tensor,
    coordinates: Tensor,
    image_ids: Tensor,
    images: int,
    views: Sequence[banks.View],
    head_weights: Tensor,
    query_weights: Tensor,
    settings: Settings | None = None,
    spatial: Tensor | None = None,
) -> Clients:
    """All clients of one sample at one boundary.

    Args:
        states: h [N, d] boundary states of the visual tokens.
        coordinates: p [N, axes] in [0, 1].
        image_ids: [N], 0..I-1.
        images: I.
        views: the current view first, then history in ascending block order; empty for none.
        head_weights: omega [H].
        query_weights: nu [T].
        settings: the method's numbers.
        spatial: columns from :func:`spatial_columns` for this grid, when the caller keeps them.
    """
    settings = settings or Settings()
    sizes = checks.shape(states, "states", "N d")
    tokens = sizes["N"]
    sizes = checks.shape(coordinates, "coordinates", "N axes", **sizes)
    checks.shape(image_ids, "image_ids", "N", **sizes)
    if spatial is None:
        spatial = spatial_columns(coordinates.to(_dtype(states)), image_ids, images, settings)
    checks.shape(spatial, "spatial", "N landmarks", N=tokens)
    features, chosen = appearance_features(states, settings)
    checks.shape(head_weights, "head_weights", "H")
    checks.shape(query_weights, "query_weights", "T")
    counts = [
        sum(view.attention.shape[0] * view.attention.shape[1] for view in views),
        tokens if chosen is None else len(chosen),
        spatial.shape[1],
    ]
    ends = [sum(counts[: i + 1]) for i in range(3)]
    offers = torch.empty(tokens, ends[-1], dtype=_dtype(states), device=states.device)
    row_mass = offers.new_empty(ends[-1])

    _write_grounded(offers, row_mass, views, head_weights, query_weights, settings)
    part = slice(ends[0], ends[1])
    columns = offers[:, part]
    banks.appearance_columns(
        features, chosen, image_ids, images, settings.appearance_temperature, out=columns
    )
    columns.mul_(settings.appearance_mass / counts[1])
    row_mass[part] = settings.appearance_mass / counts[1]
    part = slice(ends[1], ends[2])
    torch.mul(spatial, settings.spatial_mass / counts[2], out=offers[:, part])
    row_mass[part] = settings.spatial_mass / counts[2]
    return Clients(
        matrix=offers.t(),
        row_mass=row_mass,
        banks=(
            Bank(GROUNDED, 0, ends[0], 1.0 if views else 0.0),
            Bank(APPEARANCE, ends[0], ends[1], settings.appearance_mass),
            Bank(SPATIAL, ends[1], ends[2], settings.spatial_mass),
        ),
    )


def spatial_columns(
    coordinates: Tensor, image_ids: Tensor, images: int, settings: Settings
) -> Tensor:
    """The spatial bank of a grid, [N, I * landmarks]; it depends on the grid alone, so keep it."""
    side = settings.landmark_side
    if len(coordinates) > settings.long_prefix:  # many images: keep the bank bounded as a whole
        side = max(1, min(side, math.isqrt(settings.long_clients // images)))
    return banks.spatial_columns(coordinates, image_ids, images, side, settings.spatial_temperature)


def appearance_features(states: Tensor, settings: Settings) -> tuple[Tensor, Tensor | None]:
    """The features x that appearance clients compare, and which tokens are clients (None: all)."""
    tokens, width = states.shape
    if tokens <= settings.long_prefix:
        return banks.unit(states), None
    projection = banks.rademacher(width, settings.long_dimensions, settings.long_seed)
    features = banks.projected_unit(states, projection.to(states.device))
    return features, evenly_spaced(tokens, settings.long_clients, states.device)


def _dtype(states: Tensor) -> torch.dtype:
    return checks.compute_dtype(states.dtype, "states")


def _write_grounded(
    offers: Tensor,
    row_mass: Tensor,
    views: Sequence[banks.View],
    head_weights: Tensor,
    query_weights: Tensor,
    settings: Settings,
) -> None:
    """Grounded rows into the first columns of ``offers``, in the order view, head, query."""
    start = 0
    masses = banks.view_masses(len(views) - 1, settings.current_mass) if views else []
    for view, beta in zip(views, masses, strict=True):
        sizes = {"H": len(head_weights), "T": len(query_weights), "N": len(offers)}
        checks.shape(view.attention, "attention", "H T N", **sizes)
        checks.shape(view.norms, "norms", "H N", **sizes)
        heads, queries, _ = view.attention.shape
        if settings.row_mass == "balanced":
            mass = beta * head_weights[:, None] * query_weights
        else:
            mass = torch.full_like(view.norms[:, :1], beta / (heads * queries)).expand(-1, queries)
        rows, active = banks.grounded_rows(view.attention, view.norms)
        mass = torch.where(active, mass, 0.0)
        stop = start + heads * queries
        row_mass[start:stop] = mass.flatten()
        offers[:, start:stop] = rows.mul_(mass[..., None]).flatten(0, 1).t()
        start = stop
