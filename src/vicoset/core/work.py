"""Visual token-layer work, exact, and the budget that has a given work."""

from __future__ import annotations

import itertools
from collections.abc import Sequence

from vicoset.errors import PlanError


def work(boundaries: Sequence[int], kept: Sequence[int], tokens: int, depth: int) -> int:
    """W = p_1 N + (p_2 - p_1) K_1 + ... + (L - p_n) K_n, exact visual token-layer work.

    Args:
        boundaries: p of every stage, strictly ascending; none for Full.
        kept: realised K of every stage.
        tokens: N.
        depth: L.
    """
    edges = [0, *boundaries, depth]
    counts = [tokens, *kept]
    ascending = all(a < b for a, b in itertools.pairwise(edges[1:]))
    if len(counts) != len(edges) - 1 or not ascending or min(*edges, *counts) < 0:
        raise PlanError(
            f"boundaries {list(boundaries)} and kept {list(kept)} of {tokens} tokens in {depth} "
            f"blocks; allowed are strictly ascending boundaries in 0 to {depth - 1} and one count "
            "per boundary."
        )
    return sum((b - a) * n for (a, b), n in zip(itertools.pairwise(edges), counts, strict=True))


def work_share(boundaries: Sequence[int], kept: Sequence[int], tokens: int, depth: int) -> float:
    """W / (L N), 1 for a prompt without an image; arguments as in :func:`work`."""
    spent = work(boundaries, kept, tokens, depth)
    return spent / (depth * tokens) if tokens else 1.0


def keep_for_work(target: int, boundary: int, tokens: int, depth: int) -> int:
    """K of a plan of one stage whose work comes nearest to a target: equal work, another boundary.

    Of two that come equally near, the one with less work. ``vicoset.plan.equal_work`` does it for
    any plan.

    Args:
        target: W to meet, such as :func:`work` gives it.
        boundary: p of the stage.
        tokens: N.
        depth: L.
    """
    least, most = work([boundary], [0], tokens, depth), depth * tokens
    if not least < target <= most:
        raise PlanError(
            f"no budget before block {boundary} gives the work {target}; with {tokens} tokens in "
            f"{depth} blocks allowed is more than {least} and at most {most}. Choose an earlier "
            "boundary or another target."
        )
    below, rest = divmod(target - least, depth - boundary)
    return max(1, below + (2 * rest > depth - boundary))
