"""Paired, clustered bootstrap over sufficient statistics, and what is derived from it."""

from vicoset.evaluate.statistics.bootstrap import UnitSums
from vicoset.evaluate.statistics.draws import Draws, Estimate, macro
from vicoset.evaluate.statistics.factorial import Effect, effects
from vicoset.evaluate.statistics.holm import holm
from vicoset.evaluate.statistics.study import Study
from vicoset.evaluate.statistics.units import unit_sums

__all__ = [
    "Draws",
    "Effect",
    "Estimate",
    "Study",
    "UnitSums",
    "effects",
    "holm",
    "macro",
    "unit_sums",
]
