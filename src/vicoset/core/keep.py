"""A budget as a user writes it: how many visual tokens each request keeps."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any

from vicoset.core.budget import realised_keep
from vicoset.errors import BudgetError


@dataclass(frozen=True, repr=False)
class Keep:
    """A budget of visual tokens: a count, a fraction or a coverage, exactly one of the three.

    Attributes:
        tokens: K_requested, from 1 on.
        fraction: of N, in (0, 1]; rounded half up, at least one token.
        coverage: in (0, 1]; the smallest K whose F(S)/F(V) reaches it, request by request.
        min: with a coverage, the least K, as a count or a fraction.
        max: with a coverage, the largest K, as a count or a fraction; it wins over ``min``.
    """

    tokens: int | None = None
    fraction: float | None = None
    coverage: float | None = None
    min: int | float | None = None
    max: int | float | None = None

    def __post_init__(self) -> None:
        """Refuse what names no number of tokens."""
        asked = [n for n in ("tokens", "fraction", "coverage") if getattr(self, n) is not None]
        if len(asked) != 1:
            got = "none of them" if not asked else f"{len(asked)} of them, {self!r}"
            raise BudgetError(
                f"Keep got {got}; exactly one of tokens=, fraction= and coverage= is allowed. "
                "Write Keep(tokens=128), Keep(fraction=0.1) or Keep(coverage=0.95)."
            )
        for name in ("fraction", "coverage"):
            value = getattr(self, name)
            if isinstance(value, int) and not isinstance(value, bool):
                object.__setattr__(self, name, float(value))  # an int would be a count
        count: object = self.tokens
        if count is not None and not (isinstance(count, int) and count >= 1):
            raise BudgetError(
                f"tokens={count!r}; allowed are whole numbers from 1 on. "
                "Write Keep(tokens=128), or Keep(fraction=0.1) for a share."
            )
        if self.coverage is None:
            realised_keep(self._request, 1)
        self._check_limits()

    def _check_limits(self) -> None:
        low, high = self.min, self.max
        if self.coverage is None:
            if low is not None or high is not None:
                raise BudgetError(
                    f"{self!r} has limits; only a coverage chooses between two budgets. "
                    "Write Keep(coverage=0.95, min=16, max=256), or drop min and max."
                )
            return
        share: object = self.coverage
        if not isinstance(share, float) or not 0.0 < share <= 1.0:
            raise BudgetError(
                f"coverage={share!r}; allowed are numbers in (0, 1], the share of the attainable "
                "coverage. Write Keep(coverage=0.95)."
            )
        for limit in (low, high):
            if limit is not None:
                realised_keep(limit, 1)
        if low is not None and high is not None and type(low) is type(high) and low > high:
            raise BudgetError(
                f"{self!r} asks for at least {low} and at most {high}; allowed are min <= max. "
                f"Write Keep(coverage={self.coverage}, min={high}, max={low})."
            )

    @classmethod
    def parse(cls, value: Keep | int | float) -> Keep:
        """An int is a count, a float in (0, 1] a fraction, a Keep itself."""
        if isinstance(value, Keep):
            return value
        if isinstance(value, int):
            return cls(tokens=value)
        realised_keep(value, 1)
        return cls(fraction=value)

    @classmethod
    def read(cls, text: str) -> Keep:
        """A budget as written on a command line.

        Args:
            text: ``128``, ``0.1``, ``10%``, ``coverage=0.95`` or ``coverage=0.95:min=16:max=25%``;
                commas do as well as colons, where the text is not part of a list.
        """
        try:
            if "=" not in text:
                value: Any = _number(text.strip())
            else:
                pairs = [part.partition("=")[::2] for part in re.split("[:,]", text)]
                value = {name.strip(): _number(part.strip()) for name, part in pairs}
                if "coverage" not in value or not value.keys() <= {"coverage", "min", "max"}:
                    raise ValueError(text)
        except ValueError:
            raise BudgetError(
                f"budget {text!r}; allowed are a count (128), a share (0.1 or 10%) and a coverage "
                "(coverage=0.95, or coverage=0.95:min=16:max=256). Write 128."
            ) from None
        return cls(**value) if isinstance(value, dict) else cls.parse(value)

    def of(self, tokens: int, images: int = 1) -> int:
        """Realised K = min(N, max(K_requested, I)).

        Args:
            tokens: N.
            images: I.
        """
        low, high = self.limits(tokens, images)
        if low != high:
            raise BudgetError(
                f"{self!r} gives between {low} and {high} of {tokens} tokens, by what the request "
                "shows; only a count or a fraction is known before. Use .limits(), or the record."
            )
        return low

    def limits(self, tokens: int, images: int = 1) -> tuple[int, int]:
        """The least and the largest K this budget can lead to; one number but for a coverage.

        Args:
            tokens: N.
            images: I.
        """
        if self.coverage is None:
            kept = realised_keep(self._request, tokens, images)
            return kept, kept
        high = tokens if self.max is None else realised_keep(self.max, tokens, images)
        low = realised_keep(1 if self.min is None else self.min, tokens, images)
        return min(low, high), high

    def note(self, tokens: int, images: int = 1) -> str | None:
        """What a reader should know when the realised K is not what was asked for.

        Args:
            tokens: N.
            images: I.
        """
        if self.coverage is not None:
            return None
        asked = self.of(tokens) if self.tokens is None else self.tokens
        kept = self.of(tokens, images)
        if asked == kept:
            return None
        what = repr(self) if self.fraction is None else f"{self!r}, {asked} of {tokens} tokens,"
        over = asked > kept
        bound = f"above the {tokens} visual tokens" if over else f"below the {images} images"
        return f"{what} is {bound} of this prompt; realised K = {kept}"

    @property
    def _request(self) -> int | float:
        request = self.fraction if self.tokens is None else self.tokens
        assert request is not None
        return request

    def to_json(self) -> dict[str, int | float]:
        """What was given, by name; ``Keep(**found)`` gives the budget back."""
        return {n: v for n, v in vars(self).items() if v is not None}

    def __str__(self) -> str:
        """``128``, ``10%``, ``coverage 95%`` or ``coverage 95% (16 to 256)``."""
        if self.coverage is None:
            return str(self.tokens) if self.fraction is None else f"{self.fraction * 100:g}%"
        ends = ["" if v is None else str(Keep.parse(v)) for v in (self.min, self.max)]
        limits = f" ({ends[0] or 1} to {ends[1] or 'all'})" if any(ends) else ""
        return f"coverage {self.coverage * 100:g}%{limits}"

    def __repr__(self) -> str:
        """``Keep(tokens=128)`` or ``Keep(fraction=0.1)``."""
        return f"Keep({', '.join(f'{n}={v!r}' for n, v in self.to_json().items())})"


def _number(text: str) -> int | float:
    """``128``, ``0.1`` or ``10%``."""
    if text.endswith("%"):
        return float(text[:-1]) / 100
    return float(text) if "." in text else int(text)
