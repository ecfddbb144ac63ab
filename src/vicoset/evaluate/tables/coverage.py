"""Final-support coverage at each boundary: mean and fifth percentile, all banks and one by one."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import Any

import numpy as np

from vicoset.errors import RunError
from vicoset.evaluate import paper as published
from vicoset.evaluate.entry import Entry
from vicoset.evaluate.folder import Folder
from vicoset.evaluate.statistics.ranked import Column as Ranked
from vicoset.evaluate.tables import printed
from vicoset.evaluate.tables.audits import Diagnosed, audit_of, shown
from vicoset.evaluate.tables.comparison import Comparison, Options
from vicoset.evaluate.tables.records import FULL_KEY, Found, Key
from vicoset.evaluate.tables.rows import COST, COSTS, costs
from vicoset.evaluate.tables.table import Column, Row, Table, Value

BANKS = {"all": "All", "grounded": "Grounded", "appearance": "Appearance", "spatial": "Spatial"}
LEFT = {"grid": "Grid left", "distance": "Distance", "bound": "its bound"}
LOW = 0.05  # the fifth percentile
NOTES = (
    "Coverage of a support before recovery: F(S)/F(V) and saturation of its banks, mean over "
    "the requests and their fifth percentile (5%), with 95% intervals. Of a plan's stages: the "
    "last.",
    "Grid left: uncovered-grid distortion. Distance: mean squared chord of appearance clients "
    "to the nearest carrier, beside the bound that coverage gives. Violated: statements that "
    "did not hold, of all requests.",
)


def coverage(
    found: Found,
    folders: Sequence[Folder],
    tasks: Sequence[str] = (),
    options: Options | None = None,
    where: Sequence[str] = (),
) -> list[Table]:
    """A row per plan and budget, in the order of their boundaries.

    Args:
        found: the records of audited runs.
        folders: of those runs.
        tasks: by name; all of Full's when empty.
        options: how to resample.
        where: only these plans; all that are there when empty.
    """
    options = options or Options()
    keys = [k for k in found.runs if k != FULL_KEY and (not where or k.plan in where)]
    if not keys:
        raise RunError(
            f"{found.out} holds no audited run; run `vicoset evaluate study coverage`, which runs "
            "GMC at each boundary."
        )
    both = Comparison.of(found, keys, tasks, options)
    seen = Diagnosed.of(both, folders)
    means = seen.means({name: _part(name) for name in (*BANKS, *LEFT, "certificate")})
    low = {name: seen.ranked(functools.partial(_fifth, name)) for name in BANKS}
    violated = _violations(seen)
    model = printed.setting(found, options.paper)
    rows = []
    for key in sorted(filter(both.has, keys), key=lambda one: (_boundary(seen, one), one)):
        values: dict[str, Value] = {"plan": key.plan, "p": _boundary(seen, key), "keep": key.keep}
        values |= costs(found, key, both.tasks)
        for name in BANKS:
            values[name] = shown(means[name], key.label)
            values[f"{name}_p5"] = shown(low[name], key.label)
        for name in (*LEFT, "certificate"):
            values[name] = shown(means[name], key.label)
        values["violations"] = violated[key]
        if model is not None:
            values |= _printed(model, key)
        rows.append(Row(values, key.keep))
    return [
        Table(
            "coverage",
            f"Coverage of final supports, {found.model}",
            _all_columns(model is not None),
            rows,
            [both.note(), *NOTES, COSTS, *found.notes],
        )
    ]


def _part(name: str) -> Any:
    def take(entry: Entry, full: Entry) -> float | None:
        found = audit_of(entry)["coverage"]
        return found[-1][name] if found else None

    return take


def _fifth(name: str, entries: list[Entry], full: list[Entry]) -> Ranked:
    values = [_part(name)(one, whole) for one, whole in zip(entries, full, strict=True)]
    there = np.array([value is not None for value in values], np.bool_)
    return Ranked(np.array([v for v in values if v is not None], np.float64), None, there, LOW)


def _boundary(seen: Diagnosed, key: Key) -> int:
    """p of a row's last stage, -1 where nothing was compressed."""
    name = seen.both.members[key.label][0]
    entries = [one for found in seen.samples[name].values() for one in found.values()]
    return max((one.boundaries[-1] for one in entries if one.boundaries), default=-1)


def _violations(seen: Diagnosed) -> dict[Key, int]:
    found = {}
    for key in seen.both.found.runs:
        names = seen.both.members.get(key.label, ())
        entries = [
            one
            for name in names
            for of_task in seen.samples.get(name, {}).values()
            for one in of_task.values()
        ]
        found[key] = sum(len(audit_of(one)["violations"]) for one in entries)
    return found


def _all_columns(beside: bool) -> list[Column]:
    return [
        Column("plan", "Plan", text=True),
        Column("p", "p"),
        Column("keep", "K"),
        *COST,
        *(c for name, title in BANKS.items() for c in _columns(name, title, beside)),
        Column("certificate", "c_B", 3),
        *(Column(name, title, 3) for name, title in LEFT.items()),
        Column("violations", "Violated"),
    ]


def _columns(name: str, title: str, beside: bool) -> list[Column]:
    made = [Column(name, title, 3), Column(f"{name}_p5", f"{title} 5%", 3)]
    if beside:
        made += [Column(f"paper_{name}", f"{title} (paper)", 3)]
        made += [Column(f"paper_{name}_p5", f"{title} 5% (paper)", 3)]
    return made


def _printed(model: str, key: Key) -> dict[str, Value]:
    """The paper's row of the same model and boundary."""
    point = f"{model.split('-')[0].rstrip('.0123456789')} {key.plan.removeprefix('gmc-').upper()}"
    row = next((r for r in published.table("coverage") if r["boundary"].startswith(point)), None)
    if row is None or row["keep"] != key.keep:
        return {}
    return {
        f"paper_{name}{end}": float(row[f"{name}_{column}"])
        for name in BANKS
        for end, column in (("", "mean"), ("_p5", "p5"))
    }
