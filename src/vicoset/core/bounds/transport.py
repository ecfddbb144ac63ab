"""Population transport: what the centroid keeps, and what every later step costs.

Shapes throughout: ``states`` h [N, d], ``carrier`` pi [N] (positions 0..K-1 in the support list),
``masses`` m [N] > 0, ``support`` [K] token indices. Every carrier is in its own population.
"""

from __future__ import annotations

import torch
from torch import Tensor

from .geometry import centroids, cluster_sum, directions, nearest_squared, squared_chords
from .statement import Identity, Inequality


def first_moment(
    states: Tensor, carrier: Tensor, masses: Tensor, kept: int, linear: Tensor | None = None
) -> Identity:
    """sum_j M_j W c_j = sum_i m_i W h_i -> [r] (eq:cond-signed-moment, eq:cond-linear-moment).

    ``linear`` W [r, d]; the identity map when None. True before RMS restoration only, and only
    for the full centroid (tau_j = 1).
    """
    total, centre = centroids(states, carrier, masses, kept)
    magnitude = masses @ states.abs()
    if linear is None:
        return Identity(total @ centre, masses @ states, scale=magnitude)
    lhs = total @ (centre @ linear.T)
    return Identity(lhs, masses @ (states @ linear.T), scale=linear.abs() @ magnitude)


def _distortion(states: Tensor, carrier: Tensor, masses: Tensor, points: Tensor) -> Tensor:
    """sum_{i in C_j} m_i ||h_i - u_j||^2 -> [K] for points u [K, d]."""
    errors = (states - points[carrier]).square().sum(-1)
    return cluster_sum(masses * errors, carrier, points.shape[0])


def _energy(states: Tensor, carrier: Tensor, masses: Tensor, *points: Tensor) -> Tensor:
    """Sum over i of m_i (||h_i||^2 + sum over points ||u_pi(i)||^2) -> scalar: a rounding scale."""
    size = states.square().sum(-1)
    for point in points:
        size = size + point.square().sum(-1)[carrier]
    return masses @ size


def centroid_optimality(
    states: Tensor, carrier: Tensor, masses: Tensor, points: Tensor
) -> Identity:
    """E_j(u) = E_j(c_j) + M_j ||u - c_j||^2 per carrier [K] (eq:cond-centroid-optimum).

    ``points`` u [K, d] are any representatives; since M_j > 0, c_j is the only minimiser.
    """
    total, centre = centroids(states, carrier, masses, points.shape[0])
    least = _distortion(states, carrier, masses, centre)
    excess = total * (points - centre).square().sum(-1)
    lhs = _distortion(states, carrier, masses, points)
    terms = {"least": least, "excess": excess}
    scale = _energy(states, carrier, masses, points)
    return Identity(lhs, least + excess, terms, scale)


def radial_split(states: Tensor, support: Tensor, carrier: Tensor) -> Identity:
    """||h_i - h_j||^2 = varrho_i varrho_j ||x_i - x_j||^2 + (varrho_i - varrho_j)^2, per token [N].

    Here j = pi(i). The exact form of the step before eq:cond-pretransport, which bounds the left
    side by twice the right one. Zero states are included: their radius removes the direction term.
    """
    radii, features = directions(states)
    chords = squared_chords(features, features[support]).gather(1, carrier[:, None]).squeeze(1)
    other = radii[support][carrier]
    lhs = (states - states[support][carrier]).square().sum(-1)
    angular, radial = radii * other * chords, (radii - other).square()
    terms = {"angular": angular, "radial": radial}
    return Identity(lhs, angular + radial, terms, scale=(radii + other).square())


def pretransport_bound(
    states: Tensor,
    support: Tensor,
    carrier: Tensor,
    masses: Tensor,
    bonus_limit: Tensor,
    image: Tensor | None = None,
    blend: float = 1.0,
) -> Inequality:
    """E_pre <= varrho_max^2 [m_max N dbar^2 + Xi_I + 2 Lambda] + E_scale (eq:cond-pretransport).

    The printed bound is twice this one (``printed``): `radial_split` is exact, so its factor 2
    is not needed. ``bonus_limit`` lambda_i [N] and the assignment as in `assignment_bound`;
    ``image`` [N] or None. Terms: ``quantisation`` m_max N dbar^2 (facility), ``exclusion`` Xi_I
    (carriers of other images), ``bonus`` Lambda (spatial slack), ``radial`` E_scale.

    ``blend`` is tau in [0, 1]: the representative (1 - tau) h_j + tau c_j lies between the carrier
    and the centroid, so its distortion is at most the carrier's and the same bound holds.
    """
    radii, features = directions(states)
    tokens = torch.arange(states.shape[0], device=states.device)
    anywhere, inside = nearest_squared(features, tokens, support, image)
    _, centre = centroids(states, carrier, masses, support.numel())
    points = (1 - blend) * states[support] + blend * centre
    widest = radii.amax().square()
    terms = {
        "quantisation": masses.amax() * anywhere.sum(),
        "exclusion": masses @ (inside - anywhere),
        "bonus": masses @ bonus_limit,
        "radial": masses @ (radii - radii[support][carrier]).square(),
        "radius_squared": widest,
    }
    rhs = widest * (terms["quantisation"] + terms["exclusion"] + 2 * terms["bonus"])
    rhs = rhs + terms["radial"]
    lhs = _distortion(states, carrier, masses, points).sum()
    return Inequality(lhs, rhs, terms | {"printed": 2 * rhs}, scale=widest * masses.sum())


def rms_bound(
    states: Tensor, carrier: Tensor, masses: Tensor, before: Tensor, after: Tensor, beta: float
) -> Inequality:
    """E_post <= (1 + beta) E_pre + (1 + 1/beta) sum_j M_j zeta_j^2, beta > 0 (eq:cond-rms-bound).

    ``before`` u_j and ``after`` R_j(u_j) [K, d] are the representatives around RMS restoration
    and zeta_j = ||R_j(u_j) - u_j||. Holds for any representatives, so for any tau_j; when u_j is
    the centroid, `rms_split` says exactly what this bounds.
    """
    kept = before.shape[0]
    pre = _distortion(states, carrier, masses, before).sum()
    correction = cluster_sum(masses, carrier, kept) @ (after - before).square().sum(-1)
    post = _distortion(states, carrier, masses, after).sum()
    terms = {"pre": pre, "correction": correction}
    rhs = (1 + beta) * pre + (1 + 1 / beta) * correction
    return Inequality(post, rhs, terms, scale=_energy(states, carrier, masses, before, after))


def rms_split(states: Tensor, carrier: Tensor, masses: Tensor, after: Tensor) -> Identity:
    """E_post = E_pre + sum_j M_j zeta_j^2 when restoration starts from the centroid (tau_j = 1).

    `centroid_optimality` at u = ``after`` [K, d]: the cross term that eq:cond-rms-bound splits by
    Young's inequality is zero there, so the deployed method needs no beta.
    """
    parts = centroid_optimality(states, carrier, masses, after)
    pre, correction = parts.terms["least"].sum(), parts.terms["excess"].sum()
    terms = {"pre": pre, "correction": correction}
    scale = _energy(states, carrier, masses, after)
    return Identity(parts.lhs.sum(), pre + correction, terms, scale)
