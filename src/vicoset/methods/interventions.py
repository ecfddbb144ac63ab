"""Interventions as plan names: what a factorial design, a probe study or a cross of parts compares.

Every switch takes one part of the method away and leaves the rest as it is (``gmc`` says how), so
that the difference of two plans is the effect of that part. The names are those of
``vicoset.plan.plan_named``; a plan's digest changes with every switch and number.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence

from vicoset.errors import PlanError
from vicoset.methods.gmc import SWITCHES

POPULATION = "population"
FACTORS = (*SWITCHES, POPULATION)
PATHWAY = ("message", "history", POPULATION)  # the factors of the paper's 2^3 design


def factorial(where: str, factors: Sequence[str] = PATHWAY) -> dict[str, tuple[bool, ...]]:
    """The 2^k plans of a balanced design: name -> for each factor whether it is on.

    ``message``, ``history``, ``appearance`` and ``spatial`` are clients; ``population`` is whether
    masses follow the grounded energy (``transport``) or are all alike (``uniform``). It is the
    input of ``vicoset.evaluate.statistics.factorial.effects``.

    Args:
        where: a boundary such as ``@2``, or a preset such as ``gmc-l16``.
        factors: of ``FACTORS``, each once.
    """
    odd = [name for name in factors if name not in FACTORS]
    if odd or not factors or len(set(factors)) < len(factors):
        raise PlanError(
            f"factors {list(factors)}; allowed are one or more of {', '.join(FACTORS)}, each once."
        )
    if set(SWITCHES) <= set(factors):
        raise PlanError(
            f"factors {list(factors)} hold every bank, and the cell without any has nothing to "
            f"cover; allowed are at most three of {', '.join(SWITCHES)}."
        )
    cells = {}
    for levels in itertools.product((True, False), repeat=len(factors)):
        on = dict(zip(factors, levels, strict=True))
        off = [name for name in SWITCHES if not on.get(name, True)]
        cells[_name(where, off, "transport" if on.get(POPULATION, True) else "uniform")] = levels
    return cells


def probes(where: str, ranks: Sequence[int] = (), seeds: Sequence[int] = ()) -> list[str]:
    """Plans that differ in the probe alone, every rank with every seed.

    Args:
        where: as in :func:`factorial`.
        ranks: r; none for the settings' own.
        seeds: none for the settings' own.
    """
    pairs = itertools.product(
        [f"probe_rank={rank}" for rank in ranks] or [""],
        [f"probe_seed={seed}" for seed in seeds] or [""],
    )
    return [_name(where, [part for part in pair if part], "", "") for pair in pairs]


def crosses(boundary: int, selectors: Sequence[str], realisers: Sequence[str]) -> list[str]:
    """Every selector with every realiser at one boundary.

    Args:
        boundary: p.
        selectors: names, with numbers in brackets where wanted.
        realisers: names.
    """
    return [f"{s}+{r}@{boundary}" for s, r in itertools.product(selectors, realisers)]


def _name(where: str, written: Sequence[str], realiser: str, sign: str = "-") -> str:
    """``gmc[-history]+uniform@2`` or ``gmc-l16[-history]+uniform``."""
    head, at, boundary = where.partition("@")
    numbers = f"[{','.join(sign + part for part in written)}]" if written else ""
    return f"{head or 'gmc'}{numbers}{'+' if realiser else ''}{realiser}{at}{boundary}"
