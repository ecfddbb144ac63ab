"""Hallucination: POPE, AMBER, HallusionBench and captions, and the family of their endpoints."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from vicoset.errors import RunError
from vicoset.evaluate.statistics import Estimate, holm
from vicoset.evaluate.statistics.draws import Draws
from vicoset.evaluate.tables import printed
from vicoset.evaluate.tables.comparison import LEVEL, Comparison, Options, cell
from vicoset.evaluate.tables.fixed import PAPER
from vicoset.evaluate.tables.lineup import ALWAYS, GMC, lineup
from vicoset.evaluate.tables.records import FULL_KEY, Found, Key
from vicoset.evaluate.tables.rows import COST, COSTS, METHOD, QUERY_AWARE, command, costs, described
from vicoset.evaluate.tables.table import Column, Row, Table, Value

TASKS = ("pope", "amber", "hallusionbench", "chair")
# Column -> task, metric and the paper's column.
NUMBERS = {
    "pope": ("pope", "", "pope"),
    "amber": ("amber", "", "amber"),
    "hallusion": ("hallusionbench", "", "hallusion"),
    "chair_s": ("chair", "", "chair_s"),
    "chair_i": ("chair", "chair_i", "chair_i"),
    "recall": ("chair", "recall", ""),
    "length": ("chair", "length", "length"),
}
ENDPOINTS = ("pope", "amber", "hallusion", "chair_s", "chair_i")
TITLES = {"chair_s": "CHAIRs", "chair_i": "CHAIRi"}


def hallucination(
    found: Found, tasks: Sequence[str] = (), options: Options | None = None
) -> list[Table]:
    """Rows by budget, then the endpoints of GMC-L16 against each comparator at the smallest one.

    Args:
        found: the records.
        tasks: by name; those of the four that Full answered when empty.
        options: how to compare; its reference is not used, endpoints are those of GMC-L16.
    """
    options = options or Options()
    there = [task for task in TASKS if task in (tasks or found.tasks)]
    if not there:
        raise RunError(
            f"{found.out} holds none of {', '.join(TASKS)}; it has {', '.join(found.tasks)}. Run "
            "them first."
        )
    keys = [key for key in found.runs if key != FULL_KEY and key.keep.isdecimal()]
    both = Comparison.of(found, keys, there, replace(options, reference=GMC[1]))
    numbers = {n: both.score(t, m) for n, (t, m, _) in NUMBERS.items() if t in there}
    model = printed.setting(found, options.paper)
    budgets = sorted({int(key.keep) for key in keys}, reverse=True)
    made = {name: draws.estimates(LEVEL) for name, draws in numbers.items()}
    means = both.macro(retention=True).estimates(LEVEL) if both.rising and both.retains else {}
    rows = [_row(both, FULL_KEY, made, means, model)]
    for keep in map(str, budgets):
        order = [one.plan for one in lineup(found.depth)]
        plans = dict.fromkeys([*order, *(key.plan for key in keys), *ALWAYS])
        shown = [Key(plan, keep) for plan in plans]
        rows += [
            _row(both, key, made, means, model)
            for key in shown
            if both.has(key) or key.plan in (*GMC, *ALWAYS)
        ]
    columns = [Column("keep", "K"), *METHOD, *COST]
    for name in numbers:
        columns.append(Column(name, TITLES.get(name, name), 2))
        if model is not None and NUMBERS[name][2]:
            columns.append(Column(PAPER + name, f"{TITLES.get(name, name)} (paper)", 2))
    columns.append(Column("average", "Mean retention", 2))
    if model is not None:
        columns.append(Column(PAPER + "average", "Mean retention (paper)", 2))
    notes = [
        both.note(),
        "CHAIRs and CHAIRi: lower is better. Mean retention: over those where more is better, "
        "relative to Full.",
        COSTS,
        QUERY_AWARE,
        *found.notes,
    ]
    table = Table("hallucination", f"Hallucination, {found.model}", columns, rows, notes)
    family = _family(both, numbers, str(min(budgets))) if budgets else None
    return [table] if family is None else [table, family]


def _row(
    both: Comparison,
    key: Key,
    numbers: dict[str, dict[str, Estimate]],
    means: dict[str, Estimate],
    model: str | None,
) -> Row:
    values: dict[str, Value] = {"keep": key.keep, **described(both.found, key)}
    if not both.has(key):
        return Row(values, key.keep, command(both.found, key, both.tasks))
    values |= costs(both.found, key, both.tasks)
    for name, found in numbers.items():
        values[name] = cell(found[key.label])
        if model is not None and NUMBERS[name][2]:
            values[PAPER + name] = printed.number("hallucination", NUMBERS[name][2], model, key)
    if means:
        values["average"] = cell(means[key.label])
    if model is not None:
        values[PAPER + "average"] = printed.number("hallucination", "average", model, key)
    return Row(values, key.keep, reference=key == FULL_KEY)


def _family(both: Comparison, numbers: dict[str, Draws], keep: str) -> Table | None:
    """GMC-L16 minus every comparator on the endpoints; a family per comparator."""
    ours = Key(GMC[1], keep)
    there = [key for key in both.found.runs if key.keep == keep and key.plan not in GMC]
    others = [key for key in there if both.has(key)]
    if not both.has(ours) or not others:
        return None
    rows = []
    for other in others:
        weights = {"d": {ours.label: 1.0, other.label: -1.0}}
        found = {
            name: numbers[name].combined(weights).estimates(LEVEL)["d"]
            for name in ENDPOINTS
            if name in numbers
        }
        adjusted = holm({name: one.p(both.options.alternative) for name, one in found.items()})
        for name, one in found.items():
            values: dict[str, Value] = {"other": other.plan, "endpoint": TITLES.get(name, name)}
            rows.append(Row({**values, "delta": cell(one), "p": adjusted[name]}, other.plan))
    columns = [
        Column("other", "Comparator", text=True),
        Column("endpoint", "Endpoint", text=True),
        Column("delta", "GMC-L16 minus comparator", signed=True),
        Column("p", "p (Holm)", 4),
    ]
    asked = sum(name in numbers for name in ENDPOINTS)
    note = both.family(asked, "endpoints of each comparator")
    return Table("hallucination-family", f"Endpoints at K = {keep}", columns, rows, [note])
