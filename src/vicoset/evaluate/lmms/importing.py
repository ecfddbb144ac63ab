"""Runs of lmms-eval as runs of ours: baselines that others computed, beside methods of ours."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from vicoset.errors import RunError, SettingError
from vicoset.evaluate import identity
from vicoset.evaluate.entry import FULL, Entry
from vicoset.evaluate.fingerprint import Files, digest_of
from vicoset.evaluate.folder import Folder, complete, create, line_of
from vicoset.evaluate.lmms.logs import Logged, named_in, read_log
from vicoset.evaluate.lmms.store import costs_of
from vicoset.evaluate.sample import RunInfo
from vicoset.evaluate.shards import Shard
from vicoset.evaluate.task import Item
from vicoset.evaluate.tasks import task as task_named


@dataclass(frozen=True)
class Imported:
    """What became of a log.

    Attributes:
        folder: of the run.
        compared: answers to which lmms-eval gave a score of their own.
        differing: ids of those to which we give another one.
    """

    folder: Folder
    compared: int
    differing: tuple[str, ...]


def import_log(
    log: str | os.PathLike[str],
    out: str | os.PathLike[str],
    *,
    task: str | None = None,
    data: str | os.PathLike[str] | None = None,
    choices: Mapping[str, Any] | None = None,
    limit: int | None = None,
    journal: str | os.PathLike[str] | None = None,
    method: str | None = None,
    keep: str = "",
    model: str = "",
    query_aware: bool = False,
) -> Imported:
    """A run of ours from a sample log: answers scored again, with the units that statistics need.

    Args:
        log: ``<date>_samples_<task>.jsonl``.
        out: directory of all runs.
        task: our name of the task; read off the log's name by default.
        data: of the task, on the disk; the same that lmms-eval read.
        choices: the task's own options.
        limit: given to lmms-eval as ``--limit``.
        journal: of the model ``vicoset``, ``JOURNAL/<method>-<digest>``, which knows what each
            answer cost; without it ``method`` names what was run.
        method: name for tables; "full" for an uncompressed model.
        keep: the budget as text, for tables.
        model: name of the model, for tables.
        query_aware: whether the method reads the question.
    """
    path = Path(log)
    theirs, ours = (path.stem.partition("_samples_")[2], task) if task else named_in(path)
    chosen = task_named(ours)
    items = chosen.load(data, **(choices or {}))[: limit or None]
    logged = read_log(path, ours)
    _check_whole(path, items, logged)
    costs: Mapping[tuple[str, int], Any] = {}
    if journal is not None:
        facts, costs = costs_of(Path(journal))
        info = dict(facts["info"])
        info["run_id"] = digest_of({"lmms-eval": info["run_id"]})
    else:
        info = _named(method, keep, model, query_aware)
    entries = []
    for place, item in enumerate(items):
        _check_same(path, item, logged[place])
        cost = _cost(costs.get((theirs, place)), logged[place], path) if journal else {}
        entries.append(_entry(ours, chosen, item, place, logged[place], cost, info["keep"]))
    files = Files(Path(out) / "fingerprints.jsonl")
    about = identity.of_task(chosen, items, choices or {}, files)
    source = {"log": path.name, "content": files.digest(path), "evaluator": "lmms-eval"}
    shared = {"run_id": info["run_id"], "source": source, "task": about}
    facts = {"task": ours, "info": info, "digest": digest_of(shared), "identity": shared}
    folder = create(out, _label(info), facts, [item.sample_id for item in items])
    _write(folder, entries)
    theirs_too = [entry for entry in entries if logged[entry.index].score is not None]
    differing = tuple(e.sample_id for e in theirs_too if not _agrees(e, logged[e.index]))
    return Imported(folder, len(theirs_too), differing)


def _named(method: str | None, keep: str, model: str, query_aware: bool) -> dict[str, Any]:
    """What tables need to know of a run that others computed."""
    if not method:
        raise SettingError(
            "the log does not say which method answered; allowed are --method NAME, such as full "
            "or prumerge, or --journal with the answers of the model vicoset."
        )
    run_id = digest_of({"lmms-eval": [model, method, keep]})
    return asdict(RunInfo(run_id, method, method, keep, query_aware=query_aware, model=model))


def _label(info: Mapping[str, Any]) -> str:
    keep = f"-k{info['keep']}" if info["keep"] else ""
    return f"lmms-{info['plan']}{keep}"


def _entry(
    name: str,
    task: Any,
    item: Item,
    place: int,
    logged: Logged,
    cost: Mapping[str, Any],
    keep: str,
) -> Entry:
    normalised, stats, score = task.score(item, logged.raw)
    about = {
        "task": name,
        "sample_id": item.sample_id,
        "unit_id": item.unit_id,
        "stratum": item.stratum,
        "stats": {key: float(value) for key, value in stats.items()},
        "score": float(score),
        "raw": logged.raw,
        "normalised": normalised,
        "groups": dict(item.groups),
        "index": place,
    }
    known = {"requested": keep or FULL, "new_tokens": logged.tokens}
    return Entry.from_json({**about, **known, **cost})


def _cost(line: Any, logged: Logged, path: Path) -> dict[str, Any]:
    """What an answer cost, by the names of an entry's fields."""
    if line is None or line["raw"].strip() != logged.raw.strip():
        what = "has no answer to" if line is None else "has another answer to"
        raise RunError(
            f"the journal {what} row {logged.doc_id} of {path.name}; allowed is the one that the "
            "run with this log wrote. Name its directory, JOURNAL/<method>-<digest>."
        )
    return {name: value for name, value in line["cost"].items() if value is not None}


def _check_whole(path: Path, items: Sequence[Item], logged: Mapping[int, Logged]) -> None:
    missing = [place for place in range(len(items)) if place not in logged]
    foreign = [place for place in logged if place >= len(items)]
    if missing or foreign:
        raise RunError(
            f"{path.name} has {len(logged)} rows and the task {len(items)}: rows "
            f"{missing[:5] or 'none'} are missing, rows {foreign[:5] or 'none'} are beyond its "
            "end; allowed are whole runs. Give the same --limit, the same data, or run it again."
        )


def _check_same(path: Path, item: Item, logged: Logged) -> None:
    """Refuse a row that is about another question; prompts may differ around it."""
    question = _plain(item.prompt.rpartition("\n")[0] or item.prompt)
    if question not in _plain(logged.prompt):
        raise RunError(
            f"row {logged.doc_id} of {path.name} asks {logged.prompt!r}, and the task's row asks "
            f"{item.prompt!r}; allowed is the same question. The data are of another version or "
            "in another order: give those that lmms-eval read."
        )


def _plain(text: str) -> str:
    return re.sub(r"\s+", " ", text).strip().lower()


def _agrees(entry: Entry, logged: Logged) -> bool:
    return logged.score is not None and abs(entry.score - logged.score) <= 1e-9


def _write(folder: Folder, entries: Sequence[Entry]) -> None:
    """Store what is not stored yet; importing twice changes nothing."""
    with folder.journal(Shard()) as journal:
        there = folder.read().answered
        for entry in entries:
            if entry.sample_id not in there:
                journal.append(line_of(entry))
    complete(folder)
