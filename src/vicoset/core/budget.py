"""The budget rule: how many visual tokens a request keeps."""

from __future__ import annotations

import math

from vicoset.errors import BudgetError


def realised_keep(keep: int | float, tokens: int, images: int = 1) -> int:
    """Realised K = min(N, max(K_requested, I)).

    Args:
        keep: an int is a count of visual tokens, a float in (0, 1] a fraction of N (half up).
        tokens: N, the visual tokens of the prompt.
        images: I, the images they belong to; each keeps at least one carrier.

    Returns:
        K, at least ``images`` and at most ``tokens``.
    """
    if tokens < 1 or not 1 <= images <= tokens:
        raise BudgetError(
            f"a population of {tokens} visual tokens in {images} images has no budget; allowed are "
            "1 <= images <= tokens. Requests without an image need no compression."
        )
    return min(tokens, max(_requested(keep, tokens), images))


def _requested(keep: int | float, tokens: int) -> int:
    if isinstance(keep, bool) or not isinstance(keep, (int, float)):
        raise BudgetError(
            f"keep={keep!r} is a {type(keep).__name__}; allowed are an int (a count of visual "
            "tokens) or a float in (0, 1] (a fraction). Pass keep=128 or keep=0.1."
        )
    if isinstance(keep, int):
        if keep < 1:
            raise BudgetError(
                f"keep={keep} tokens; allowed are counts from 1 on. "
                f"The smallest budget is keep=1; keep={tokens} compresses nothing."
            )
        return keep
    if not 0.0 < keep <= 1.0:
        hint = (
            f"For a count of {int(keep)} tokens pass the int keep={int(keep)}"
            if math.isfinite(keep) and keep > 1
            else "Pass keep=0.1 for a tenth of the visual tokens"
        )
        raise BudgetError(
            f"keep={keep} is a float, so a fraction; allowed are fractions in (0, 1]. {hint}."
        )
    return max(1, math.floor(keep * tokens + 0.5))
