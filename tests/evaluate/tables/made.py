"""Records without a model: answers that are right by chance, written the way a run writes them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import numpy as np

from vicoset.evaluate import tasks
from vicoset.evaluate.entry import FULL, Entry
from vicoset.evaluate.fingerprint import digest_of
from vicoset.evaluate.folder import Folder, create, line_of
from vicoset.evaluate.sample import RunInfo
from vicoset.evaluate.shards import Shard
from vicoset.evaluate.tables.lineup import costed
from vicoset.evaluate.task import Item
from vicoset.plan import plan_named, work

TOKENS, DEPTH, TEXT = 1296, 28, 40
MODEL = "Qwen2.5-VL-7B-Instruct"


def drawn(name: str, images: int = 6) -> list[Item]:
    """Questions of a part of tinybench."""
    return list(tasks.task(name).load(None, images=images, model="llava"))


def run(
    out: Path,
    task: str,
    items: Sequence[Item],
    plan: str = FULL,
    keep: int = TOKENS,
    seed: int | None = None,
    chance: float = 0.5,
    say: Callable[[Item, bool], str] | None = None,
    model: str = MODEL,
    version: str = "",
    shards: int = 1,
    backwards: bool = False,
    seconds: Callable[[int], dict[str, float]] | None = None,
    process: str = "",
) -> Folder:
    """A complete run; an answer is right with a chance that all runs draw alike for a question."""
    full = plan == FULL
    asked = {"plan": plan, "keep": "" if full else str(keep), "seed": seed}
    identity = {"model": model, "version": version, **asked}
    stages = () if full else plan_named(costed(plan), DEPTH).stages
    aware = any(stage.selector.query_aware for stage in stages)
    info = RunInfo(
        run_id=digest_of(identity),
        method=plan,
        model=model,
        depth=DEPTH,
        query_aware=aware,
        **asked,
    )
    facts = {
        "task": task,
        "digest": digest_of({**identity, "task": task}),
        "info": asdict(info),
        "identity": {"task": {"choices": {}}},
    }
    folder = create(out, f"{plan}-k{keep}-s{seed}", facts, [item.sample_id for item in items])
    dice = np.random.default_rng([abs(hash_of(plan)), keep, seed or 0])
    boundaries = tuple(stage.boundary for stage in stages)
    entries = []
    for index, item in enumerate(items):
        right = bool(dice.random() < chance)
        raw = say(item, right) if say else str(item.references["answer"]) if right else "nothing"
        made = _entry(task, item, index, raw, boundaries, keep, full)
        told = {} if seconds is None else {"seconds": seconds(index), "process": process}
        entries.append(replace(made, **told))
    entries = entries[::-1] if backwards else entries
    for number in range(1, shards + 1):
        shard = Shard(number, shards)
        with folder.journal(shard) as journal:
            for entry in shard.of(entries):
                journal.append(line_of(entry))
    return folder


def hash_of(text: str) -> int:
    return int(digest_of(text), 16) % 2**31


def _entry(
    task: str, item: Item, index: int, raw: str, boundaries: Any, keep: int, full: bool
) -> Entry:
    normalised, stats, score = tasks.task(task).score(item, raw)
    kept = () if full else (keep,) * len(boundaries)
    length = TOKENS + TEXT
    return Entry(
        task=task,
        sample_id=item.sample_id,
        unit_id=item.unit_id,
        stratum=item.stratum,
        stats={name: float(value) for name, value in stats.items()},
        score=float(score),
        raw=raw,
        normalised=normalised,
        groups=dict(item.groups),
        index=index,
        requested=FULL if full else str(keep),
        tokens=TOKENS,
        images=1,
        boundaries=tuple(boundaries),
        kept_by_stage=kept,
        length=length,
        compact_length=length if full else TEXT + keep,
        depth=DEPTH,
        work=DEPTH * TOKENS if full else work(boundaries, kept, TOKENS, DEPTH),
        kv_bytes=length if full else TEXT + keep,
        full_kv_bytes=length,
        seconds={"request": 0.1},
    )
