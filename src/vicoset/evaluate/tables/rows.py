"""The columns that every comparing table has: the method, what it was asked, what it cost."""

from __future__ import annotations

import shlex
from collections.abc import Sequence

from vicoset.errors import PlanError, UnknownNameError
from vicoset.evaluate.entry import FULL
from vicoset.evaluate.tables.lineup import ALWAYS, Member, member
from vicoset.evaluate.tables.records import Cost, Found, Key
from vicoset.evaluate.tables.table import Column, Value

PROGRAM = "python -m vicoset.evaluate"
METHOD = (
    Column("method", "Method", text=True),
    Column("plan", "Plan", text=True),
    Column("question", "Reads the question", text=True),
)
COST = (
    Column("kept", "Realised K", 1),
    Column("average", "Layer average", 1),
    Column("work", "Work %", 2),
)
QUERY_AWARE = "Reads the question: query-aware, the choice depends on what is asked."
COSTS = (
    "Realised K is behind the last stage, the layer average is W / L, work is W / (L N): visual "
    "token-layer work relative to Full; means over the questions."
)


def described(found: Found, key: Key) -> dict[str, Value]:
    """A row's method, plan and mark.

    Args:
        found: the records.
        key: of the row.
    """
    known = known_as(key.plan, found.depth)
    runs = found.runs.get(key, ())
    seeds = f" (mean of {len(runs)} seeds)" if len(runs) > 1 else ""
    aware = runs[0].info.query_aware if runs else known.query_aware
    return {
        "method": known.title + seeds,
        "plan": key.plan,
        "question": "yes" if aware else "no",
    }


def known_as(plan: str, depth: int) -> Member:
    """What the registry knows of a plan; the name alone where it knows nothing.

    Args:
        plan: its name.
        depth: L.
    """
    try:
        return member(plan, depth)
    except (PlanError, UnknownNameError):
        return Member(plan, plan, False, (), False)


def costs(found: Found, key: Key, tasks: Sequence[str]) -> dict[str, Value]:
    """A row's realised K, layer average and work.

    Args:
        found: the records.
        key: of the row.
        tasks: whose questions count.
    """
    cost: Cost | None = found.cost(key, tasks)
    if cost is None:
        return {}
    return {"kept": cost.kept, "average": cost.average, "work": cost.work}


def controls(keeps: Sequence[str]) -> list[Key]:
    """The controls that stand beside every comparison, for each count of tokens.

    Args:
        keeps: budgets; only counts have the controls.
    """
    counts = [keep for keep in dict.fromkeys(keeps) if keep.isdecimal()]
    return [Key(plan, keep) for keep in counts for plan in ALWAYS]


def command(found: Found, key: Key, tasks: Sequence[str]) -> str:
    """What runs a row that is missing.

    Args:
        found: the records; the data's choices are those of the runs that are there.
        key: of the row.
        tasks: by name.
    """
    told = [found.facts.get(task, {}).get("asked", {}) for task in tasks]
    first = told[0] if told else {}
    model = str(first.get("model", found.model))
    parts = ["run", "--model", model, "--tasks", ",".join(tasks), "--out", found.out]
    parts += ["--methods", key.plan] + ([] if key.plan == FULL else ["--keeps", key.keep])
    for task in tasks:
        asked = found.facts.get(task, {}).get("identity", {}).get("task", {}).get("choices", {})
        if asked:
            parts += ["--choice", f"{task}=" + ",".join(f"{k}:{v}" for k, v in asked.items())]
    for task, about in zip(tasks, told, strict=True):
        parts += ["--data", f"{task}={about['data']}"] if about.get("data") else []
    parts += ["--limit", str(first["limit"])] if first.get("limit") else []
    parts += ["--prefix", first["prefix"]] if first.get("prefix", "gathered") != "gathered" else []
    parts += ["--square", str(first["square"])] if first.get("square") else []
    parts += ["--allow-uncertified"] if first.get("allow_uncertified") else []
    return f"{PROGRAM} {shlex.join(parts)}"
