"""What the compaction itself takes, part by part."""

from __future__ import annotations

from collections.abc import Sequence

from vicoset.evaluate import paper
from vicoset.evaluate.tables import printed
from vicoset.evaluate.tables.comparison import Comparison, Options
from vicoset.evaluate.tables.lineup import GMC
from vicoset.evaluate.tables.records import FULL_KEY, Found, Key
from vicoset.evaluate.tables.rows import COST, COSTS, METHOD, QUERY_AWARE
from vicoset.evaluate.tables.runtime import left_out, machine, timed_keys, timed_rows, times_of
from vicoset.evaluate.tables.table import Cell, Column, Table, Value
from vicoset.evaluate.tables.times import PARTS, WARM, Times


def overhead(
    found: Found, tasks: Sequence[str] = (), options: Options | None = None
) -> list[Table]:
    """Rows by budget: milliseconds of every part, and their sum beside Full's prompt.

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

    def numbers(key: Key) -> dict[str, Value]:
        values = _numbers(key, times[key]) if times[key].questions else {}
        printed_too = model is not None and key.plan in GMC
        return {**values, "paper": _printed(found, key)} if printed_too else values

    columns = [
        Column("keep", "K"),
        *METHOD,
        *COST,
        Column("prompt", "Prompt ms", 1),
        *(Column(part, f"{part.capitalize()} ms", 1) for part in PARTS),
        Column("total", "Total ms", 1),
        Column("share", "% of Full's prompt", 2),
        *([Column("paper", "Total ms (paper)", 1)] if model else []),
    ]
    notes = [
        both.note(),
        WARM + f" {times[FULL_KEY].questions} questions. Message: reading the boundary block and "
        "its messages; selection: clients and the choice; transport: what the carriers hold; "
        "compaction: gathering states and cache. All of it is inside the prompt's time.",
        "Downsample compacts nothing: its smaller images are made with the inputs.",
        *left_out(times),
        COSTS,
        QUERY_AWARE,
        machine(found),
        *found.notes,
    ]
    rows = timed_rows(both, keys, numbers)
    return [Table("overhead", f"Overhead of the compaction, {found.model}", columns, rows, notes)]


def _numbers(key: Key, times: Times) -> dict[str, Value]:
    found: dict[str, Value] = {"prompt": 1000 * times.mean("prompt").value}
    if key == FULL_KEY or not times.parted:
        return found
    found |= {part: 1000 * times.mean(part).value for part in PARTS}
    return {**found, "total": _milli(times.total()), "share": times.share()}


def _milli(one: Cell) -> Cell:
    low, high = (None if end is None else 1000 * end for end in (one.low, one.high))
    return Cell(1000 * one.value, low, high)


def _printed(found: Found, key: Key) -> float | None:
    row = paper.find("overhead", tokens=str(found.tokens), keep=key.keep)
    return None if row is None else float(row["total_ms"])
