"""The message pathway: all of it against none of it, over budgets, and how the two interact."""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence

from vicoset.errors import RunError
from vicoset.evaluate import paper as published
from vicoset.evaluate.statistics.draws import Draws
from vicoset.evaluate.tables import printed
from vicoset.evaluate.tables.comparison import LEVEL, Comparison, Options, cell
from vicoset.evaluate.tables.factorial import DESIGN
from vicoset.evaluate.tables.records import FULL_KEY, Found, Key
from vicoset.evaluate.tables.rows import (
    COST,
    COSTS,
    QUERY_AWARE,
    command,
    controls,
    costs,
    described,
)
from vicoset.evaluate.tables.table import Column, Row, Table, Value
from vicoset.methods import interventions

MACRO = "macro"


def ends(where: str) -> tuple[str, str]:
    """The plan with the complete message path, and the one without any of it.

    Args:
        where: a preset or a boundary.
    """
    cells = interventions.factorial(where, DESIGN)
    whole = next(plan for plan, levels in cells.items() if all(levels))
    none = next(plan for plan, levels in cells.items() if not any(levels))
    return whole, none


def message_pathway(
    found: Found,
    tasks: Sequence[str] = (),
    options: Options | None = None,
    where: Sequence[str] = ("gmc-h2", "gmc-l16"),
) -> list[Table]:
    """Effect of the complete path for every budget, and how it differs between budgets.

    Args:
        found: the records.
        tasks: by name; all of Full's when empty.
        options: how to compare.
        where: presets or boundaries.
    """
    options = options or Options()
    both_ends = {at: ends(at) for at in where}
    known = {plan for pair in both_ends.values() for plan in pair}
    keeps = sorted({int(k.keep) for k in found.runs if k.plan in known and k.keep.isdecimal()})
    if not keeps:
        raise RunError(
            f"{found.out} holds no run of {', '.join(sorted(known))}; run `python -m "
            "vicoset.evaluate study message-pathway`, which runs them."
        )
    keys = [Key(plan, str(k)) for plan in sorted(known) for k in keeps]
    keys += controls([str(k) for k in keeps])
    both = Comparison.of(found, keys, tasks, options)
    columns = {task: both.percentage(task) for task in both.tasks}
    columns |= {MACRO: both.macro(retention=False)}
    model = printed.setting(found, options.paper)
    beside = [FULL_KEY, *controls([str(k) for k in keeps])]
    rows = [_score(both, key, columns) for key in beside]
    for at, (whole, none) in both_ends.items():
        rows += _rows(both, at, whole, none, keeps, columns, model)
    shown = [
        Column("at", "At", text=True),
        Column("keep", "K"),
        Column("what", "Effect", text=True),
        Column("question", "Reads the question", text=True),
        *COST,
        *(Column(task, task, signed=True) for task in columns),
        *([Column("paper", "Macro (paper)", signed=True)] if model else []),
    ]
    notes = [
        both.note(),
        "Message path: current message, history and population weighting together, minus none of "
        "them, in points of the attainable; banks of appearance and space, assignment, positions "
        "and budget are the same. The rows of Full and of the controls have their scores.",
        "Interactions: the effect at one budget minus that at another, in the same replicates.",
        COSTS,
        QUERY_AWARE,
        *found.notes,
    ]
    return [Table("message-pathway", f"Message pathway, {found.model}", shown, rows, notes)]


def _score(both: Comparison, key: Key, columns: Mapping[str, Draws]) -> Row:
    """The scores of a row that effects are set beside."""
    about = described(both.found, key)
    values: dict[str, Value] = {"keep": key.keep, "what": f"score of {about['method']}"}
    values["question"] = about["question"]
    if not both.has(key):
        return Row(values, "", command(both.found, key, both.tasks))
    values |= costs(both.found, key, both.tasks)
    values |= {name: draws.of(key.label) for name, draws in columns.items()}
    return Row(values, reference=key == FULL_KEY, unsigned=True)


def _rows(
    both: Comparison,
    at: str,
    whole: str,
    none: str,
    keeps: Sequence[int],
    columns: Mapping[str, Draws],
    model: str | None,
) -> list[Row]:
    rows, there = [], []
    for keep in keeps:
        pair = Key(whole, str(keep)), Key(none, str(keep))
        values: dict[str, Value] = {"at": at, "keep": str(keep), "what": "message path"}
        lacking = [key for key in pair if not both.has(key)]
        if lacking:
            rows.append(Row(values, at, command(both.found, lacking[0], both.tasks)))
            continue
        there.append(keep)
        values |= costs(both.found, pair[0], both.tasks)
        values["question"] = described(both.found, pair[0])["question"]
        weights = {"effect": {pair[0].label: 1.0, pair[1].label: -1.0}}
        for name, draws in columns.items():
            values[name] = cell(draws.combined(weights).estimates(LEVEL)["effect"])
        if model is not None:
            values["paper"] = _printed(model, at, str(keep))
        rows.append(Row(values, at))
    for low, high in itertools.pairwise(there):
        weights = {
            "effect": {
                Key(whole, str(low)).label: 1.0,
                Key(none, str(low)).label: -1.0,
                Key(whole, str(high)).label: -1.0,
                Key(none, str(high)).label: 1.0,
            }
        }
        values = {"at": at, "keep": f"{low} - {high}", "what": "message path x budget"}
        for name, draws in columns.items():
            values[name] = cell(draws.combined(weights).estimates(LEVEL)["effect"])
        rows.append(Row(values, at))
    return rows


def _printed(model: str, at: str, keep: str) -> float | None:
    for row in published.table("message_pathway"):
        place = (row["model"], row["boundary"].lower(), row["keep"], row["effect"], row["task"])
        if place == (model, at.removeprefix("gmc-"), keep, "message path", MACRO):
            return float(row["value"])
    return None
