"""Populations and directions: the few operations the statements share."""

from __future__ import annotations

import torch
from torch import Tensor


def cluster_sum(values: Tensor, carrier: Tensor, kept: int) -> Tensor:
    """Sum ``values`` [N, ...] over the population of each carrier -> [K, ...].

    ``carrier`` [N] is the position (0..K-1) of every token's carrier in the support list.
    """
    return values.new_zeros((kept, *values.shape[1:])).index_add(0, carrier, values)


def centroids(states: Tensor, carrier: Tensor, masses: Tensor, kept: int) -> tuple[Tensor, Tensor]:
    """Population masses M_j [K] and centroids c_j [K, d] of ``states`` [N, d], ``masses`` [N].

    A carrier without population (M_j = 0) gets the zero centroid; it has no weight anywhere.
    """
    total = cluster_sum(masses, carrier, kept)
    moment = cluster_sum(masses[:, None] * states, carrier, kept)
    return total, moment / torch.where(total > 0, total, 1)[:, None]


def directions(states: Tensor) -> tuple[Tensor, Tensor]:
    """Radii varrho_i [N] and unit features x_i [N, d] of ``states`` [N, d]; zero stays zero."""
    radii = torch.linalg.vector_norm(states, dim=-1)
    return radii, states / torch.where(radii > 0, radii, 1)[:, None]


def squared_chords(rows: Tensor, columns: Tensor) -> Tensor:
    """2 (x_i.x_i - x_i.x_j) for ``rows`` [M, d] and ``columns`` [K, d] -> [M, K].

    Between unit features this is ||x_i - x_j||^2. A zero state has no direction and keeps the
    zero feature; measured this way it is at distance 0 from everything, and everything else at
    squared distance 2 from it, which is what its cosine of 0 says. The statements about
    directions then hold for zero states too, where the Euclidean distance would break them.
    """
    distance = torch.cdist(rows, columns, compute_mode="donot_use_mm_for_euclid_dist")
    alive = (rows != 0).any(-1)[:, None].to(rows.dtype) - (columns != 0).any(-1).to(rows.dtype)
    return distance.square() + alive


def same_image(image: Tensor | None, rows: Tensor, columns: Tensor) -> Tensor:
    """Which of tokens ``columns`` [K] share the image of tokens ``rows`` [M] -> bool [M, K].

    ``image`` [N] holds image ids; None means one image.
    """
    if image is None:
        return torch.ones(len(rows), len(columns), dtype=torch.bool, device=rows.device)
    return image[rows][:, None] == image[columns][None, :]


def nearest_squared(
    features: Tensor, rows: Tensor, support: Tensor, image: Tensor | None
) -> tuple[Tensor, Tensor]:
    """d_m(S)^2 over the whole support and d_m^I(S)^2 over the same image's part of it, [M] each.

    ``features`` [N, d] unit or zero, ``rows`` [M] and ``support`` [K] token indices. An image
    without a carrier gives an infinite d_m^I.
    """
    chords = squared_chords(features[rows], features[support])
    inside = chords.masked_fill(~same_image(image, rows, support), torch.inf)
    return chords.amin(1), inside.amin(1)
