"""Quality at equal work: every comparator gets the budget that costs what GMC costs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from vicoset.errors import PlanError, RunError, VicosetError
from vicoset.evaluate.statistics import Estimate
from vicoset.evaluate.tables import printed
from vicoset.evaluate.tables.comparison import LEVEL, Comparison, Options, cell
from vicoset.evaluate.tables.lineup import ALWAYS, GMC, costed, lineup, noted
from vicoset.evaluate.tables.records import FULL_KEY, Found, Key
from vicoset.evaluate.tables.rows import COST, COSTS, METHOD, QUERY_AWARE, command, costs, described
from vicoset.evaluate.tables.table import Column, Row, Table, Value
from vicoset.plan import equal_work as equal_budget
from vicoset.plan import plan_named, work


class Target(NamedTuple):
    """What others have to cost.

    Attributes:
        key: GMC's row.
        work: its W.
    """

    key: Key
    work: int

    @property
    def name(self) -> str:
        """``H2-128``, as the paper writes it."""
        return f"{self.key.plan.removeprefix('gmc-').upper()}-{self.key.keep}"


def targets(plans: Sequence[str], keeps: Sequence[int], tokens: int, depth: int) -> list[Target]:
    """The work of GMC's points.

    Args:
        plans: such as gmc-h2.
        keeps: K.
        tokens: N.
        depth: L.
    """
    found = []
    for plan in plans:
        p = plan_named(plan, depth).boundaries
        found += [Target(Key(plan, str(k)), work(p, [k], tokens, depth)) for k in keeps]
    return found


def budget(name: str, target: int, tokens: int, depth: int) -> int | None:
    """K that gives a plan a work nearest to a target; None where no K does.

    Args:
        name: of the plan.
        target: W.
        tokens: N.
        depth: L.
    """
    try:
        return equal_budget(plan_named(costed(name), depth), target, tokens, depth).tokens
    except PlanError:
        return None


def pairs(
    goals: Sequence[Target], plans: Sequence[str], tokens: int, depth: int
) -> dict[Target, list[Key]]:
    """For every target the rows that cost as much.

    Args:
        goals: GMC's points.
        plans: of the comparators.
        tokens: N.
        depth: L.
    """
    found: dict[Target, list[Key]] = {}
    for goal in goals:
        asked = [(plan, budget(plan, goal.work, tokens, depth)) for plan in plans]
        found[goal] = [Key(plan, str(keep)) for plan, keep in asked if keep is not None]
    return found


def equal_work(
    found: Found, tasks: Sequence[str] = (), options: Options | None = None
) -> list[Table]:
    """Rows by target; comparators at the budget that costs the same.

    Args:
        found: the records.
        tasks: by name; all of Full's when empty.
        options: how to compare.
    """
    options = options or Options()
    tokens, depth = found.tokens, found.depth
    if tokens is None:
        raise RunError(
            "the questions have different numbers of visual tokens, so no one budget gives equal "
            "work; allowed are tasks with one N. Resize the images to one size first."
        )
    keeps = sorted({int(k.keep) for k in found.runs if k.plan in GMC and k.keep.isdecimal()})
    if not keeps:
        raise RunError(f"{found.out} holds no run of {' or '.join(GMC)}, whose work is the target.")
    known = dict.fromkeys([*(one.plan for one in lineup(depth)), *ALWAYS])
    there = {key.plan for key in found.runs}
    plans = [plan for plan in known if plan not in GMC and (plan in there or plan in ALWAYS)]
    goals = [g for g in targets(GMC, keeps, tokens, depth) if g.key in found.runs]
    rows_of = pairs(goals, [p for p in plans if _is_plan(p, depth)], tokens, depth)
    keys = [*(goal.key for goal in goals), *(key for mine in rows_of.values() for key in mine)]
    both = Comparison.of(found, keys, tasks, options)
    retention = both.retains
    macros = both.macro(retention=retention)
    against = both.differences(
        macros,
        {
            (goal, key): (key, goal.key)
            for goal, mine in rows_of.items()
            for key in mine
            if both.has(key) and both.has(goal.key)
        },
    )
    estimates = macros.estimates(LEVEL)
    paper = printed.setting(found, options.paper)
    rows = [_full(both, estimates)]
    for goal, mine in rows_of.items():
        for key in [goal.key, *(one for one in mine if both.has(one) or one.plan in ALWAYS)]:
            values: dict[str, Value] = {"target": goal.name, "keep": key.keep}
            values |= described(found, key)
            missing = "" if both.has(key) else command(found, key, both.tasks)
            if not missing:
                values |= costs(found, key, both.tasks)
                cost = found.cost(key, both.tasks)
                values["final"] = None if cost is None else 100 * cost.kept / tokens
                values["macro"] = cell(estimates[key.label])
            if (goal, key) in against:
                one, p = against[goal, key]
                values |= {"delta": cell(one), "p": p}
            if paper is not None:
                values["paper"] = _printed(paper, goal, key)
            rows.append(Row(values, goal.name, missing, key == goal.key))
    left = [
        p
        for p in plans
        if _is_plan(p, depth) and all(k.plan != p for m in rows_of.values() for k in m)
    ]
    what = "retention of Full" if retention else "percent of the attainable; Full is 0 somewhere"
    notes = [
        both.note(),
        f"Targets: the work of {' and '.join(GMC)}; each comparator has the K whose work is "
        "nearest, so its final K is larger the earlier it compresses.",
        f"Macro: equal-task mean, {what}. Δ: comparator minus the target's GMC, in points. "
        + both.family(len(against), "differences of this table"),
        COSTS,
        QUERY_AWARE,
        *([f"No budget gives these plans a target's work: {', '.join(left)}."] if left else []),
        *noted([key.plan for mine in rows_of.values() for key in mine], depth),
        *found.notes,
    ]
    columns = [
        Column("target", "Target", text=True),
        Column("keep", "K"),
        *METHOD,
        *COST,
        Column("final", "Final %", 2),
        Column("macro", "Macro", 2),
        *([Column("paper", "Macro (paper)", 2)] if paper else []),
        Column("delta", "Δ to GMC", signed=True),
        Column("p", "p (Holm)", 4),
    ]
    return [Table("equal-work", f"Equal work, {found.model}", columns, rows, notes)]


def _full(both: Comparison, estimates: Mapping[str, Estimate]) -> Row:
    values: dict[str, Value] = {"target": "", **described(both.found, FULL_KEY)}
    values |= costs(both.found, FULL_KEY, both.tasks)
    values |= {"final": 100.0, "macro": estimates[FULL_KEY.label].value}
    return Row(values, "", reference=True)


def _is_plan(plan: str, depth: int) -> bool:
    try:
        plan_named(costed(plan), depth)
    except VicosetError:
        return False
    return True


def _printed(model: str, goal: Target, key: Key) -> float | None:
    from vicoset.evaluate import paper

    rows = [
        row
        for row in paper.table("equal_work")
        if (row["model"], row["target"], row["plan"]) == (model, goal.name, key.plan)
        and row["keep"] == key.keep
    ]
    return float(rows[0]["macro"]) if rows else None
