"""What each carrier holds: assignment, masses, centroids, restored RMS (eq:cond-assignment on).

Nothing here allocates N x K: cosines between discarded tokens and the support are made chunk by
chunk, and only a token's best carrier and its margin survive.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from vicoset.core import checks
from vicoset.core.banks import unit
from vicoset.errors import ImageError

CHUNK = 1 << 22  # elements of the largest temporary, 16 MiB in float32


@dataclass(frozen=True)
class Assignment:
    """Which carrier stands for each token.

    Attributes:
        carrier: pi [N], position in the support (0..K-1) of each token's carrier.
        margin: delta [N], best minus second-best cosine; 0 for kept tokens and lone candidates.
        gate: s_x, scalar, how separable the sample is.
    """

    carrier: Tensor
    margin: Tensor
    gate: Tensor


@checks.full_precision
def assign(
    states: Tensor,
    coordinates: Tensor,
    image_ids: Tensor,
    support: Tensor,
    *,
    images: int | None = None,
    weight: float = 0.5,
    temperature: float = 0.02,
    margin: float = 0.05,
    gate_scale: float = 0.08,
    gate_power: float = 8.0,
) -> Assignment:
    """Give every token the most similar carrier of its image; ambiguous ones prefer a near one.

    Args:
        states: h [N, d].
        coordinates: p [N, axes] in [0, 1].
        image_ids: [N].
        support: [K] kept indices, ascending, at least one per image.
        images: I, when the caller knows it; 1 saves the comparison of image ids.
        weight: lambda_p, weight of the spatial term.
        temperature: tau_s.
        margin: cosine margin under which a token counts as ambiguous.
        gate_scale: mean margin at which s_x opens.
        gate_power: steepness of s_x.
    """
    sizes = checks.shape(states, "states", "N d")
    sizes = checks.shape(coordinates, "coordinates", "N axes", **sizes)
    checks.shape(image_ids, "image_ids", "N", **sizes)
    tokens, kept = sizes["N"], len(support)
    on_host = states.device.type == "cpu" and not torch.compiler.is_compiling()
    if on_host:  # elsewhere this would cost synchronisations
        _check_carriers(support, image_ids, images)
    carriers = unit(states.index_select(0, support))
    own = None if images == 1 else image_ids.index_select(0, support)
    step = max(1, CHUNK // max(kept, sizes["d"]))

    best, margins = [], []
    for start in range(0, tokens, step):
        part = slice(start, min(start + step, tokens))
        cosine = _cosines(states[part], carriers, image_ids[part], own)
        top = cosine.topk(2, dim=1).values if kept > 1 else cosine
        gap = top[:, 0] - top[:, -1]
        margins.append(torch.where(gap.isfinite(), gap, 0.0))  # a lone candidate: no second best
        best.append(_first_best(cosine))
    delta = torch.cat(margins).index_fill(0, support, 0.0)
    discarded = tokens - kept
    mean = delta.sum() / max(discarded, 1)
    gate = -torch.expm1(-((mean / gate_scale) ** gate_power))
    bonus = weight * gate * (1.0 - delta / margin).clamp(0.0, 1.0)

    places = coordinates.to(carriers.dtype)
    targets = places.index_select(0, support)
    carrier = torch.cat(best)
    if on_host:
        # Only an ambiguous token can change its carrier: look at those again.
        again = (bonus > 0).nonzero()[:, 0]
        for rows in torch.split(again, step):
            cosine = _cosines(states[rows], carriers, image_ids[rows], own)
            carrier[rows] = _spatial(cosine, places[rows], targets, bonus[rows], temperature)
    else:
        chosen = []
        for start in range(0, tokens, step):
            part = slice(start, min(start + step, tokens))
            cosine = _cosines(states[part], carriers, image_ids[part], own)
            chosen.append(_spatial(cosine, places[part], targets, bonus[part], temperature))
        carrier = torch.cat(chosen)
    carrier = carrier.index_copy(0, support, torch.arange(kept, device=support.device))
    return Assignment(carrier, delta, gate)


def _check_carriers(support: Tensor, image_ids: Tensor, images: int | None) -> None:
    checks.indices(support, "support", len(image_ids))
    if images == 1:
        return
    alone = image_ids[~torch.isin(image_ids, image_ids[support])]
    if len(alone):
        raise ImageError(
            f"image {int(alone[0])} has no kept token, so {len(alone)} tokens have no carrier; "
            "every image needs one. Keep at least one token of each image."
        )


def _cosines(states: Tensor, carriers: Tensor, image_ids: Tensor, own: Tensor | None) -> Tensor:
    """[n, K]; -inf between images."""
    cosine = unit(states) @ carriers.t()
    if own is None:
        return cosine
    return cosine.masked_fill(image_ids[:, None] != own, float("-inf"))


def _spatial(
    cosine: Tensor, places: Tensor, targets: Tensor, bonus: Tensor, temperature: float
) -> Tensor:
    """argmax of cosine + bonus * exp(-distance^2 / temperature), [n]."""
    near = cosine.new_zeros(())
    for axis in range(places.shape[1]):
        near = near + (places[:, axis, None] - targets[:, axis]).square()
    return _first_best(cosine + bonus[:, None] * near.div(-temperature).exp())


def _first_best(score: Tensor) -> Tensor:
    """The lowest index among the best of each row, [n].

    A matrix product sums its columns in different orders, so equal carriers may differ by a few
    units in the last place: what is that near counts as equal.
    """
    slack = 8 * torch.finfo(score.dtype).eps
    near = score >= score.amax(1, keepdim=True) - slack
    return near.to(torch.uint8).argmax(1)


def population_mass(energy: Tensor, gate: Tensor, strength: float = 0.5) -> Tensor:
    """m_i = (1 - alpha s_x) + alpha s_x e_i (eq:cond-population-gate), [N].

    Args:
        energy: e [N], mean 1.
        gate: s_x.
        strength: alpha.
    """
    return (1.0 - strength * gate) + strength * gate * energy


def cluster_mass(mass: Tensor, carrier: Tensor, kept: int) -> Tensor:
    """M_j, the mass each carrier stands for, [K]."""
    checks.shape(mass, "mass", "N", **checks.shape(carrier, "carrier", "N"))
    mass = checks.lift(mass, "mass")  # float16 would stop counting at 2048
    return mass.new_zeros(kept).index_add(0, carrier, mass)


def centroids(states: Tensor, carrier: Tensor, mass: Tensor, kept: int) -> Tensor:
    """c_j, the weighted mean of each cluster, [K, d] in the compute dtype.

    Args:
        states: h [N, d].
        carrier: pi [N], positions in the support.
        mass: m [N].
        kept: K.
    """
    sizes = checks.shape(carrier, "carrier", "N", **checks.shape(states, "states", "N d"))
    checks.shape(mass, "mass", "N", **sizes)
    dtype = checks.compute_dtype(states.dtype, "states")
    total = torch.zeros(kept, states.shape[1], dtype=dtype, device=states.device)
    step = max(1, CHUNK // states.shape[1])
    for start in range(0, len(states), step):
        part = slice(start, start + step)
        total = total.index_add(0, carrier[part], states[part].to(dtype) * mass[part, None])
    weight = cluster_mass(mass, carrier, kept)
    return total / torch.where(weight == 0, 1.0, weight)[:, None]


def restore_rms(moved: Tensor, carriers: Tensor) -> Tensor:
    """R_j(u) = u rms(h_j) / rms(u); h_j itself where u cancelled to zero, [K, d].

    Args:
        moved: u [K, d].
        carriers: h_j [K, d].
    """
    checks.shape(moved, "moved", "K d", **checks.shape(carriers, "carriers", "K d"))
    moved, carriers = checks.lift(moved, "moved"), checks.lift(carriers, "carriers")
    scale = moved.square().mean(1, keepdim=True).sqrt()
    native = carriers.square().mean(1, keepdim=True).sqrt()
    gone = scale == 0  # NaN is not gone, and stays NaN
    return torch.where(gone, carriers, moved * (native / torch.where(gone, 1.0, scale)))


def transport(
    states: Tensor, support: Tensor, carrier: Tensor, mass: Tensor, strength: float = 1.0
) -> Tensor:
    """h~_j: every carrier moved to its cluster's centroid, at its own RMS (eq:transport).

    Args:
        states: h [N, d].
        support: [K].
        carrier: pi [N].
        mass: m [N].
        strength: tau_j; 0 leaves the carriers as they are, 1 moves them all the way.

    Returns:
        [K, d] in the dtype of ``states``.
    """
    own = checks.lift(states.index_select(0, support), "states")
    centre = centroids(states, carrier, mass.to(own.dtype), len(support))
    moved = own.lerp(centre, strength)
    return restore_rms(moved, own).to(states.dtype)
