"""Runs read back: for statistics and tables, for exports, and for whoever asks how far they are."""

from __future__ import annotations

import importlib.util
import json
import os
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from vicoset.errors import RunError
from vicoset.evaluate.folder import Folder, complete, folders
from vicoset.evaluate.sample import RunInfo, RunSamples

JSONL, PARQUET = "samples.jsonl", "samples.parquet"


@dataclass(frozen=True)
class State:
    """How far a run is.

    Attributes:
        folder: of the run.
        answered: samples.
        failed: samples that raised and were not answered since.
        total: samples of the task.
    """

    folder: Folder
    answered: int
    failed: int
    total: int

    def __str__(self) -> str:
        """One line."""
        failed = f", {self.failed} failed" if self.failed else ""
        share = self.answered / self.total
        return f"{self.folder.name}: {self.answered}/{self.total} ({share:.0%}){failed}"


def states(out: str | os.PathLike[str]) -> list[State]:
    """How far all runs below a directory are; others may be writing meanwhile.

    Args:
        out: of the runs.
    """
    found = []
    for folder in folders(out):
        contents = folder.read()
        counts = len(contents.answered), len(contents.failures)
        found.append(State(folder, *counts, len(folder.ids)))
    return found


def load_runs(
    out: str | os.PathLike[str], tasks: Sequence[str] | None = None, *, partial: bool = False
) -> list[RunSamples]:
    """The runs below a directory, the tasks of one model and method joined.

    Args:
        out: of the runs.
        tasks: only these.
        partial: leave incomplete runs out instead of refusing them.
    """
    wanted = [one for one in folders(out) if tasks is None or one.task in tasks]
    return load_folders(wanted, partial=partial)


def load_folders(
    wanted: Sequence[Folder],
    *,
    partial: bool = False,
    left_out: list[tuple[Folder, int]] | None = None,
) -> list[RunSamples]:
    """Some runs, the tasks of one model and method joined.

    Args:
        wanted: the folders of the runs.
        partial: leave incomplete runs out instead of refusing them.
        left_out: gets those with the number of their answers.
    """
    joined: dict[str, RunSamples] = {}
    taken: dict[tuple[str, str], Folder] = {}
    for folder in wanted:
        contents = folder.read()
        answered = len(contents.answered)
        if partial and answered < len(folder.ids):
            if left_out is not None:
                left_out.append((folder, answered))
            continue
        entries = complete(folder, contents)
        info = RunInfo(**folder.facts["info"])
        twin = taken.setdefault((info.run_id, folder.task), folder)
        if twin is not folder:
            raise RunError(
                f"{twin.name} and {folder.name} are the same method on different data of "
                f"{folder.task!r} (such as --limit and all); allowed is one. Name the directory of "
                "the one you mean, or move the other away."
            )
        samples = tuple(entry.sample for entry in entries)
        counts = {entry.tokens for entry in entries}
        before = joined.get(info.run_id)
        if before is not None:
            samples = before.samples + samples
            counts |= {before.info.tokens} if before.info.tokens is not None else {-1}
        info = replace(info, tokens=counts.pop() if len(counts) == 1 else None)
        joined[info.run_id] = RunSamples(info, samples)
    return list(joined.values())


def merge(folder: Folder) -> Path:
    """Write all samples of a run in the order of its task; refuses incomplete and doubled ones.

    Args:
        folder: of the run.

    Returns:
        the JSONL file, a line per sample.
    """
    path = folder.path / JSONL
    lines = [json.dumps(entry.to_json(), ensure_ascii=False) for entry in complete(folder)]
    fresh = path.with_suffix(".new")
    fresh.write_text("".join(line + "\n" for line in lines), encoding="utf-8")
    os.replace(fresh, path)
    return path


def finalize(folder: Folder) -> Path:
    """:func:`merge`, and one Parquet file of it where pyarrow is installed.

    Args:
        folder: of the run.

    Returns:
        the Parquet file; the JSONL file without pyarrow. The journals stay the truth.
    """
    path = merge(folder)
    if importlib.util.find_spec("pyarrow") is None:
        return path
    from vicoset.evaluate import parquet

    parquet.write(folder.path / PARQUET, complete(folder), folder.facts)
    return folder.path / PARQUET
