"""The rows of a table out of records: a plan with a budget, its seeds joined, what it cost."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from vicoset.errors import RunError
from vicoset.evaluate.entry import FULL
from vicoset.evaluate.folder import Folder, folders
from vicoset.evaluate.records import load_folders
from vicoset.evaluate.sample import RunSamples


class Key(NamedTuple):
    """What a row is.

    Attributes:
        plan: as asked for; "full" for Full.
        keep: the budget as text; "" for Full.
    """

    plan: str
    keep: str = ""

    @property
    def label(self) -> str:
        """For messages and as the name of a column of draws."""
        return f"{self.plan} {self.keep}".strip()


FULL_KEY = Key(FULL)


class Cost(NamedTuple):
    """Means over the samples of a row.

    Attributes:
        tokens: N.
        kept: realised K.
        average: W / L.
        work: W / (L N), in percent.
        kv: prompt-KV bytes that are saved, in percent.
        seconds: of a request.
        least: smallest realised K.
        most: largest.
    """

    tokens: float
    kept: float
    average: float
    work: float
    kv: float
    seconds: float | None
    least: float
    most: float


@dataclass(frozen=True)
class Found:
    """The runs of one model below a directory.

    Attributes:
        out: where they lie.
        model: its name.
        runs: a row to its runs, one per seed.
        facts: of a run for each task: what it was asked with.
        notes: runs that were left out.
    """

    out: str
    model: str
    runs: Mapping[Key, tuple[RunSamples, ...]]
    facts: Mapping[str, Mapping[str, Any]]
    notes: tuple[str, ...] = ()

    @property
    def full(self) -> RunSamples:
        """The run of Full."""
        if FULL_KEY not in self.runs:
            raise RunError(
                f"{self.out} holds no complete run of Full of the model {self.model!r}; every "
                "table relates to it. Run the same tasks with --methods full."
            )
        return self.runs[FULL_KEY][0]

    @property
    def tasks(self) -> tuple[str, ...]:
        """Those that Full answered, in the order of the files."""
        return tuple(dict.fromkeys(sample.task for sample in self.full.samples))

    @property
    def depth(self) -> int:
        """L."""
        return self.full.info.depth or 0

    @property
    def tokens(self) -> int | None:
        """N, where it is one number."""
        return self.full.info.tokens

    def complete(self, key: Key, tasks: Sequence[str]) -> bool:
        """Whether a row has answered some tasks, with every seed.

        Args:
            key: of the row.
            tasks: by name.
        """
        runs = self.runs.get(key, ())
        return bool(runs) and all(
            set(tasks) <= {sample.task for sample in run.samples} for run in runs
        )

    def cost(self, key: Key, tasks: Sequence[str]) -> Cost | None:
        """What a row cost, samples of all its tasks alike; None where nobody measured.

        Args:
            key: of the row.
            tasks: by name.
        """
        costs = [
            s.cost for run in self.runs[key] for s in run.samples if s.task in tasks and s.cost
        ]
        if not costs:
            return None
        whole = sum(c.full_kv_bytes for c in costs)
        timed = [c.seconds["request"] for c in costs if "request" in c.seconds]
        return Cost(
            tokens=float(np.mean([c.tokens for c in costs])),
            kept=float(np.mean([c.kept for c in costs])),
            average=float(np.mean([c.layer_average for c in costs])),
            work=100 * float(np.mean([c.work for c in costs])),
            kv=100 * (1 - sum(c.kv_bytes for c in costs) / whole) if whole else 0.0,
            seconds=float(np.mean(timed)) if timed else None,
            least=min(c.kept for c in costs),
            most=max(c.kept for c in costs),
        )


def find(
    out: str | os.PathLike[str],
    tasks: Sequence[str] = (),
    model: str = "",
    chosen: Sequence[Folder] | None = None,
    audited: bool = False,
) -> Found:
    """The runs of one model, incomplete ones left out and named.

    Args:
        out: of the runs.
        tasks: only these; all when empty.
        model: its name, where several models lie there.
        chosen: the runs themselves, where the caller knows which they are.
        audited: take the plans' audited runs, not their plain ones.
    """
    there = list(chosen) if chosen is not None else folders(out)
    known = sorted({one.task for one in there})
    there = [one for one in there if not tasks or one.task in tasks]
    if not there:
        raise RunError(
            f"{out} holds no run of {', '.join(tasks)}; it has runs of {', '.join(known)}. Name "
            "those, or leave --tasks out."
        )
    there = [one for one in there if is_full(one) or is_audited(one) == audited]
    names = sorted({str(one.facts["info"]["model"]) for one in there})
    if model:
        there = [one for one in there if one.facts["info"]["model"] == model]
    if not there or (not model and len(names) > 1):
        asked = f" of the model {model!r}" if model else ""
        raise RunError(
            f"{out} holds {len(there)} runs{asked}, and runs of the models {', '.join(names)}; a "
            "table is of one. Name it with --model-name."
        )
    left: list[tuple[Folder, int]] = []
    runs: dict[Key, list[RunSamples]] = {}
    for run in load_folders(there, partial=True, left_out=left):
        runs.setdefault(Key(run.info.plan, run.info.keep), []).append(run)
    for key, mine in runs.items():
        _check_seeds(key, mine, str(out))
    notes = [
        f"left out, incomplete: {one.name} ({answered} of {len(one.ids)})" for one, answered in left
    ]
    gone = [one for one, _ in left]
    facts = {one.task: one.facts for one in there if one not in gone}
    joined = {key: tuple(mine) for key, mine in runs.items()}
    return Found(os.fspath(out), model or names[0], joined, facts, tuple(notes))


def is_full(one: Folder) -> bool:
    """Whether a run is Full's."""
    return bool(one.facts["info"]["plan"] == FULL)


def is_audited(one: Folder) -> bool:
    """Whether a run's requests were audited."""
    return "audit" in one.facts.get("identity", {}).get("method", {})


def _check_seeds(key: Key, runs: Sequence[RunSamples], out: str) -> None:
    seeds = [run.info.seed for run in runs]
    if len(set(seeds)) < len(seeds):
        ids = ", ".join(run.info.run_id for run in runs)
        raise RunError(
            f"{out} holds {len(runs)} runs of {key.label!r} with the seeds {seeds}: the same "
            f"method under several identities ({ids}), such as two "
            "versions of its code or two dtypes; a table takes one. Move the older ones away, or "
            "name a directory that holds one."
        )
