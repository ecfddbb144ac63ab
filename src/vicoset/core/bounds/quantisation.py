"""From facility deficit to the distance between a token and the carrier that stands for it."""

from __future__ import annotations

import torch
from torch import Tensor

from .geometry import nearest_squared, same_image, squared_chords
from .statement import Identity, Inequality


def _appearance_rows(
    features: Tensor, clients: Tensor, temperature: float, image: Tensor | None
) -> Tensor:
    """P^V [M, N]: softmax of x_m.x_i / tau_v over the tokens of client m's image."""
    tokens = torch.arange(features.shape[0], device=features.device)
    scores = features[clients] @ features.T / temperature
    return scores.masked_fill(~same_image(image, clients, tokens), -torch.inf).softmax(1)


def _modes(
    features: Tensor,
    support: Tensor,
    temperature: float,
    image: Tensor | None,
    clients: Tensor | None,
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Client indices [M], rows P [M, N], self mass P_m(m) [M], modal ratio r_m(S) [M]."""
    if clients is None:
        clients = torch.arange(features.shape[0], device=features.device)
    rows = _appearance_rows(features, clients, temperature, image)
    own = rows.gather(1, clients[:, None]).squeeze(1)
    return clients, rows, own, rows[:, support].amax(1) / own


def gibbs_identity(
    features: Tensor,
    support: Tensor,
    temperature: float,
    image: Tensor | None = None,
    clients: Tensor | None = None,
) -> Identity:
    """r_m(S) = exp(-d_m(S)^2 / (2 tau_v)) per appearance client [M] (eq:cond-gibbs).

    ``features`` [N, d] unit (or zero, see `squared_chords`), ``support`` [K], ``clients`` [M]
    token indices (every token when None). Rows live on their own image, so with several images
    (``image`` [N]) the distance is the one to the same image's carriers, d_m^I(S); each image
    must hold a carrier.
    """
    clients, _, own, ratio = _modes(features, support, temperature, image, clients)
    _, inside = nearest_squared(features, clients, support, image)
    rhs = torch.exp(-inside / (2 * temperature))
    terms = {"squared_distance": inside, "self_mass": own}
    # The scores are x.x / tau_v, so a rounding of the cosine reaches the exponent as 1 / tau_v.
    return Identity(ratio, rhs, terms, scale=rhs * (1 + 1 / temperature))


def coverage_to_quantisation(
    features: Tensor,
    support: Tensor,
    temperature: float,
    bank_mass: float,
    image: Tensor | None = None,
    clients: Tensor | None = None,
) -> Inequality:
    """mean_m d_m(S)^2 <= 2 tau_v / (beta_V p_0 r_0) D_V(S) (eq:cond-coverage-quantization).

    Arguments as in `gibbs_identity`; ``bank_mass`` is beta_V, spread equally over the clients.
    p_0 is the least self mass, r_0 the least modal ratio, D_V the bank's facility deficit (a
    row's largest entry is its own, by unit normalisation). With several images the left side
    is the same-image distance, which is at least the printed one (``anywhere``).

    The step -log r <= (1 - r) / r_0 gives away a little: -log r / (1 - r) decreases in r, so
    1 / r_0 can be replaced by log(1 / r_0) / (1 - r_0). ``sharp`` is the bound with it.
    """
    clients, rows, own, ratio = _modes(features, support, temperature, image, clients)
    anywhere, inside = nearest_squared(features, clients, support, image)
    least_own, least_ratio = own.amin(), ratio.amin()
    deficit = bank_mass * (rows.amax(1) - rows[:, support].amax(1)).mean()
    slope = 2 * temperature / (bank_mass * least_own)
    spread = 1 - least_ratio
    curve = torch.where(spread > 0, -least_ratio.log() / torch.where(spread > 0, spread, 1), 1)
    terms = {
        "deficit": deficit,
        "p_0": least_own,
        "r_0": least_ratio,
        "anywhere": anywhere.mean(),
        "sharp": slope * curve * deficit,
    }
    scale = 1 + slope / least_ratio * bank_mass * own.mean() * (1 + 1 / temperature)
    return Inequality(inside.mean(), slope / least_ratio * deficit, terms, scale)


def grounded_mode(energies: Tensor, support: Tensor, preweights: Tensor) -> Identity:
    """max_{j in S} e_gj = max_i e_gi - (Z_g / alpha_g) D_g^G, per row [G] (eq:cond-grounded-mode).

    ``energies`` [G, N] non-negative, ``preweights`` alpha_g > 0 [G]. An inactive row (Z_g = 0)
    reads 0 = 0.
    """
    total = energies.sum(1)
    rows = energies / torch.where(total > 0, total, 1)[:, None]
    deficit = preweights * (rows.amax(1) - rows[:, support].amax(1))
    largest = energies.amax(1)
    rhs = largest - total / preweights * deficit
    return Identity(energies[:, support].amax(1), rhs, {"deficit": deficit}, scale=largest)


def assignment_bound(
    features: Tensor,
    support: Tensor,
    carrier: Tensor,
    bonus_limit: Tensor,
    image: Tensor | None = None,
) -> Inequality:
    """||x_i - x_pi(i)||^2 <= d_i^I(S)^2 + 2 lambda_i, per token [N] (eq:cond-assignment-bound).

    ``features`` [N, d] unit or zero, ``support`` [K], ``carrier`` [N] positions in the support,
    ``bonus_limit`` lambda_i >= 0 [N]. It holds for a token whose carrier maximises
    cosine + bonus over the carriers of its image, with every bonus in [0, lambda_i], and for a
    selected token that keeps itself, whose left side is 0. Distances are those of
    `squared_chords`: as Euclidean distances the statement needs every carrier to be a unit
    vector, since a zero state can be nearest without having the largest cosine.
    """
    tokens = torch.arange(features.shape[0], device=features.device)
    anywhere, inside = nearest_squared(features, tokens, support, image)
    chords = squared_chords(features, features[support])
    lhs = chords.gather(1, carrier[:, None]).squeeze(1)
    terms = {"nearest": inside, "anywhere": anywhere}
    return Inequality(lhs, inside + 2 * bonus_limit, terms, scale=torch.ones_like(lhs))
