"""The smallest budget whose support covers enough: the deployed solver, read as a path.

The solver's supports are nested: a smaller budget runs the same rounds and stops earlier, and a
round that is cut short takes the best of the tokens that the whole round would have taken. So
F(S_K) never falls with K, and the smallest K that reaches a coverage can be bisected. Nothing here
repeats the solver's work in another way: every K that is compared is one the solver was run for,
or one of its own full rounds.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from vicoset.core.coverage import ratio
from vicoset.core.support import Support, select_support
from vicoset.errors import BudgetError


class Reach(NamedTuple):
    """A support and whether it covers what was asked for.

    Attributes:
        support: the solver's, at the smallest K that reaches the target, or at the largest allowed.
        reached: whether F(S)/F(V) reaches the target.
    """

    support: Support
    reached: bool


def smallest_support(
    matrix: Tensor,
    target: float,
    low: int,
    high: int,
    image_ids: Tensor | None = None,
    images: int = 1,
    batch: int = 16,
    pool_factor: int = 4,
    temperature: float = 0.1,
) -> Reach:
    """The support of the smallest K in ``low..high`` with F(S)/F(V) >= target.

    K has to be known on the host, so this reads a few numbers from the device.

    Args:
        matrix: C [M, N], as :func:`vicoset.core.support.select_support` takes it.
        target: in (0, 1].
        low: least K, at least the number of images.
        high: largest K; its support is returned when no K reaches the target.
        image_ids: [N] image of each token; needed for several images.
        images: I.
        batch: b.
        pool_factor: as for the solver.
        temperature: tau_r.
    """
    if not 0.0 < target <= 1.0 or not 1 <= low <= high:
        raise BudgetError(
            f"coverage {target} with K from {low} to {high}; allowed are coverages in (0, 1] and "
            "1 <= low <= high. Write Keep(coverage=0.95, min=16, max=256)."
        )
    total = matrix.amax(1).sum()

    def solve(keep: int) -> Support:
        return select_support(matrix, keep, image_ids, images, batch, pool_factor, temperature)

    def enough(value: Tensor) -> bool:
        return float(ratio(value, total)) >= target

    best = solve(low)
    if enough(best.value) or low == high:
        return Reach(best, enough(best.value))
    short, keep = low, min(high, max(2 * low, low + batch))  # short: a K that does not reach
    while not enough((best := solve(keep)).value):
        if keep == high:
            return Reach(best, False)
        short, keep = keep, min(high, 2 * keep)
    for end, covered in _rounds(matrix, best):
        if short < end < keep:
            if enough(covered.sum()):
                keep = end
                break
            short = end
    while keep - short > 1:
        middle = (short + keep) // 2
        found = solve(middle)
        if enough(found.value):
            best, keep = found, middle
        else:
            short = middle
    if len(best.indices) != keep:
        best = solve(keep)
    return Reach(best, True)


def _rounds(matrix: Tensor, support: Support) -> list[tuple[int, Tensor]]:
    """How many tokens had entered at the end of each round, and what they covered [M]."""
    covered = matrix.new_zeros(len(matrix))
    found, begin = [], 0
    for end in (*support.starts[1:], len(support.order)):
        entered = support.order[begin:end]
        covered = torch.maximum(covered, matrix.index_select(1, entered).amax(1))
        found.append((end, covered))
        begin = end
    return found
