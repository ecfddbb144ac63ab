"""Complete 2^k designs: the cells, and the effects recomputed inside every replicate."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from vicoset.errors import RunError
from vicoset.evaluate import paper as published
from vicoset.evaluate.statistics.draws import Draws
from vicoset.evaluate.statistics.factorial import factorial
from vicoset.evaluate.tables import printed
from vicoset.evaluate.tables.comparison import LEVEL, Comparison, Options, cell
from vicoset.evaluate.tables.records import FULL_KEY, Found, Key
from vicoset.evaluate.tables.rows import (
    COST,
    COSTS,
    METHOD,
    QUERY_AWARE,
    command,
    controls,
    costs,
    described,
)
from vicoset.evaluate.tables.table import Column, Row, Table, Value
from vicoset.methods import interventions

DESIGN = interventions.PATHWAY


def factorial_effects(
    found: Found,
    tasks: Sequence[str] = (),
    options: Options | None = None,
    where: Sequence[str] = ("gmc-h2", "gmc-l16"),
    factors: Sequence[str] = DESIGN,
) -> list[Table]:
    """For every point and budget of the records the cells and the effects of a design.

    Args:
        found: the records.
        tasks: by name; all of Full's when empty.
        options: how to compare.
        where: presets or boundaries that the design is laid over.
        factors: of ``interventions.FACTORS``.
    """
    options = options or Options()
    designs = {at: interventions.factorial(at, factors) for at in where}
    budgets = _budgets(found, designs)
    if not budgets:
        raise RunError(
            f"{found.out} holds no cell of the design {', '.join(factors)} at {', '.join(where)}; "
            "run `python -m vicoset.evaluate study factorial`, which runs them all."
        )
    keys = [Key(p, k) for at, k in budgets for p in designs[at]]
    keys += controls([k for _, k in budgets])
    both = Comparison.of(found, keys, tasks, options)
    cells = _cells(both, designs, budgets, factors)
    return [cells, *_effects(both, designs, budgets, factors, options)]


def _budgets(found: Found, designs: Mapping[str, Mapping[str, object]]) -> list[tuple[str, str]]:
    """Point and budget of every design that at least two cells were run of."""
    pairs = []
    for at, cells in designs.items():
        keeps = [k.keep for k in found.runs if k.plan in cells]
        pairs += [(at, k) for k in sorted(set(keeps), key=_number) if keeps.count(k) > 1]
    return pairs


def _number(text: str) -> float:
    return float(text.rstrip("%")) if text.rstrip("%").replace(".", "").isdecimal() else 0.0


def _cells(
    both: Comparison,
    designs: Mapping[str, Mapping[str, Sequence[bool]]],
    budgets: Sequence[tuple[str, str]],
    factors: Sequence[str],
) -> Table:
    macros = both.macro(retention=False)
    estimates = macros.estimates(LEVEL)
    rows = []
    scores = {task: both.score(task) for task in both.tasks}

    def row(key: Key, group: str, values: dict[str, Value]) -> Row:
        values = {"keep": key.keep, **described(both.found, key), **values}
        if not both.has(key):
            return Row(values, group, command(both.found, key, both.tasks))
        values |= costs(both.found, key, both.tasks)
        values |= {task: draws.of(key.label) for task, draws in scores.items()}
        return Row(
            {**values, "macro": cell(estimates[key.label])}, group, reference=key == FULL_KEY
        )

    rows.append(row(FULL_KEY, "", {}))
    for at, keep in budgets:
        for plan, levels in designs[at].items():
            told = zip(factors, levels, strict=True)
            switches: dict[str, Value] = {factor: "on" if on else "off" for factor, on in told}
            rows.append(row(Key(plan, keep), f"{at} {keep}", switches))
    rows += [row(key, f"controls {key.keep}", {}) for key in controls([k for _, k in budgets])]
    columns = [
        Column("keep", "K"),
        *METHOD,
        *(Column(factor, factor, text=True) for factor in factors),
        *COST,
        *(Column(task, task, 2) for task in both.tasks),
        Column("macro", "Macro", 2),
    ]
    macro = "Macro: equal-task mean, percent of the attainable."
    notes = [both.note(), macro, COSTS, QUERY_AWARE, *both.found.notes]
    title = f"Cells of the design {', '.join(factors)}, {both.found.model}"
    return Table("factorial-cells", title, columns, rows, notes)


def _effects(
    both: Comparison,
    designs: Mapping[str, Mapping[str, Sequence[bool]]],
    budgets: Sequence[tuple[str, str]],
    factors: Sequence[str],
    options: Options,
) -> list[Table]:
    model = printed.setting(both.found, options.paper)
    rows = []
    for at, keep in budgets:
        cells = designs[at]
        if not all(both.has(Key(plan, keep)) for plan in cells):
            continue
        named = {Key(plan, keep).label: levels for plan, levels in cells.items()}

        def contrast(draws: Draws, named: Mapping[str, Sequence[bool]] = named) -> Draws:
            return factorial(draws, factors, named)

        macros = contrast(both.macro(retention=False)).estimates(LEVEL)
        per_task = {t: contrast(both.percentage(t)).estimates(LEVEL) for t in both.tasks}
        for effect, one in macros.items():
            values: dict[str, Value] = {"at": at, "keep": keep, "effect": effect}
            values |= {task: cell(found[effect]) for task, found in per_task.items()}
            values |= {"macro": cell(one), "p": one.p(options.alternative)}
            if model is not None:
                values["paper"] = _printed(model, at, keep, effect)
            rows.append(Row(values, f"{at} {keep}"))
    columns = [
        Column("at", "At", text=True),
        Column("keep", "K"),
        Column("effect", "Effect", text=True),
        *(Column(task, task, signed=True) for task in both.tasks if len(both.tasks) > 1),
        Column("macro", "Macro", signed=True),
        Column("p", "p", 4),
        *([Column("paper", "Macro (paper)", signed=True)] if model else []),
    ]
    notes = [
        both.note(),
        "A main effect is the mean of the cells with a factor minus that of those without; an "
        "interaction is a difference of differences, not halved; all in points of the attainable, "
        "recomputed in every replicate.",
        f"p: {options.alternative}, not adjusted: the effects are descriptive.",
    ]
    if not rows:
        return []
    title = f"Effects of {', '.join(factors)}, {both.found.model}"
    return [Table("factorial-effects", title, columns, rows, notes)]


def _printed(model: str, at: str, keep: str, effect: str) -> float | None:
    if effect == "message x history x population" or " x " not in effect:
        for row in published.table("message_pathway"):
            place = (row["panel"], row["model"], row["boundary"].lower(), row["keep"])
            if place == ("a", model, at.removeprefix("gmc-"), keep) and row["effect"] == effect:
                return float(row["value"])
    return None
