"""What one round of the solver computes about its pool."""

from __future__ import annotations

import torch
from torch import Tensor

EPSILON = 1e-30


def responsibility_scores(
    residual: Tensor, temperature: float, valid: Tensor | None = None
) -> Tensor:
    """s_i = sum over clients of rho * R, where rho shares a client's residual among the pool.

    Args:
        residual: R [P, M], what each candidate adds to each client.
        temperature: tau_r.
        valid: [P] bool; candidates that are False take no share.

    Returns:
        [P].
    """
    best = residual.amax(0)
    sharpness = (best * temperature + EPSILON).reciprocal_()
    # exp((R - best) / (tau_r best + eps)): the softmax with its largest logit moved to 0.
    share = torch.addcmul(-best * sharpness, residual, sharpness).exp_()
    if valid is not None:
        share = share * valid[:, None]
    total = share.sum(0)
    return share.mul_(residual).mul_(total.reciprocal_()).sum(1)


def round_progress(better: Tensor, covered: Tensor, largest: Tensor) -> Tensor:
    """q_t: what a round gained, over the sum of the K largest marginals before it.

    Args:
        better: [M] cover after the round.
        covered: [M] cover before it.
        largest: [K] the largest marginals, or upper bounds of them; negative ones do not count.
    """
    possible = largest.clamp_min(0.0).sum()
    gain = (better - covered).sum()
    safe = torch.where(possible > 0, possible, 1.0)
    return torch.where(possible > 0, gain / safe, 0.0).clamp(max=1.0)
