"""A stage's budget that follows from the prompt: from N alone, or from N and the plan's final K."""

from __future__ import annotations

import itertools
import math
from dataclasses import dataclass
from typing import Any

from vicoset.core.keep import Keep
from vicoset.errors import BudgetError

_SLACK = 1e-9  # of a floor: 0.125 ** (1 / 3) is a half, whatever the last bit says


@dataclass(frozen=True)
class Derived:
    """K_i of one stage of several, exactly one of the three forms.

    Attributes:
        share: K_i = share * N, half up; a published count of a published N.
        power: K_i = floor(N (K/N)^power), where K stands behind the last stage.
        through: points (K/N, K_i/N), ascending in the first; K_i lies on the straight lines between
            them, half up. The lines begin in (0, 0) and end in (1, 1).
    """

    share: float | None = None
    power: float | None = None
    through: tuple[tuple[float, float], ...] | None = None

    def __post_init__(self) -> None:
        """Refuse what is no budget."""
        given = [v for v in (self.share, self.power, self.through) if v is not None]
        fits = len(given) == 1
        if self.share is not None:
            fits &= 0 < self.share <= 1
        if self.power is not None:
            fits &= 0 <= self.power <= 1
        if self.through is not None:
            points = tuple((float(x), float(y)) for x, y in self.through)
            object.__setattr__(self, "through", points)
            ends = [0.0, *(x for x, _ in points), 1.0]
            fits &= all(a < b for a, b in itertools.pairwise(ends))
            fits &= all(x <= y <= 1 for x, y in points)
        if not fits:
            raise BudgetError(
                f"{self!r}; allowed is exactly one of share in (0, 1], power in [0, 1] and "
                "through, points (K/N, K_i/N) ascending between 0 and 1 with K_i >= K. Write "
                "Derived(power=0.5)."
            )

    @property
    def reads_keep(self) -> bool:
        """Whether it follows from the run's budget, or from N alone."""
        return self.share is None

    def of(self, keep: Keep, tokens: int, images: int = 1) -> Keep:
        """The stage's budget as a count.

        Args:
            keep: the run's budget, K behind the last stage.
            tokens: N of the prompt.
            images: I.
        """
        if self.share is not None:
            return Keep(tokens=max(1, _half_up(self.share * tokens)))
        if keep.coverage is not None:
            raise BudgetError(
                f"{keep!r} came to a plan whose stages follow from the final K, which a coverage "
                "gives only at the end; allowed are counts and fractions. Write Keep(tokens=128)."
            )
        final = keep.of(tokens, images)
        return Keep(tokens=max(1, final, min(tokens, self._count(final, tokens))))

    def _count(self, final: int, tokens: int) -> int:
        if self.power is not None:
            exact: float = tokens * (final / tokens) ** self.power
            return math.floor(exact + _SLACK * tokens)
        assert self.through is not None
        points = [(0.0, 0.0), *self.through, (1.0, 1.0)]
        share = final / tokens
        for (x0, y0), (x1, y1) in itertools.pairwise(points):
            if share <= x1:
                return _half_up(tokens * (y0 + (y1 - y0) * (share - x0) / (x1 - x0)))
        return tokens

    def to_json(self) -> dict[str, Any]:
        """What was given, by name."""
        found = {"share": self.share, "power": self.power, "through": self.through}
        return {name: value for name, value in found.items() if value is not None}

    def __str__(self) -> str:
        """``52.6% of N``, ``N (K/N)^0.333``, ``K_i(K)``."""
        if self.share is not None:
            return f"{self.share * 100:.3g}% of N"
        return f"N (K/N)^{self.power:.3g}" if self.power is not None else "K_i(K)"


FINAL = Derived(power=1.0)  # the run's budget, of the prompt's tokens and not of what is left


def _half_up(value: float) -> int:
    return math.floor(value + 0.5 + _SLACK)
