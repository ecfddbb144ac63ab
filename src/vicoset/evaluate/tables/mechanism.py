"""The mechanism: what supports cover, what messages and rankings lose, and what that does."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from vicoset.audit.population import harmful
from vicoset.errors import RunError
from vicoset.evaluate import paper as published
from vicoset.evaluate.entry import Entry
from vicoset.evaluate.folder import Folder
from vicoset.evaluate.statistics import Draws, Estimate, holm
from vicoset.evaluate.statistics.ranked import Column as Ranked
from vicoset.evaluate.tables import printed
from vicoset.evaluate.tables.audits import Diagnosed, audit_of, less, shown, study_command
from vicoset.evaluate.tables.comparison import LEVEL, Comparison, Options, cell
from vicoset.evaluate.tables.records import FULL_KEY, Found, Key
from vicoset.evaluate.tables.rows import COST, COSTS, METHOD, costs, described
from vicoset.evaluate.tables.table import Column, Row, Table, Value
from vicoset.plan import plan_named

CONTROLS = ("random+drop", "norm-diversity+drop", "uniform-head+drop")
PAPER = {
    "norm-diversity+drop": "Norm+Sim",
    "uniform-head+drop": "Head-aware control",
    "hard": "GMC hard",
    "transport": "GMC transport",
}
FAMILY = ("error", "vie", "harmful")


def plans_at(where: str, depth: int) -> tuple[str, ...]:
    """Random, norm and similarity, independent heads, GMC hard and GMC, before one block.

    Args:
        where: a preset, such as ``gmc-h2``, or a plan ``gmc@p``.
        depth: L.
    """
    p = plan_named(where, depth).boundaries[0]
    head, at, boundary = where.partition("@")
    return (*(f"{name}@{p}" for name in CONTROLS), f"{head}+drop{at}{boundary}", where)


def mechanism(
    found: Found,
    folders: Sequence[Folder],
    tasks: Sequence[str] = (),
    options: Options | None = None,
    where: Sequence[str] = ("gmc-h2", "gmc-l16"),
) -> list[Table]:
    """Diagnostics of every plan, then differences to GMC, then what was certified and violated.

    Args:
        found: the records of audited runs.
        folders: of those runs.
        tasks: by name; all of Full's when empty.
        options: how to compare.
        where: points at which GMC and its controls compress; its last plan is the reference.
    """
    options = options or Options()
    groups = {at: plans_at(at, found.depth) for at in where}
    keeps = list(dict.fromkeys(key.keep for key in found.runs if key != FULL_KEY))
    known = {plan for plans in groups.values() for plan in plans}
    if not any(key.plan in known for key in found.runs):
        raise RunError(
            f"{found.out} holds no audited run of {', '.join(sorted(known))}; run `vicoset "
            "evaluate study mechanism`, which runs them."
        )
    keys = [key for key in found.runs if key != FULL_KEY]
    both = Comparison.of(found, keys, tasks, options)
    seen = Diagnosed.of(both, folders)
    draws = seen.means(MEASURES, {"correlation": ("distortion", "vie")})
    draws["auroc"] = seen.ranked(_harm_by_vie)
    score = cell(both.macro(retention=False).estimates(LEVEL)[FULL_KEY.label])
    rows = [Row({**described(found, FULL_KEY), "score": score}, reference=True)]
    against: list[Row] = []
    certified: list[Row] = []
    for at, plans in groups.items():
        for keep in keeps:
            others = [k.plan for k in keys if k.keep == keep and k.plan not in known]
            mine = [Key(plan, keep) for plan in (*plans, *others)]
            if not any(both.has(key) for key in mine):
                continue
            group = f"{at} {keep}"
            rows += [_row(both, draws, key, group) for key in mine]
            ours = Key(plans[-1], keep)
            if both.has(ours):
                rows.append(_pooled(seen, ours, list(filter(both.has, mine)), group))
                against += _differences(both, draws, ours, mine, group)
            certified += [_counts(seen, draws, key, group) for key in mine if both.has(key)]
    made = [_first(both, rows, options)]
    if against:
        made.append(_second(both, against))
    return [*made, _third(both, certified)]


def _decision(name: str) -> Any:
    return lambda entry, full: audit_of(entry)["decision"][name]


def _position(name: str) -> Any:
    return lambda entry, full: audit_of(entry)["positions"][name]


def _harmed(entry: Entry, full: Entry) -> float | None:
    """Whether a right answer of Full's changed; not defined where Full was wrong."""
    right = full.score == 1
    return float(harmful(right, full.normalised, entry.normalised)) if right else None


def _message(entry: Entry, full: Entry) -> float | None:
    found = audit_of(entry)["messages"]
    return found[0]["error"] if found else None


def _covered(entry: Entry, full: Entry) -> float | None:
    found = audit_of(entry)["coverage"]
    return found[-1]["all"] if found else None


MEASURES: dict[str, Any] = {
    "coverage": _covered,
    "error": _message,
    "vie": _decision("vie"),
    "distortion": _decision("distortion"),
    "harmful": _harmed,
    "certified": _decision("certified"),
    "flip": _decision("flip"),
    "escape": _decision("escape"),
}


def _harm_by_vie(entries: list[Entry], full: list[Entry]) -> Ranked:
    """VIE and harmful changes of the requests that Full answered rightly."""
    right = np.array([whole.score == 1 for whole in full], np.bool_)
    vie = np.array([audit_of(one)["decision"]["vie"] for one in entries], np.float64)
    harm = [bool(_harmed(one, whole)) for one, whole in zip(entries, full, strict=True)]
    return Ranked(vie[right], np.array(harm, np.bool_)[right], right)


def _row(both: Comparison, draws: dict[str, Draws], key: Key, group: str) -> Row:
    values: dict[str, Value] = {"keep": key.keep, **described(both.found, key)}
    if key.plan.startswith("gmc") and "+drop" in key.plan:
        values["method"] = f"{values['method']} hard"
    if not both.has(key):
        return Row(values, group, study_command(both.found, "mechanism", both.tasks, key.keep))
    values |= costs(both.found, key, both.tasks)
    for name in ("coverage", "error", "vie", "auroc", "correlation"):
        values[name] = shown(draws[name], key.label)
    values["harmful"] = shown(draws["harmful"].scaled(100), key.label)
    values["score"] = cell(both.macro(retention=False).estimates(LEVEL)[key.label])
    values |= _printed(key.plan)
    return Row(values, group)


def _pooled(seen: Diagnosed, ours: Key, keys: Sequence[Key], group: str) -> Row:
    """The correlation over all plans of a group, where a question counts once, by its mean."""
    names = [name for key in keys for name in seen.both.members[key.label]]

    def mean(measure: str) -> Any:
        def take(entry: Entry, full: Entry) -> float:
            same = [seen.samples[name][entry.task][entry.sample_id] for name in names]
            return float(np.mean([audit_of(one)["decision"][measure] for one in same]))

        return take

    measures = {name: mean(name) for name in ("distortion", "vie")}
    draws = seen.means(measures, {"correlation": ("distortion", "vie")})
    values: dict[str, Value] = {"keep": ours.keep, "method": "All of these, by question"}
    values["vie"] = shown(draws["vie"], ours.label)
    values["correlation"] = shown(draws["correlation"], ours.label)
    return Row(values, group)


def _printed(plan: str) -> dict[str, Value]:
    head = plan.partition("@")[0]
    if head.startswith("gmc"):
        head = "hard" if "+drop" in head else "transport" if "+" not in head else ""
    row = published.find("innovation", method=PAPER.get(head, ""))
    if row is None:
        return {}
    return {f"paper_{name}": float(row[name]) for name in ("vie", "harmful", "auc") if row[name]}


def _first(both: Comparison, rows: list[Row], options: Options) -> Table:
    columns = [
        Column("keep", "K"),
        *METHOD,
        *COST,
        Column("score", "Score %", 1),
        Column("coverage", "F(S)/F(V)", 3),
        Column("error", "e_M", 3),
        Column("vie", "VIE", 3),
        Column("harmful", "Harmful %", 1),
        Column("auroc", "AUROC", 3),
        Column("correlation", "r(logit, VIE)", 3),
    ]
    if printed.setting(both.found, options.paper) is not None:
        columns += [
            Column("paper_vie", "VIE (paper)", 3),
            Column("paper_harmful", "Harmful % (paper)", 1),
            Column("paper_auc", "AUROC (paper)", 3),
        ]
    notes = [
        both.note(),
        "F(S)/F(V): coverage of the deployed objective before recovery. e_M: relative error of the "
        "signed messages at the boundary. VIE: at the end of the prompt, against the model whose "
        "text never sees a visual token.",
        "Harmful: answers that were right in Full and changed, of those that were right. AUROC: "
        "how VIE orders harmful changes above the other right ones; no interval where a replicate "
        "has none of either. r: of centred candidate distortion and VIE, a point per question; "
        "over all plans of a group a question counts once, by its mean.",
        COSTS,
        *both.found.notes,
    ]
    return Table("mechanism", f"Mechanism, {both.found.model}", columns, rows, notes)


def _differences(
    both: Comparison, draws: dict[str, Draws], ours: Key, keys: Sequence[Key], group: str
) -> list[Row]:
    """Every plan minus GMC; a family per point and budget."""
    found: dict[tuple[str, str], Estimate] = {}
    for key in keys:
        if key == ours or not both.has(key):
            continue
        for name in FAMILY:
            delta = less(draws[name], key, ours)
            if np.isfinite(delta.value).all() and np.isfinite(delta.replicates).all():
                found[key.plan, name] = delta.estimates(LEVEL)["delta"]
    adjusted = holm({place: one.p(both.options.alternative) for place, one in found.items()})
    rows = []
    for plan in dict.fromkeys(plan for plan, _ in found):
        values: dict[str, Value] = {"keep": ours.keep, "plan": plan, "reference": ours.plan}
        for name in FAMILY:
            if (plan, name) in found:
                one = found[plan, name]
                scale = 100.0 if name == "harmful" else 1.0
                values[name] = cell(_scaled(one, scale))
                values[f"{name}_p"] = adjusted[plan, name]
        rows.append(Row(values, group))
    return rows


def _scaled(one: Estimate, factor: float) -> Estimate:
    return Estimate(one.value * factor, one.low * factor, one.high * factor, one.greater, one.less)


def _second(both: Comparison, rows: list[Row]) -> Table:
    columns = [Column("keep", "K"), Column("plan", "Plan", text=True)]
    columns.append(Column("reference", "minus", text=True))
    titles = {"error": ("e_M", 3), "vie": ("VIE", 3), "harmful": ("Harmful", 1)}
    for name in FAMILY:
        title, digits = titles[name]
        columns.append(Column(name, f"Δ {title}", digits, signed=True))
        columns.append(Column(f"{name}_p", "p (Holm)", 4))
    note = "A family is a point with a budget; above 0: more error than GMC. Paired replicates."
    return Table("mechanism-differences", "Differences to GMC", columns, rows, [note])


def _counts(seen: Diagnosed, draws: dict[str, Draws], key: Key, group: str) -> Row:
    """Rates with intervals at the end of the prompt, and counts over all positions."""
    names = seen.both.members[key.label]
    entries = [e for name in names for found in seen.samples[name].values() for e in found.values()]
    audits = [audit_of(entry) for entry in entries]
    values: dict[str, Value] = {"keep": key.keep, "plan": key.plan, "requests": len(audits)}
    for name in ("certified", "flip"):
        values[name] = shown(draws[name].scaled(100), key.label)
    values["escapes"] = sum(bool(one["decision"]["escape"]) for one in audits)
    for name in ("count", "certified", "flips", "certified_flips", "escapes"):
        values[f"all_{name}"] = sum(one["positions"][name] for one in audits)
    values["statements"] = sum(one["statements"] for one in audits)
    values["violations"] = sum(len(one["violations"]) for one in audits)
    return Row(values, group)


def _third(both: Comparison, rows: list[Row]) -> Table:
    columns = [
        Column("keep", "K"),
        Column("plan", "Plan", text=True),
        Column("requests", "Requests"),
        Column("certified", "No-flip certified %", 1),
        Column("flip", "Flips %", 1),
        Column("escapes", "Escapes"),
        Column("all_count", "Positions"),
        Column("all_certified", "certified"),
        Column("all_flips", "flips"),
        Column("all_certified_flips", "certified and flipped"),
        Column("all_escapes", "escapes"),
        Column("statements", "Statements"),
        Column("violations", "violated"),
    ]
    notes = [
        "Rates and escapes are of the decision at the end of the prompt; positions are all of "
        "Full's answer. A certified winner cannot flip, and a statement is a theorem: both counts "
        "are 0 unless the program or the machine is at fault.",
    ]
    return Table("mechanism-output", f"Certificates, {both.found.model}", columns, rows, notes)
