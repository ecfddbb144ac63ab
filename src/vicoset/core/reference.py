"""The solver in its plain form: every round looks at the whole client matrix again.

It states what ``support`` must return, index for index, and is what ``make bench`` compares with.
It shares the scoring of a pool with the fast forms, and the order in which gains are added (over
the clients of a token's column), so that rounding cannot tell them apart.
"""

from __future__ import annotations

import torch
from torch import Tensor

from vicoset.core.scores import responsibility_scores


def select_plain(
    matrix: Tensor,
    keep: int,
    image_ids: Tensor | None = None,
    images: int = 1,
    batch: int = 16,
    pool_factor: int = 4,
    temperature: float = 0.1,
) -> list[int]:
    """Indices of the support in the order in which they entered.

    Args:
        matrix: C [M, N].
        keep: K, realised.
        image_ids: [N], needed for several images.
        images: I.
        batch: b, tokens entering together.
        pool_factor: the pool holds pool_factor * b candidates.
        temperature: tau_r.
    """
    offers = matrix.t().contiguous()
    tokens, clients = offers.shape
    covered = offers.new_zeros(clients)
    chosen: list[int] = []
    if images > 1:
        assert image_ids is not None
        gains = offers.sum(1)
        for image in range(images):
            own = (image_ids == image).nonzero()[:, 0]
            chosen.append(int(own[gains[own].argmax()]))
        covered = offers[chosen].amax(0)
    while len(chosen) < keep:
        residual = (offers - covered).clamp_min(0.0)
        gains = residual.sum(1)
        gains[chosen] = 0.0
        order = torch.sort(gains, descending=True, stable=True).indices
        pool = order[gains[order] > 0][: pool_factor * batch].sort().values
        if len(pool) == 0:
            free = [i for i in range(tokens) if i not in set(chosen)]
            return chosen + free[: keep - len(chosen)]
        scores = responsibility_scores(residual[pool], temperature)
        entering = torch.sort(scores, descending=True, stable=True).indices
        picks = pool[entering[: min(batch, keep - len(chosen))]]
        chosen += picks.tolist()
        covered = torch.maximum(covered, offers[picks].amax(0))
    return chosen
