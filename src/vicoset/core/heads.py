"""Head weights: at most four equal-mass clusters of heads, found in the Gram matrix of patterns.

The pattern of a head is the long vector of its message atoms over all views, queries and tokens
(eq:cond-head-pattern). Clustering needs inner products of patterns only, and those are sums over
tokens, so the patterns themselves are never built.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from vicoset.core import checks
from vicoset.core.messages import atom_norms

GRID = 2.0**16  # norms and cosines are compared on this grid, so that equal heads tie exactly
TOKEN_CHUNK = 4096


@checks.full_precision
def view_gram(attention: Tensor, messages: Tensor, mass: Tensor) -> Tensor:
    """Inner products of one view's head patterns, each scaled to unit mean atom norm.

    Args:
        attention: A [H, T, N].
        messages: Z [H, N, r].
        mass: sigma [H].

    Returns:
        [H, H]; rows and columns of a head without energy are zero.
    """
    sizes = checks.shape(attention, "attention", "H T N")
    sizes = checks.shape(messages, "messages", "H N r", **sizes)
    checks.shape(mass, "mass", "H", **sizes)
    attention, messages = checks.lift(attention, "attention"), checks.lift(messages, "messages")
    mass = checks.lift(mass, "mass")
    norms = atom_norms(messages, mass)
    mean = (attention.sum(1) * norms).sum(1) / (sizes["T"] * sizes["N"])
    mean = torch.where(mean > 0, mean, float("inf"))[:, None, None]
    coordinates = torch.cat([messages, mass[:, None, None].expand(-1, sizes["N"], 1)], -1)
    gram = attention.new_zeros(sizes["H"], sizes["H"])
    for start in range(0, sizes["N"], TOKEN_CHUNK):
        part = slice(start, start + TOKEN_CHUNK)
        # Scaled before it is squared: a head may read the image by 1e-20 of its attention.
        read = (attention[..., part] / mean).permute(2, 0, 1)
        atom = coordinates[:, part].transpose(0, 1)
        gram += ((read @ read.mT) * (atom @ atom.mT)).sum(0)
    return gram


def head_gram(view_grams: Sequence[Tensor], masses: Sequence[float]) -> Tensor:
    """The views' Gram matrices, weighted by their masses: sum over v of beta_v G_v, [H, H]."""
    return torch.stack([beta * gram for gram, beta in zip(view_grams, masses, strict=True)]).sum(0)


def cosines(gram: Tensor) -> tuple[Tensor, Tensor]:
    """Pattern norms [H] and cosines [H, H]; zero where a head has no energy."""
    norms = gram.diagonal().clamp_min(0.0).sqrt()
    inverse = torch.where(norms > 0, 1.0 / norms, 0.0)
    return norms, gram * inverse[:, None] * inverse


def head_clusters(gram: Tensor, most: int = 4) -> Tensor:
    """Farthest-first cosine clusters of the heads.

    The first centre has the largest pattern, each further one the smallest largest cosine to the
    centres so far; every head joins its nearest centre. Ties go to the lowest index; a head
    without energy joins the first cluster.

    Args:
        gram: [H, H].
        most: most clusters.

    Returns:
        [H] int64, the cluster of each head in the order of the centres; some may stay empty.
    """
    checks.shape(gram, "gram", "H G", G=gram.shape[0])
    norms, cosine = cosines(gram)
    active = norms > 0
    cosine = (cosine * GRID).round()
    size = (norms / norms.amax().clamp_min(torch.finfo(norms.dtype).tiny) * GRID).round()
    first = size.argmax()
    centres = [first]
    taken = torch.arange(len(norms), device=gram.device) == first
    nearest = cosine.index_select(1, first[None])[:, 0]
    for _ in range(min(most, len(norms)) - 1):
        eligible = active & ~taken
        farthest = torch.where(eligible, nearest, float("inf")).argmin()
        # With no head left, the first centre again: a repeated centre wins no head.
        centre = torch.where(eligible.any(), farthest, first)
        centres.append(centre)
        taken = taken | (torch.arange(len(norms), device=gram.device) == centre)
        nearest = torch.maximum(nearest, cosine.index_select(1, centre[None])[:, 0])
    cluster = cosine.index_select(1, torch.stack(centres)).argmax(1)
    return torch.where(active, cluster, 0)


@checks.full_precision
def head_weights(gram: Tensor, clusters: Tensor, dispersion: float = 0.05) -> Tensor:
    """omega [H]: equal mass per nonempty cluster, inside it by inverse dispersion.

    Args:
        gram: [H, H].
        clusters: [H] from :func:`head_clusters`.
        dispersion: added to d_h before it is inverted (eq:cond-head-weight).
    """
    heads = checks.shape(clusters, "clusters", "H")["H"]
    checks.shape(gram, "gram", "H G", H=heads, G=heads)
    cosine = cosines(gram)[1]
    member = (clusters[:, None] == torch.arange(heads, device=gram.device)).to(gram.dtype)
    to_sum = cosine @ member  # u_h . (sum of the patterns of cluster c), [H, C]
    length = (member * to_sum).sum(0).clamp_min(0.0).sqrt()  # norm of that sum, [C]
    # mu_c is that sum at unit length, so d_h needs no division by the cluster's size.
    along = torch.where(length > 0, to_sum / length.clamp_min(1e-30), 0.0)
    away = (1.0 - along.gather(1, clusters[:, None])[:, 0]).clamp_min(0.0)
    inverse = 1.0 / (away + dispersion)
    share = inverse / (member @ (member.t() @ inverse))
    return share / (member.amax(0) > 0).sum()
