"""The support: tokens chosen in batches by responsibility (eq:cond-responsibility).

Two paths return the same indices. The dense one looks at every token in every round and has no
data-dependent shape and no host read, so an accelerator can capture it as one graph. The lazy one
(``support_lazy``) runs on the CPU and skips tokens and clients that can no longer matter.

Ties go to the lowest source index. They must not depend on the path, so both compare the same
bits: a token's gain is one contiguous sum over the clients of its column, and a pool is scored by
one function, candidates in source order.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from vicoset.core import checks
from vicoset.core.coverage import batch_certificate, marginals
from vicoset.core.scores import responsibility_scores, round_progress
from vicoset.core.support_lazy import select_lazy
from vicoset.errors import BudgetError, ImageError, SettingError


@dataclass(frozen=True)
class Support:
    """The chosen tokens, and how the solver got there.

    Attributes:
        indices: [K] ascending.
        order: [K] in the order of entry.
        starts: where each round begins in ``order``; before the first stands S_0.
        progress: q_t [rounds], the share of the possible gain that a round realised.
        start_value: F(S_0), scalar.
        cover: [M] what the support covers of each client.
    """

    indices: Tensor
    order: Tensor
    starts: tuple[int, ...]
    progress: Tensor
    start_value: Tensor
    cover: Tensor

    @property
    def certificate(self) -> Tensor:
        """c_B: F(S) >= c_B F(S*) + (1 - c_B) F(S_0)."""
        return batch_certificate(self.progress)

    @property
    def value(self) -> Tensor:
        """F(S)."""
        return self.cover.sum()


def select_support(
    matrix: Tensor,
    keep: int,
    image_ids: Tensor | None = None,
    images: int = 1,
    batch: int = 16,
    pool_factor: int = 4,
    temperature: float = 0.1,
) -> Support:
    """Choose K tokens that jointly cover the clients.

    Args:
        matrix: C [M, N], nonnegative; token-major memory (``C.t()`` contiguous) saves a copy.
        keep: K, realised (see :func:`vicoset.core.budget.realised_keep`).
        image_ids: [N] image of each token; needed for several images.
        images: I; with several, S_0 is each image's best singleton.
        batch: b, tokens that enter together.
        pool_factor: the pool holds the pool_factor * b largest gains.
        temperature: tau_r.
    """
    tokens = checks.shape(matrix, "matrix", "M N")["N"]
    if not images <= keep <= tokens:
        raise BudgetError(
            f"keep={keep} of {tokens} tokens in {images} images; allowed are {images} to {tokens}. "
            "Pass keep through realised_keep first."
        )
    if images > 1 and image_ids is None:
        raise ImageError(f"images={images} came without image_ids; pass the image of each token.")
    if batch < 1 or pool_factor < 1 or not temperature > 0:
        raise SettingError(
            f"batch={batch}, pool_factor={pool_factor}, temperature={temperature}; "
            "allowed are batch >= 1, pool_factor >= 1, temperature > 0."
        )
    offers = checks.lift(matrix, "matrix").detach().t().contiguous()
    lazy = offers.device.type == "cpu" and not torch.compiler.is_compiling()
    if images > 1 and image_ids is not None:
        checks.shape(image_ids, "image_ids", "N", N=tokens)
        if lazy:  # elsewhere this would cost a synchronisation
            checks.image_ids(image_ids, images)
    first = _best_singletons(offers, image_ids, images)
    sizes = [min(batch, keep - n) for n in range(0 if first is None else images, keep, batch)]
    solve = select_lazy if lazy else _select_dense
    picks, progress, covered = solve(offers, sizes, first, pool_factor * batch, temperature)
    seeds = [] if first is None else [first]
    seeded = sum(map(len, seeds))
    order = torch.cat(seeds + picks)
    return Support(
        indices=order.sort().values,
        order=order,
        starts=tuple(seeded + sum(sizes[:i]) for i in range(len(sizes))),
        progress=torch.stack(progress) if progress else covered.new_zeros(0),
        start_value=covered.new_zeros(()) if first is None else offers[first].amax(0).sum(),
        cover=covered,
    )


def _best_singletons(offers: Tensor, image_ids: Tensor | None, images: int) -> Tensor | None:
    """[I] each image's token with the largest gain; None for one image."""
    if images == 1 or image_ids is None:
        return None
    gains = offers.sum(1)
    return torch.stack([gains.where(image_ids == i, -1.0).argmax() for i in range(images)])


def _select_dense(
    offers: Tensor,
    sizes: list[int],
    first: Tensor | None,
    pool: int,
    temperature: float,
) -> tuple[list[Tensor], list[Tensor], Tensor]:
    """Every token in every round: static shapes, no host read.

    Args:
        offers: C.t() [N, M].
        sizes: tokens that enter in each round.
        first: [I] S_0, or None.
        pool: most candidates of a round.
        temperature: tau_r.

    Returns:
        the picks and q_t of each round, and the cover [M].
    """
    tokens = len(offers)
    keep = sum(sizes) + (0 if first is None else len(first))
    covered = offers.new_zeros(offers.shape[1])
    free = torch.ones(tokens, dtype=torch.bool, device=offers.device)
    if first is not None:
        covered = offers.index_select(0, first).amax(0)
        free = free.scatter(0, first, False)
    entered, progress = [], []
    for size in sizes:
        gains = marginals(offers.t(), covered).where(free, -1.0)
        ranked, order = gains.sort(descending=True, stable=True)
        candidates, possible = order[:pool], ranked[:pool] > 0
        # Ascending by index with the impossible ones last: the order in which sums are taken.
        place = (candidates + tokens * ~possible).argsort()
        candidates, possible = candidates[place], possible[place]
        residual = offers.index_select(0, candidates).sub(covered).clamp_min(0.0)
        scores = responsibility_scores(residual, temperature, possible)
        # Candidates by score, then free tokens by index, then those already chosen.
        rank = free.to(offers.dtype) - 2.0
        rank = rank.scatter(0, candidates, torch.where(possible, scores, rank[candidates]))
        picks = rank.sort(descending=True, stable=True).indices[:size].sort().values
        entered.append(picks)
        free = free.scatter(0, picks, False)
        better = torch.maximum(covered, offers.index_select(0, picks).amax(0))
        progress.append(round_progress(better, covered, ranked[:keep]))
        covered = better
    return entered, progress, covered
