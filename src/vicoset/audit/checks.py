"""What an audit asserted of a request: the statement, its tightest place, whether it held."""

from __future__ import annotations

from typing import NamedTuple

from vicoset.core.bounds import Identity, Inequality

EXACT = 1e-9  # of a statement's scale: rounding of float64
CHOSEN = 1e-5  # of a statement's scale, where float32 made a choice that the statement speaks of


class Check(NamedTuple):
    """One statement on one request.

    Attributes:
        name: of the statement.
        holds: whether it does, up to rounding.
        left: its left side, where it is tightest.
        right: its right side there.
    """

    name: str
    holds: bool
    left: float
    right: float

    @property
    def slack(self) -> float:
        """right - left; of an identity, minus the gap between the two."""
        return self.right - self.left


def check(name: str, statement: Identity | Inequality, tolerance: float = EXACT) -> Check:
    """A statement as a line of an audit.

    Args:
        name: for people.
        statement: both sides.
        tolerance: as in the statement's ``holds``.
    """
    shape = (statement.lhs + statement.rhs).shape
    left, right = (side.expand(shape).flatten() for side in (statement.lhs, statement.rhs))
    if not left.numel():
        return Check(name, True, 0.0, 0.0)
    distance = right - left if isinstance(statement, Inequality) else -(right - left).abs()
    place = int(distance.nan_to_num(nan=-float("inf")).argmin())
    return Check(name, statement.holds(tolerance), float(left[place]), float(right[place]))
