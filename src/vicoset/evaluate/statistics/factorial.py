"""Main effects and interactions of a complete 2^k design."""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from vicoset.errors import StatisticsError
from vicoset.evaluate.statistics.draws import Draws


@dataclass(frozen=True)
class Effect:
    """A contrast of a factorial design.

    Attributes:
        factors: one factor for a main effect, more for their interaction.
        weights: cell -> weight.
    """

    factors: tuple[str, ...]
    weights: Mapping[str, float]

    @property
    def name(self) -> str:
        """The factors, joined by a cross."""
        return " x ".join(self.factors)


def effects(factors: Sequence[str], cells: Mapping[str, Sequence[bool]]) -> dict[str, Effect]:
    """All main effects and interactions, by name.

    A main effect is the mean of the cells with the factor minus the mean of those without. An
    interaction of two is the difference that one makes to the effect of the other, of three the
    difference that the third makes to the interaction of two, always averaged over the cells of the
    remaining factors: a difference of differences, not halved.

    Args:
        factors: names of the k factors.
        cells: name of the cell (a column of the draws) -> for each factor whether it is on; all
            2^k combinations, each once.
    """
    k = len(factors)
    wanted = set(itertools.product((False, True), repeat=k))
    found = [tuple(bool(on) for on in levels) for levels in cells.values()]
    if not k or set(found) != wanted or len(found) != len(wanted):
        missing = sorted(wanted - set(found))
        raise StatisticsError(
            f"{len(found)} cells for the factors {list(factors)}; a complete design has each of "
            f"the {2**k} combinations once, and these are missing: {missing}."
        )
    result = {}
    for size in range(1, k + 1):
        for chosen in itertools.combinations(range(k), size):
            weights = {
                cell: math.prod(1 if levels[i] else -1 for i in chosen) / 2 ** (k - size)
                for cell, levels in cells.items()
            }
            effect = Effect(tuple(factors[i] for i in chosen), weights)
            result[effect.name] = effect
    return result


def factorial(draws: Draws, factors: Sequence[str], cells: Mapping[str, Sequence[bool]]) -> Draws:
    """The effects of a design, recomputed inside every replicate; a column for each effect.

    Args:
        draws: with a column for every cell.
        factors: as in :func:`effects`.
        cells: as in :func:`effects`.
    """
    named = effects(factors, cells)
    return draws.combined({name: effect.weights for name, effect in named.items()})
