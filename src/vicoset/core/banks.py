"""The three banks of clients.

A client is a distribution over visual tokens that the support has to cover. Grounded clients say
what the prompt reads, appearance clients what the image looks like, spatial clients where things
are. Appearance and spatial rows come transposed, as columns over tokens, because that is how the
client matrix stores them.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import torch
from torch import Tensor

from vicoset.core import checks
from vicoset.errors import ShapeError

ROW_CHUNK = 1024


class View(NamedTuple):
    """One block's reading of the image.

    Attributes:
        attention: A [H, T, N], native softmax, visual columns.
        norms: n [H, N], atom norms.
    """

    attention: Tensor
    norms: Tensor


def view_masses(history: int, current_mass: float = 0.5) -> list[float]:
    """beta_v, the current view first; without history it takes the whole grounded mass."""
    if history == 0:
        return [1.0]
    return [current_mass] + [(1.0 - current_mass) / history] * history


def grounded_rows(attention: Tensor, norms: Tensor) -> tuple[Tensor, Tensor]:
    """Message atom norms, normalised over the tokens (eq:cond-grounded-client).

    Args:
        attention: A [H, T, N].
        norms: n [H, N].

    Returns:
        rows [H, T, N] and active [H, T]; a row without energy is zero and inactive.
    """
    sizes = checks.shape(attention, "attention", "H T N")
    checks.shape(norms, "norms", "H N", **sizes)
    rows = checks.lift(attention, "attention") * checks.lift(norms, "norms")[:, None]
    total = rows.sum(-1, keepdim=True)
    active = total > 0
    # Divided, not multiplied by 1 / total: that overflows where the image is hardly read at all.
    return rows.div_(torch.where(active, total, 1.0)), active[..., 0]


def unit(states: Tensor) -> Tensor:
    """x_i = h_i / ||h_i|| in the compute dtype, [N, d]; a zero state stays zero."""
    lifted = checks.lift(states, "states")
    # Scaled by the largest entry first: squares of extreme states neither overflow nor vanish.
    peak = torch.linalg.vector_norm(lifted, ord=float("inf"), dim=-1, keepdim=True)
    scaled = lifted / torch.where(peak > 0, peak, 1.0)
    length: Tensor = torch.linalg.vector_norm(scaled, dim=-1, keepdim=True)
    return scaled.div_(length.clamp_min(0.5))


def rademacher(width: int, dimensions: int = 128, seed: int = 104729) -> Tensor:
    """[d, dimensions] of random signs over sqrt(dimensions), the same on every machine's CPU."""
    generator = torch.Generator(device="cpu").manual_seed(seed)
    shape = (width, dimensions)
    signs = torch.randint(0, 2, shape, generator=generator, dtype=torch.float32, device="cpu")
    return (signs * 2 - 1) / math.sqrt(dimensions)


@checks.full_precision
def projected_unit(states: Tensor, projection: Tensor) -> Tensor:
    """Unit states, projected and renormalised, [N, dimensions]; ``ROW_CHUNK`` rows at a time."""
    parts = [
        unit(unit(part) @ projection.to(part.device, checks.compute_dtype(part.dtype)))
        for part in torch.split(states, ROW_CHUNK)
    ]
    return torch.cat(parts)


@checks.full_precision
def appearance_columns(
    features: Tensor,
    clients: Tensor | None,
    image_ids: Tensor,
    images: int,
    temperature: float = 0.2,
    out: Tensor | None = None,
) -> Tensor:
    """Appearance rows, transposed: column m is the softmax over i of x_m . x_i / temperature.

    Args:
        features: x [N, d], unit or zero.
        clients: [M] token indices of the clients; None for every token.
        image_ids: [N]; a client covers the tokens of its own image only.
        images: I.
        temperature: tau_v.
        out: [N, M] to write into.

    Returns:
        [N, M].
    """
    wanted = features if clients is None else features.index_select(0, clients)
    logits = torch.mm(features, wanted.t(), out=out)
    # A client's largest possible cosine: with itself, 1, or 0 for a zero state.
    logits.sub_(wanted.square().sum(1)).div_(temperature).exp_()
    if images > 1:
        own = image_ids if clients is None else image_ids.index_select(0, clients)
        logits.masked_fill_(image_ids[:, None] != own, 0.0)
    return logits.div_(logits.sum(0))


def landmarks(axes: int, side: int = 16, dtype: torch.dtype = torch.float32) -> Tensor:
    """Cell centres of [0, 1]^axes: side x side of them, with a time axis side/4 x (side/2)^2."""
    if axes == 2:
        return grid_coordinates(side, side, dtype=dtype)
    if axes != 3:
        raise ShapeError(f"coordinates have {axes} axes; allowed are 2 (y, x) and 3 (t, y, x).")
    return grid_coordinates(max(1, side // 4), *[max(1, side // 2)] * 2, dtype=dtype)


def grid_coordinates(*counts: int, dtype: torch.dtype = torch.float32) -> Tensor:
    """Cell centres of a (rows, columns) or (frames, rows, columns) grid, row-major, [N, axes]."""
    centres = [(torch.arange(n, dtype=dtype) + 0.5) / n for n in counts]
    return torch.stack(torch.meshgrid(*centres, indexing="ij"), -1).flatten(0, -2)


def spatial_columns(
    coordinates: Tensor,
    image_ids: Tensor,
    images: int,
    side: int = 16,
    temperature: float = 0.02,
) -> Tensor:
    """Spatial rows, transposed: softmax over an image's tokens of -||p_i - l||^2 / temperature.

    Args:
        coordinates: p [N, axes] in [0, 1], (y, x) or (t, y, x).
        image_ids: [N].
        images: I.
        side: landmarks per image side.
        temperature: tau_s.

    Returns:
        [N, I * landmarks], image-major.
    """
    marks = landmarks(coordinates.shape[1], side, coordinates.dtype).to(coordinates.device)
    distance = (coordinates[:, None] - marks).square().sum(-1)  # [N, landmarks]
    logits = distance.div_(-temperature)
    parts = []
    for image in range(images):
        other = (image_ids != image)[:, None]
        parts.append(logits.masked_fill(other, float("-inf")).softmax(0))
    return torch.cat(parts, 1)
