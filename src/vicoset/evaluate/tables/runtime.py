"""What answers cost in time and memory, beside what they are worth."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from vicoset.errors import RunError
from vicoset.evaluate.tables import printed
from vicoset.evaluate.tables.comparison import Comparison, Options
from vicoset.evaluate.tables.lineup import ALWAYS, GMC, lineup
from vicoset.evaluate.tables.records import FULL_KEY, Found, Key
from vicoset.evaluate.tables.rows import COST, COSTS, METHOD, QUERY_AWARE, command, costs, described
from vicoset.evaluate.tables.table import Column, Row, Table, Value
from vicoset.evaluate.tables.times import WARM, Times

PAPER = {"paper_seconds": "seconds", "paper_speedup": "speedup"}


def timed_keys(found: Found) -> list[Key]:
    """The rows of a table of times: Full, then budgets from the largest to the smallest.

    Rows that have to be there come along where they were not run.

    Args:
        found: the records.
    """
    order = {one.plan: place for place, one in enumerate(lineup(found.depth))}
    keys = [key for key in found.runs if key != FULL_KEY]
    counts = sorted({int(key.keep) for key in keys if key.keep.isdecimal()}, reverse=True)
    budgets = [*map(str, counts), *sorted({k.keep for k in keys if not k.keep.isdecimal()})]
    shown = [FULL_KEY]
    for keep in budgets:
        mine = [key for key in keys if key.keep == keep]
        wanted = [Key(plan, keep) for plan in (*GMC, *ALWAYS)] if keep.isdecimal() else []
        mine += [key for key in wanted if key not in mine]
        shown += sorted(mine, key=lambda key: (order.get(key.plan, len(order)), key.plan))
    return shown


def times_of(
    found: Found, keys: Sequence[Key], tasks: Sequence[str], options: Options
) -> dict[Key, Times]:
    """The times of the rows that are there; refused where nobody looked at the clock.

    Args:
        found: the records.
        keys: of the rows.
        tasks: by name.
        options: replicates and seed.
    """
    made = {k: Times.of(found, k, tasks, options) for k in keys if found.complete(k, tasks)}
    if not made[FULL_KEY].questions:
        raise RunError(
            f"{found.out} holds no times of Full beside those of its first question; allowed are "
            "two questions or more of a process whose methods share nothing (--no-share). Run "
            "`python -m vicoset.evaluate study runtime` with another --out."
        )
    return made


def left_out(times: dict[Key, Times]) -> list[str]:
    """Notes on rows whose times stand alone.

    Args:
        times: of the rows.
    """
    alone = [key.label for key, one in times.items() if not one.questions]
    if not alone:
        return []
    return [
        f"No times for {', '.join(alone)}: they ran in another process than Full, or shared work "
        "with other methods (--share). Run `study runtime` with another --out."
    ]


def runtime(found: Found, tasks: Sequence[str] = (), options: Options | None = None) -> list[Table]:
    """Rows by budget: scores, work, prompt-KV bytes, seconds, speedup and peak memory.

    Args:
        found: the records.
        tasks: by name; all of Full's when empty.
        options: how to compare.
    """
    options = options or Options()
    keys = timed_keys(found)
    both = Comparison.of(found, keys, tasks, options)
    times = times_of(found, keys, both.tasks, options)
    model = printed.setting(found, options.paper)
    scores = {task: both.score(task) for task in both.tasks}

    def numbers(key: Key) -> dict[str, Value]:
        values: dict[str, Value] = {t: draws.of(key.label) for t, draws in scores.items()}
        cost = found.cost(key, both.tasks)
        values["kv"] = None if cost is None else cost.kv
        if times[key].questions:
            values |= {"seconds": times[key].mean("request"), "peak": times[key].peak}
            values |= {"prompt": times[key].mean("prompt").value}
            values["speedup"] = 1.0 if key == FULL_KEY else times[key].speedup()
        if model is not None:
            values |= {
                name: printed.number("runtime", column, model, key, found.tokens)
                for name, column in PAPER.items()
            }
        return values

    columns = [
        Column("keep", "K"),
        *METHOD,
        *COST,
        *(Column(task, task, 2) for task in both.tasks),
        Column("kv", "KV saved %", 2),
        Column("prompt", "Prompt s", 4),
        Column("seconds", "Time s", 4),
        Column("speedup", "Speedup", 3),
        Column("peak", "Peak GiB", 2),
        *([Column("paper_seconds", "Time s (paper)", 4)] if model else []),
        *([Column("paper_speedup", "Speedup (paper)", 3)] if model else []),
    ]
    notes = [
        both.note(),
        WARM + f" {times[FULL_KEY].questions} questions; time is from processed inputs to the "
        "last token, prompt to the first; speedup is Full's time over the row's, with its "
        "interval over questions. Peak: of the accelerator's memory, or of the process on a CPU.",
        *left_out(times),
        COSTS,
        QUERY_AWARE,
        machine(found),
        *found.notes,
    ]
    rows = timed_rows(both, keys, numbers)
    return [Table("runtime", f"Runtime, {found.model}", columns, rows, notes)]


def timed_rows(
    both: Comparison, keys: Sequence[Key], numbers: Callable[[Key], dict[str, Value]]
) -> list[Row]:
    """Rows with their method and cost, or with the command that runs them.

    Args:
        both: the comparison.
        keys: of the rows.
        numbers: gives the other values of a row that is there.
    """
    rows = []
    for key in keys:
        values: dict[str, Value] = {"keep": key.keep, **described(both.found, key)}
        if both.has(key):
            values |= {**costs(both.found, key, both.tasks), **numbers(key)}
            rows.append(Row(values, key.keep, reference=key == FULL_KEY))
        else:
            rows.append(Row(values, key.keep, command(both.found, key, both.tasks)))
    return rows


def machine(found: Found) -> str:
    """Where the times are from.

    Args:
        found: the records.
    """
    told = {str(facts.get("machine", {})): facts for facts in found.facts.values()}
    said = []
    for facts in told.values():
        about, model = facts.get("machine", {}), facts.get("identity", {}).get("model", {})
        device = about.get("accelerator", "unknown")
        device = f"CPU ({about.get('threads')} threads)" if device == "none" else device
        said.append(f"{device}, {model.get('dtype')}, {model.get('attention')}")
    return "Machine: " + "; ".join(said) + "."
