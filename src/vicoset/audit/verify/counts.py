"""Budgets, kept tokens, work, lengths and bytes: what follows from plan, N and K."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from vicoset.audit.verify.problem import EXACT, REFUSED, Findings, said, shown
from vicoset.core.derived import Derived
from vicoset.core.work import work
from vicoset.errors import VicosetError
from vicoset.plan import Keep
from vicoset.runtime.downsample import NAME as RESIZED

PREFIXES = ("gathered", "dense", "replay")
_KV = ("bytes", "full_bytes")
_DERIVED = Derived(power=1.0)  # for the names of its fields


def check_counts(body: Mapping[str, Any], found: Findings) -> None:
    """Everything that is counted.

    Args:
        body: of a record of the right form.
        found: is added to.
    """
    tokens, depth, stages = body["tokens"], body["depth"], body["stages"]
    found.same("tokens", tokens, _images(body))
    left = tokens
    for place, stage in enumerate(stages):
        found.same(f"stages[{place}].tokens", stage["tokens"], left)
        left = stage["kept"]
        if left > stage["tokens"]:
            found.add(f"stages[{place}].kept", f"{left} of {stage['tokens']} tokens")
    found.same("kept", body["kept"], left)
    dropped = sum(stage["tokens"] - stage["kept"] for stage in stages)
    found.same("compact_length", body["compact_length"], body["length"] - dropped)
    if body["length"] < tokens:
        found.add("length", f"{body['length']} positions for {tokens} visual tokens")
    _work(body, found)
    if body["prefix"] not in PREFIXES:
        found.add("prefix", f"{shown(body['prefix'])}; allowed are {', '.join(PREFIXES)}")
    if depth < 1:
        found.add("depth", f"{depth} blocks")
    _cache(body, found)


def _images(body: Mapping[str, Any]) -> int:
    """N as the images, or the grids of a picture that was made smaller, say it."""
    resized = [s for s in body["stages"] if s["selector"] == RESIZED]
    if resized:
        grids = resized[0]["evidence"].get("grids")
        if isinstance(grids, list) and all(_grid(grid) for grid in grids):
            return int(sum(grid[0] * grid[1] for grid in grids))
    return int(sum(image["tokens"] for image in body["images"]))


def _grid(grid: Any) -> bool:
    return isinstance(grid, list) and len(grid) == 4 and all(type(side) is int for side in grid)


def _work(body: Mapping[str, Any], found: Findings) -> None:
    boundaries = [stage["boundary"] for stage in body["stages"]]
    kept = [stage["kept"] for stage in body["stages"]]
    tokens, depth = body["tokens"], body["depth"]
    try:
        spent = work(boundaries, kept, tokens, depth)
    except VicosetError as error:
        found.add("stages", str(error))
        return
    found.same("work", body["work"], spent, "stages, tokens and depth")
    full = tokens * depth
    found.close("work_share", body["work_share"], spent / full if full else 1.0, 1e-12)


def _cache(body: Mapping[str, Any], found: Findings) -> None:
    """Bytes and entries of the prompt's cache."""
    kv = body["kv"]
    if set(kv) == set(_KV):
        if kv["bytes"] > kv["full_bytes"]:
            found.add("kv.bytes", f"{kv['bytes']} of {kv['full_bytes']} uncompressed")
        if body["prefix"] == "replay" and (kv["bytes"] or kv["full_bytes"]):
            found.add("kv.bytes", "a prompt that is replayed has no cache")
        return
    missing = {"kind", "rows", "length", "compact", "entries", "entry_bytes"} - set(kv)
    if missing:
        found.add("kv", f"lacks {', '.join(sorted(missing))}")
        return
    entries, sizes = kv["entries"], kv["entry_bytes"]
    for name in ("entries", "entry_bytes"):
        found.same(f"kv.{name}", len(kv[name]), body["depth"])
    if kv["kind"] not in ("dynamic", "static"):
        found.add("kv.kind", f"{shown(kv['kind'])}; allowed are dynamic and static")
    if len(entries) == len(sizes):
        taken = sum(map(int.__mul__, entries, sizes))
        found.same("kv.bytes", kv["bytes"], taken, "entries and entry_bytes")
        full = taken if kv["kind"] == "static" else kv["length"] * sum(sizes)
        if not _resized(body):
            found.same("kv.full_bytes", kv["full_bytes"], full)
        else:
            gone = body["tokens"] - body["kept"]
            found.same("kv.full_bytes", kv["full_bytes"], taken + gone * sum(sizes))
    _entries(body, found)


def _resized(body: Mapping[str, Any]) -> bool:
    return any(stage["selector"] == RESIZED for stage in body["stages"])


def _entries(body: Mapping[str, Any], found: Findings) -> None:
    """How many entries each block holds, and how long the batch is behind every stage."""
    kv, stages = body["kv"], [] if _resized(body) else body["stages"]
    whole = body["compact_length"] if _resized(body) else body["length"]
    if kv["rows"] < 1:
        found.add("kv.rows", f"{kv['rows']} rows")
    if kv["rows"] == 1 and stages:
        # Of several rows, the longest one decides, and this record is of one.
        found.same("kv.length", kv["length"], whole)
    elif kv["length"] < whole:
        found.add("kv.length", f"{kv['length']}, and this row has {whole} positions")
    left, lengths = whole, []
    for stage in stages:
        left -= stage["tokens"] - stage["kept"]
        lengths.append(left)
    alone = kv["rows"] == 1
    if alone:
        found.same("kv.compact", kv["compact"], lengths)
    elif len(kv["compact"]) < len(lengths):
        found.same("kv.compact", len(kv["compact"]), len(lengths))
    if kv["kind"] == "static":
        return
    for block, entries in enumerate(kv["entries"]):
        if not kv["compact"]:
            wanted = kv["length"]
        elif body["prefix"] == "dense":
            wanted = _held(block, stages, kv["compact"], kv["length"], alone)
        else:
            wanted = kv["compact"][-1]
        if wanted is not None:
            found.same(f"kv.entries[{block}]", entries, wanted)


def _held(
    block: int,
    stages: Sequence[Mapping[str, Any]],
    compact: Sequence[int],
    length: int,
    alone: bool,
) -> int | None:
    """Entries of a block that keeps what it ran on; None where another row may know."""
    behind = sum(stage["boundary"] <= block for stage in stages)
    if len(stages) != len(compact):
        return None
    return compact[behind - 1] if behind else length


def check_plan(body: Mapping[str, Any], found: Findings) -> None:
    """Every stage is one that the plan has, with the plan's budget.

    Args:
        body: of a record of the right form, with a plan.
        found: is added to.
    """
    try:
        keep = Keep(**body["keep"])
    except REFUSED as error:
        found.add("keep", said(error))
        return
    planned, tokens, images = body["plan"]["stages"], body["tokens"], len(body["images"])
    if _resized(body):
        for place, stage in enumerate(body["stages"]):
            found.same(f"stages[{place}].requested", stage["requested"], str(keep))
        return
    rest, left = list(enumerate(body["stages"])), tokens
    for number, plan in enumerate(planned if tokens else []):
        try:
            own = budget_of(plan["keep"])
            derived = own.of(keep, tokens, images) if isinstance(own, Derived) else own
            budget = derived or keep
            low, high = budget.limits(left, images)
        except REFUSED as error:
            found.add(f"plan.stages[{number}].keep", said(error))
            return
        if rest and rest[0][1]["boundary"] == plan["boundary"]:
            place, stage = rest.pop(0)
            _stage(f"stages[{place}]", stage, plan, budget, (low, high), found)
            left = stage["kept"]
        elif high < left:
            found.add(
                "stages", f"lacks the one before block {plan['boundary']}, which keeps {high}"
            )
    for place, stage in rest:
        found.add(f"stages[{place}].boundary", f"the plan has no stage at {stage['boundary']}")


def budget_of(own: Mapping[str, Any] | None) -> Keep | Derived | None:
    """A stage's own budget, from what the plan says of it.

    Args:
        own: the field ``keep`` of a planned stage.
    """
    if own is None:
        return None
    if own.keys() <= vars(_DERIVED).keys():
        return Derived(**own)
    return Keep(**own)


def _stage(
    where: str,
    stage: Mapping[str, Any],
    plan: Mapping[str, Any],
    budget: Keep,
    limits: tuple[int, int],
    found: Findings,
) -> None:
    for role in ("selector", "realiser"):
        found.same(f"{where}.{role}", stage[role], plan[role]["name"])
    found.same(f"{where}.requested", stage["requested"], str(budget))
    low, high = limits
    if not low <= stage["kept"] <= high:
        allowed = str(low) if low == high else f"{low} to {high}"
        found.add(f"{where}.kept", f"{stage['kept']}, recomputed {allowed} from the budget")
    if budget.coverage is None:
        return
    evidence = stage["evidence"]
    if "target" in evidence:
        found.close(f"{where}.evidence.target", evidence["target"], budget.coverage, EXACT)
