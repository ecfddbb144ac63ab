"""Rank and seed of the probe: how much of the answers and of the messages hangs on them."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

from vicoset.errors import RunError
from vicoset.evaluate.folder import Folder
from vicoset.evaluate.statistics import Draws
from vicoset.evaluate.tables.audits import Diagnosed, less, shown
from vicoset.evaluate.tables.comparison import LEVEL, Comparison, Options
from vicoset.evaluate.tables.mechanism import MEASURES
from vicoset.evaluate.tables.records import FULL_KEY, Found, Key
from vicoset.evaluate.tables.rows import COST, COSTS, costs
from vicoset.evaluate.tables.table import Column, Row, Table, Value
from vicoset.methods import interventions

RANKS, SEEDS = (1, 4, 16, 64), (0, 1, 2)
DEPLOYED = 4, 0  # rank and seed of the settings
COLUMNS = (
    Column("at", "At", text=True),
    Column("keep", "K"),
    Column("plan", "Plan", text=True),
    Column("rank", "Rank"),
    Column("seed", "Seed"),
    *COST,
    Column("macro", "Macro", 2),
    Column("macro_delta", "Δ macro", 2, signed=True),
    Column("error", "e_M", 4),
    Column("error_delta", "Δ e_M", 4, signed=True),
    Column("coverage", "F(S)/F(V)", 3),
    Column("vie", "VIE", 3),
)
_WRITTEN = {
    "rank": re.compile(r"probe_rank=(\d+)"),
    "seed": re.compile(r"probe_seed=(\d+)"),
}


def plans_at(where: str, ranks: Sequence[int] = (), seeds: Sequence[int] = ()) -> list[str]:
    """The deployed plan, every other rank with its seed, and every other seed with its rank.

    Args:
        where: a preset or a boundary.
        ranks: r.
        seeds: of the probe.
    """
    rank, seed = DEPLOYED
    other_ranks = [r for r in ranks or RANKS if r != rank]
    other_seeds = [s for s in seeds or SEEDS if s != seed]
    found = [where]
    found += interventions.probes(where, ranks=other_ranks) if other_ranks else []
    found += interventions.probes(where, seeds=other_seeds) if other_seeds else []
    return found


def probe(
    found: Found,
    folders: Sequence[Folder],
    tasks: Sequence[str] = (),
    options: Options | None = None,
    where: Sequence[str] = ("gmc-h2", "gmc-l16"),
) -> list[Table]:
    """Macro and message error of every probe, minus those of the deployed one.

    Args:
        found: the records of audited runs.
        folders: of those runs.
        tasks: by name; all of Full's when empty.
        options: how to compare.
        where: presets or boundaries.
    """
    options = options or Options()
    groups = {at: [k for k in found.runs if _of(at, k.plan)] for at in where}
    if not any(groups.values()):
        raise RunError(
            f"{found.out} holds no audited run of {', '.join(where)}; run `vicoset evaluate study "
            "probe`, which runs several ranks and seeds."
        )
    keys = list(dict.fromkeys(key for mine in groups.values() for key in mine))
    both = Comparison.of(found, keys, tasks, options)
    seen = Diagnosed.of(both, folders)
    macros = both.macro(retention=False)
    draws = seen.means({name: MEASURES[name] for name in ("error", "coverage", "vie")})
    full = macros.estimates(LEVEL)[FULL_KEY.label].value
    rows = [Row({"plan": "full", "macro": full}, reference=True)]
    for at, mine in groups.items():
        for key in sorted(filter(both.has, mine), key=lambda k: (k.keep, *_numbers(k.plan))):
            rows.append(_row(both, {"macro": macros, **draws}, key, at))
    notes = [
        both.note(),
        "Δ: minus the deployed probe (rank 4, seed 0) at the same point and budget, in the same "
        "replicates. F(S)/F(V) is of each plan's own objective, and e_M weighs heads as it does.",
        COSTS,
        *found.notes,
    ]
    return [Table("probe", f"Rank and seed of the probe, {found.model}", COLUMNS, rows, notes)]


def _row(both: Comparison, draws: Mapping[str, Draws], key: Key, at: str) -> Row:
    """A probe, and what it changes beside the deployed one."""
    rank, seed = _numbers(key.plan)
    values: dict[str, Value] = {"at": at, "keep": key.keep, "plan": key.plan}
    values |= {"rank": rank, "seed": seed, **costs(both.found, key, both.tasks)}
    values |= {name: shown(one, key.label) for name, one in draws.items()}
    deployed = Key(at, key.keep)
    if key != deployed and both.has(deployed):
        for name in ("macro", "error"):
            values[f"{name}_delta"] = shown(less(draws[name], key, deployed), "delta")
    return Row(values, f"{at} {key.keep}")


def _of(where: str, plan: str) -> bool:
    """Whether a plan is a point with another probe, or the point itself."""
    bare = re.sub(r"\[probe_(rank|seed)=\d+\]", "", plan)
    return where in (plan, bare) or bare == (f"gmc{where}" if where.startswith("@") else where)


def _numbers(plan: str) -> tuple[int, int]:
    found = {name: one.search(plan) for name, one in _WRITTEN.items()}
    rank, seed = (
        default if (match := found[name]) is None else int(match[1])
        for name, default in zip(("rank", "seed"), DEPLOYED, strict=True)
    )
    return rank, seed
