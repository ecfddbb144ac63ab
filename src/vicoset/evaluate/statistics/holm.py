"""Holm's step-down procedure."""

from __future__ import annotations

from collections.abc import Hashable, Mapping
from typing import TypeVar

from vicoset.errors import StatisticsError

Key = TypeVar("Key", bound=Hashable)


def holm(family: Mapping[Key, float]) -> dict[Key, float]:
    """Adjusted p-values of a family; at most alpha means resolved at alpha.

    The j-th smallest of m p-values is multiplied by m - j + 1; an adjusted value is never below
    that of a smaller p-value, and at most 1. The family-wise error is controlled whatever the
    dependence between the tests.

    Args:
        family: endpoint -> raw p-value.
    """
    wrong = {key: p for key, p in family.items() if not 0 <= p <= 1}
    if wrong:
        raise StatisticsError(f"p-values {wrong}; allowed is 0 to 1.")
    adjusted: dict[Key, float] = {}
    floor = 0.0
    for place, key in enumerate(sorted(family, key=lambda key: family[key])):
        floor = max(floor, min(1.0, (len(family) - place) * family[key]))
        adjusted[key] = floor
    return {key: adjusted[key] for key in family}
