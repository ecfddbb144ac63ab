"""Selector by recovery: who chooses the carriers, and what they are made to hold."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from vicoset.errors import RunError
from vicoset.evaluate import paper as published
from vicoset.evaluate.statistics import Draws
from vicoset.evaluate.tables import printed
from vicoset.evaluate.tables.comparison import LEVEL, Comparison, Options, cell
from vicoset.evaluate.tables.records import FULL_KEY, Found, Key
from vicoset.evaluate.tables.rows import COST, COSTS, command, costs, known_as
from vicoset.evaluate.tables.table import Column, Row, Table, Value
from vicoset.methods import interventions
from vicoset.plan import plan_named

SELECTORS = ("gmc", "random", "norm-diversity", "k-center")
REALISERS = ("drop", "uniform", "transport")
TITLES = {"drop": "hard", "uniform": "uniform", "transport": "grounded"}
PAPER = {"gmc": "GMC responsibility", "random": "Random", "norm-diversity": "Norm + diversity"}
PAPER |= {"k-center": "Feature $k$-center"}


def plans_at(
    where: str, depth: int, selectors: Sequence[str] = (), realisers: Sequence[str] = ()
) -> dict[tuple[str, str], str]:
    """(selector, realiser) -> plan, before the block of a point.

    Args:
        where: a preset or ``gmc@p``, which says p.
        depth: L.
        selectors: names; the paper's four when empty.
        realisers: names; deletion, uniform centroids and transport when empty.
    """
    p = plan_named(where, depth).boundaries[0]
    chosen, how = tuple(selectors) or SELECTORS, tuple(realisers) or REALISERS
    names = iter(interventions.crosses(p, chosen, how))
    return {(s, r): next(names) for s in chosen for r in how}


def selector_recovery(
    found: Found,
    tasks: Sequence[str] = (),
    options: Options | None = None,
    where: Sequence[str] = ("gmc-h2", "gmc-l16"),
    selectors: Sequence[str] = (),
    realisers: Sequence[str] = (),
) -> list[Table]:
    """Macro of every pair, minus deletion with the same support, minus GMC with the same recovery.

    Args:
        found: the records.
        tasks: by name; all of Full's when empty.
        options: how to compare.
        where: presets or boundaries.
        selectors: names; the paper's four when empty.
        realisers: names; the first one is what the others are compared with.
    """
    options = options or Options()
    grids = {at: plans_at(at, found.depth, selectors, realisers) for at in where}
    known = {plan for grid in grids.values() for plan in grid.values()}
    keys = [key for key in found.runs if key.plan in known]
    if not keys:
        raise RunError(
            f"{found.out} holds no pair of {', '.join(sorted(known))}; run `vicoset evaluate study "
            "selector-recovery`, which runs them."
        )
    both = Comparison.of(found, keys, tasks, options)
    macros = both.macro(retention=False)
    model = printed.setting(found, options.paper)
    full: dict[str, Value] = {"selector": "Full", "macro": macros.of(FULL_KEY.label)}
    rows = [Row({**full, **costs(found, FULL_KEY, both.tasks)}, reference=True)]
    for at, grid in grids.items():
        for keep in dict.fromkeys(key.keep for key in keys if key.plan in grid.values()):
            rows += [_row(both, macros, at, grid, pair, keep, model is not None) for pair in grid]
    columns = [
        Column("at", "At", text=True),
        Column("keep", "K"),
        Column("selector", "Support", text=True),
        Column("recovery", "Recovery", text=True),
        Column("plan", "Plan", text=True),
        *COST,
        Column("macro", "Macro", 2),
        Column("hard", "minus hard", 2, signed=True),
        Column("gmc", "minus GMC", 2, signed=True),
        *([Column("paper", "Macro (paper)", 2)] if model is not None else []),
    ]
    notes = [
        both.note(),
        "Macro: equal-task mean, percent of the attainable. Minus hard: against deletion with the "
        "same support; minus GMC: against GMC's support with the same recovery; same replicates.",
        COSTS,
        *found.notes,
    ]
    title = f"Support by recovery, {found.model}"
    return [Table("selector-recovery", title, columns, rows, notes)]


def _row(
    both: Comparison,
    macros: Draws,
    at: str,
    grid: Mapping[tuple[str, str], str],
    pair: tuple[str, str],
    keep: str,
    beside: bool,
) -> Row:
    """A pair beside the first recovery with its support, and the first support with its recovery.

    Args:
        both: the comparison.
        macros: a column per row.
        at: the point.
        grid: (selector, realiser) -> plan.
        pair: of the row.
        keep: the budget.
        beside: whether the paper's number stands beside it.
    """
    (selector, realiser), (ours, first) = pair, next(iter(grid))
    key, found = Key(grid[pair], keep), both.found
    title = known_as(f"{selector}@1", found.depth).title
    values: dict[str, Value] = {"at": at, "keep": keep, "plan": key.plan, "selector": title}
    values["recovery"] = TITLES.get(realiser, realiser)
    if not both.has(key):
        return Row(values, f"{at} {keep}", command(found, key, both.tasks))
    values |= costs(found, key, both.tasks)
    values["macro"] = cell(macros.estimates(LEVEL)[key.label])
    values["hard"] = _less(both, macros, key, Key(grid[selector, first], keep))
    values["gmc"] = _less(both, macros, key, Key(grid[ours, realiser], keep))
    if beside:
        values["paper"] = _printed(at, selector, realiser, keep)
    return Row(values, f"{at} {keep}")


def _less(both: Comparison, macros: Draws, key: Key, other: Key) -> Value:
    if key == other or not both.has(other):
        return None
    weights = {"delta": {key.label: 1.0, other.label: -1.0}}
    return cell(macros.combined(weights).estimates(LEVEL)["delta"])


def _printed(at: str, selector: str, realiser: str, keep: str) -> float | None:
    row = published.find(
        "selector_recovery",
        selector=PAPER.get(selector, selector),
        boundary=at.removeprefix("gmc-").upper(),
        keep=keep,
        recovery=TITLES.get(realiser, realiser),
    )
    return None if row is None else float(row["macro"])
