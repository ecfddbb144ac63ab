"""A run on the disk: ``OUT/<task>/<method>-<digest>/`` with its facts, its ids and its journals."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from vicoset.errors import RunError, UnreadableError
from vicoset.evaluate.entry import Entry, Failure
from vicoset.evaluate.journal import Journal, damage, scan
from vicoset.evaluate.shards import Shard

SCHEMA = 1
FACTS, IDS = "run.json", "ids.json"


@dataclass(frozen=True)
class Contents:
    """What the journals of a run hold.

    Attributes:
        entries: answers with the line they stand in, such as "journal-1of2.jsonl line 7".
        failures: items that raised and were not answered since, by sample id.
        notes: half lines that were passed over.
    """

    entries: tuple[tuple[str, Entry], ...]
    failures: Mapping[str, Failure]
    notes: tuple[str, ...]

    @property
    def answered(self) -> set[str]:
        """Ids of the answered samples."""
        return {entry.sample_id for _, entry in self.entries}


@dataclass(frozen=True)
class Folder:
    """The directory of one run.

    Attributes:
        path: of the directory.
        facts: of ``run.json``: identity, and what holds for all samples.
        ids: of the task's samples, in the order of the task.
    """

    path: Path
    facts: Mapping[str, Any]
    ids: tuple[str, ...]

    @property
    def digest(self) -> str:
        """Identity of the run and its data."""
        return str(self.facts["digest"])

    @property
    def task(self) -> str:
        """Name of the task."""
        return str(self.facts["task"])

    @property
    def name(self) -> str:
        """``task/method-digest``, for messages."""
        return f"{self.path.parent.name}/{self.path.name}"

    def journals(self) -> list[Path]:
        """The journals of all shards so far, however they were cut."""
        return sorted(self.path.glob("journal-*.jsonl"))

    def journal(self, shard: Shard, *, repair: bool = False) -> Journal:
        """The journal of a shard, opened for writing.

        Args:
            shard: whose.
            repair: see :class:`Journal`.
        """
        name = f"journal-{shard.number}of{shard.count}.jsonl"
        journal = Journal(self.path / name, repair=repair)
        try:
            heads = [line for _, line in journal.lines if line["kind"] == "journal"]
            for head in heads:
                self._check_head(journal.path, head)
            if not heads:
                journal.append({"kind": "journal", "digest": self.digest, "shard": str(shard)})
        except BaseException:
            journal.close()
            raise
        return journal

    def read(self) -> Contents:
        """What is there, read without changing it."""
        entries: list[tuple[str, Entry]] = []
        failed: dict[str, Failure] = {}
        notes: list[str] = []
        for path in self.journals():
            found = scan(path)
            if found.damaged:
                raise damage(path, found.damaged)
            if found.torn:
                notes.append(f"{path}: the last line is half or damaged and was passed over")
            for number, line in found.lines:
                kind = line.pop("kind")
                if kind == "journal":
                    self._check_head(path, line)
                elif kind == "failure":
                    failure = Failure(**line)
                    failed[failure.sample_id] = failure
                else:
                    entries.append((f"{path.name} line {number}", Entry.from_json(line)))
        for _, entry in entries:
            failed.pop(entry.sample_id, None)
        return Contents(tuple(entries), failed, tuple(notes))

    def _check_head(self, path: Path, head: Mapping[str, Any]) -> None:
        if head["digest"] != self.digest:
            raise RunError(
                f"{path} belongs to the run {head['digest']}, and its directory to {self.digest}; "
                "allowed are the journals of one run. Move the file to the directory it came from."
            )


def line_of(found: Entry | Failure) -> dict[str, Any]:
    """The journal's line of an answer or a failure.

    Args:
        found: what to store.
    """
    if isinstance(found, Failure):
        return {"kind": "failure", **asdict(found)}
    return {"kind": "entry", **found.to_json()}


def create(
    out: str | os.PathLike[str], label: str, facts: Mapping[str, Any], ids: Sequence[str]
) -> Folder:
    """The folder of a run; one that is there already is checked and taken.

    Args:
        out: the directory of all runs.
        label: the method and its budget, for people.
        facts: for ``run.json``; ``task`` and ``digest`` among them.
        ids: of all samples of the task, in its order.
    """
    doubled = _doubled(ids)
    if doubled:
        raise RunError(
            f"task {facts['task']!r} has the sample ids {_named(doubled)} more than once; allowed "
            "are unique ids. Look at the data, or at the task's way of making ids."
        )
    safe = re.sub(r"[^A-Za-z0-9._@+-]+", "_", label)
    path = Path(out) / str(facts["task"]) / f"{safe}-{facts['digest'][:12]}"
    path.mkdir(parents=True, exist_ok=True)
    for name, content in ((IDS, list(ids)), (FACTS, {"schema": SCHEMA, **facts})):
        if not (path / name).is_file():
            write_json(path / name, content)
    folder = open_folder(path)
    if folder.digest != facts["digest"] or folder.ids != tuple(ids):
        raise RunError(
            f"{path} holds the run {folder.digest} of {len(folder.ids)} samples, not "
            f"{facts['digest']} of {len(ids)}; allowed is one run per directory. Use another --out."
        )
    return folder


def open_folder(path: str | os.PathLike[str]) -> Folder:
    """The folder of a run that is there.

    Args:
        path: of the directory that holds ``run.json``.
    """
    home = Path(path)
    facts, ids = read_json(home / FACTS), read_json(home / IDS)
    if facts.get("schema") != SCHEMA:
        raise UnreadableError(
            f"{home / FACTS} has schema {facts.get('schema')!r}; this version reads {SCHEMA}. "
            "Read it with the version that wrote it."
        )
    return Folder(home, facts, tuple(ids))


def folders(out: str | os.PathLike[str]) -> list[Folder]:
    """All runs below a directory, or the one that it is, in the order of their names.

    Args:
        out: given to a run as its ``out``, or the directory of a task or of a run.
    """
    home = Path(out)
    found = sorted(home.rglob(FACTS))
    if not found:
        raise UnreadableError(
            f"{home} holds no run; allowed is a directory that --out named. Start one with "
            "python -m vicoset.evaluate run."
        )
    return [open_folder(path.parent) for path in found]


def complete(folder: Folder, contents: Contents | None = None) -> list[Entry]:
    """The entries of a run in the order of its task; refuses missing, doubled and foreign ids.

    Args:
        folder: of the run.
        contents: of its journals, where they were read already.
    """
    found = folder.read() if contents is None else contents
    places: dict[str, list[str]] = {}
    for place, entry in found.entries:
        places.setdefault(entry.sample_id, []).append(place)
    doubled = [f"{name} ({', '.join(at)})" for name, at in places.items() if len(at) > 1]
    if doubled:
        raise RunError(
            f"{folder.name} holds {len(doubled)} samples more than once: {_named(doubled)}; "
            "allowed is once. Processes with different shards ran at the same time: move one of "
            "the journals away and run again."
        )
    foreign = [name for name in places if name not in set(folder.ids)]
    if foreign:
        raise RunError(
            f"{folder.name} holds samples that its task does not have: {_named(foreign)}; allowed "
            f"are the ids of {IDS}. Move their journal to the run it belongs to."
        )
    missing = [name for name in folder.ids if name not in places]
    if missing:
        failed = sum(name in found.failures for name in missing)
        why = f", {failed} of them failed" if failed else ""
        raise RunError(
            f"{folder.name} lacks {len(missing)} of {len(folder.ids)} samples{why}: "
            f"{_named(missing)}; allowed are complete runs. Run the same command, or the shard "
            "that is missing, again."
        )
    by_id = {entry.sample_id: entry for _, entry in found.entries}
    return [by_id[name] for name in folder.ids]


def read_json(path: Path) -> Any:
    """A JSON file of a run.

    Args:
        path: of the file.
    """
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise UnreadableError(
            f"{path} is not there; allowed is a directory of a run. Start the run again, which "
            "writes it, or name another directory."
        ) from None
    except ValueError as error:
        raise UnreadableError(
            f"{path} is no JSON ({error}). Remove it and start the run again, which writes it."
        ) from error


def write_json(path: Path, content: Any) -> None:
    """Write a file whole or not at all, whoever else writes it at the same time.

    Args:
        path: of the file.
        content: JSON values.
    """
    fresh = path.with_suffix(f".{os.getpid()}.new")
    with open(fresh, "w", encoding="utf-8") as file:
        json.dump(content, file, ensure_ascii=False, indent=1)
        file.write("\n")
        file.flush()
        os.fsync(file.fileno())
    os.replace(fresh, path)


def _doubled(ids: Iterable[str]) -> list[str]:
    seen: set[str] = set()
    return [name for name in ids if name in seen or seen.add(name)]  # type: ignore[func-returns-value]


def _named(ids: Sequence[str]) -> str:
    more = f" and {len(ids) - 10} more" if len(ids) > 10 else ""
    return ", ".join(name if name.isprintable() else repr(name) for name in ids[:10]) + more
