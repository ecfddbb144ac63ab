"""The sample logs that lmms-eval leaves: ``<date>_samples_<task>.jsonl``."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from vicoset.errors import UnknownNameError, UnreadableError
from vicoset.evaluate.tasks import names
from vicoset.evaluate.tasks.rows import read_json

# lmms-eval's names of the tasks that have one of ours beside them.
TASKS = {
    "textvqa_val": "textvqa",
    "chartqa": "chartqa",
    "docvqa_val": "docvqa",
    "gqa": "gqa",
    "mmbench_en_dev": "mmbench",
    "mmbench_en_dev_static": "mmbench",
    "mme": "mme",
    "pope": "pope",
    "hallusion_bench_image": "hallusionbench",
    "coco_cap_chair": "chair",
}
# Where a row says what its answer was worth; the others score whole tables only.
_SCORES = {
    **{"textvqa": "exact_match", "gqa": "exact_match", "docvqa": "anls"},
    **{"chartqa": "relaxed_overall", "pope": "pope_accuracy"},
}


@dataclass(frozen=True)
class Logged:
    """A row of a log.

    Attributes:
        doc_id: row of the data.
        raw: the answer as it was scored.
        prompt: what was asked.
        tokens: of the answer; 0 where the model did not count them.
        score: lmms-eval's own of this answer; None where it has none.
    """

    doc_id: int
    raw: str
    prompt: str
    tokens: int
    score: float | None


def named_in(path: Path) -> tuple[str, str]:
    """lmms-eval's name of a log's task, and ours.

    Args:
        path: of the log.
    """
    _, mark, theirs = path.stem.partition("_samples_")
    local = theirs.removesuffix("_local")
    ours = TASKS.get(theirs) or (local if local in names() else "")
    if not mark or not ours:
        raise UnknownNameError(
            f"{path.name} is of the task {theirs!r}; allowed are logs <date>_samples_<task>.jsonl "
            f"of {', '.join(TASKS)}, and of prepared tasks. Name ours: --task NAME."
        )
    return theirs, ours


def read_log(path: str | os.PathLike[str], task: str) -> dict[int, Logged]:
    """The rows of a log by ``doc_id``; refuses doubled ones.

    Args:
        path: of the log.
        task: our name of its task.
    """
    found: dict[int, Logged] = {}
    for number, row in enumerate(read_json(path), start=1):
        try:
            logged = _row(row, task)
        except (KeyError, TypeError, ValueError, IndexError) as error:
            raise UnreadableError(
                f"{path} line {number} is no sample of a task that generates "
                f"({type(error).__name__}: {error}); allowed are the logs of --log_samples. Check "
                "that the file was copied whole."
            ) from error
        if logged.doc_id in found:
            raise UnreadableError(
                f"{path} has the row {logged.doc_id} twice, in line {number} again; allowed is "
                "once. lmms-eval appends to a log of the same second: split the file."
            )
        found[logged.doc_id] = logged
    return found


def _row(row: Mapping[str, Any], task: str) -> Logged:
    raw = _alone(row["filtered_resps"])
    whole = row.get("resps")
    if isinstance(whole, str) and whole.strip() == raw.strip():
        raw = whole  # the filter only stripped it
    counts = (row.get("token_counts") or [None])[0] or {}
    return Logged(
        doc_id=int(row["doc_id"]),
        raw=raw,
        prompt=str(row["input"]),
        tokens=int(counts.get("output_tokens", 0)),
        score=_score(row, task),
    )


def _alone(answer: Any) -> str:
    """The one answer of a row, perhaps wrapped once more."""
    if isinstance(answer, list):
        (answer,) = answer
    if not isinstance(answer, str):
        raise TypeError(f"filtered_resps is a {type(answer).__name__}")
    return answer


def _score(row: Mapping[str, Any], task: str) -> float | None:
    if task == "mme":
        found = row.get("mme_perception_score", row.get("mme_cognition_score"))
    else:
        found = row.get(_SCORES.get(task, "score"))
    if isinstance(found, Mapping):
        found = found.get("score")
    return None if found is None else float(found)
