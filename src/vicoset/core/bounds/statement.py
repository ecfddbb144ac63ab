"""The two shapes a statement of the analysis can have: an identity or an inequality.

Both carry their two sides as tensors, the named quantities they were built from, and a *scale*:
the size of what was added up before anything cancelled. Rounding is judged against that scale,
so a check stays meaningful when both sides are small differences of large numbers.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import torch
from torch import Tensor


@dataclass(frozen=True, eq=False)
class Identity:
    """``lhs == rhs``, elementwise after broadcasting."""

    lhs: Tensor
    rhs: Tensor
    terms: Mapping[str, Tensor] = field(default_factory=dict)
    scale: Tensor | None = None

    @property
    def gap(self) -> Tensor:
        """|lhs - rhs|, zero up to rounding."""
        return (self.lhs - self.rhs).abs()

    def holds(self, tolerance: float = 1e-9) -> bool:
        """Whether every gap is within ``tolerance`` of the scale (of the sides, without one)."""
        size = torch.maximum(self.lhs.abs(), self.rhs.abs()) if self.scale is None else self.scale
        return bool((self.gap <= tolerance * size).all())


@dataclass(frozen=True, eq=False)
class Inequality:
    """``lhs <= rhs``, elementwise after broadcasting."""

    lhs: Tensor
    rhs: Tensor
    terms: Mapping[str, Tensor] = field(default_factory=dict)
    scale: Tensor | None = None

    @property
    def slack(self) -> Tensor:
        """What is left, rhs - lhs: non-negative up to rounding."""
        return self.rhs - self.lhs

    def holds(self, tolerance: float = 1e-9) -> bool:
        """Whether no side is exceeded by more than ``tolerance`` of the scale (of rhs without)."""
        size = self.rhs.abs() if self.scale is None else self.scale
        return bool((self.lhs <= self.rhs + tolerance * size).all())
