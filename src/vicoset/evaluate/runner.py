"""``evaluate``: many methods on the samples of a task, stored as they come, resumed where they are.

Each run lies in ``out/<task>/<method>-<digest>/``. Whoever starts the same run again, with the same
or another number of shards, computes what is missing and nothing else.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from vicoset.core.settings import Settings
from vicoset.errors import RunError
from vicoset.evaluate import identity
from vicoset.evaluate.answering import Model
from vicoset.evaluate.blocks import cut
from vicoset.evaluate.entry import FULL, Failure
from vicoset.evaluate.fingerprint import Files
from vicoset.evaluate.folder import Folder, create
from vicoset.evaluate.method import Method, methods_of
from vicoset.evaluate.process import run_shard
from vicoset.evaluate.progress import Progress, progress_for
from vicoset.evaluate.sample import RunInfo
from vicoset.evaluate.shards import Shard
from vicoset.evaluate.task import Item, Task
from vicoset.plan import Keep, Plan
from vicoset.runtime.shared import Shared


@dataclass(frozen=True)
class Outcome:
    """What a call of :func:`evaluate` left.

    Attributes:
        folders: of the runs, in the order of the methods.
        failures: items that raised in this call, with the name of their run.
    """

    folders: tuple[Folder, ...]
    failures: tuple[tuple[str, Failure], ...]


def evaluate(
    model: Any,
    processor: Any,
    task: Task,
    plans: Sequence[str | Plan] = ("gmc-h2",),
    keeps: Sequence[Keep | int | float] = (128,),
    *,
    methods: Sequence[Method] | None = None,
    out: str | os.PathLike[str],
    data: str | os.PathLike[str] | None = None,
    choices: Mapping[str, Any] | None = None,
    items: Sequence[Item] | None = None,
    full: bool = True,
    seeds: Sequence[int] = (0,),
    prefix: str = "gathered",
    positions: str = "original",
    settings: Settings | None = None,
    allow_uncertified: bool = False,
    limit: int | None = None,
    batch: int = 1,
    shard: Shard | str | None = None,
    support: bool = False,
    evidence: bool = False,
    records: str | os.PathLike[str] | None = None,
    repair: bool = False,
    ahead: int | None = None,
    seconds: float | None = None,
    share: bool = False,
    square: int | None = None,
    directory: str | os.PathLike[str] | None = None,
    name: str | None = None,
    progress: Progress | None = None,
) -> Outcome:
    """Run a task with several methods, each image read once for all of them.

    Args:
        model: a stock model.
        processor: of the model.
        task: a benchmark.
        plans: presets, such as "gmc-h2" or "random+drop@2", or plans; "full" is one as well.
        keeps: budgets; every plan runs with each.
        methods: the methods themselves, instead of plans, keeps, seeds and full.
        out: directory of all runs.
        data: of the task, on the disk.
        choices: the task's own options.
        items: what the task loads from these data with these choices, where the caller has it.
        full: run Full too; where it is there already it is shared, not run again.
        seeds: for the plans that draw.
        prefix: execution mode, as in ``compress``.
        positions: of what is kept, as in ``compress``; a run of its own.
        settings: the method's numbers.
        allow_uncertified: as in ``compress``.
        limit: only the first so many items; a run of its own.
        batch: most items that are answered together.
        shard: this process's share; torchrun's by default, else the whole.
        support: store the kept indices.
        evidence: store what the methods measured.
        records: a file to which the sealed record of every answer is appended.
        repair: compute damaged lines again instead of refusing them.
        ahead: batches whose images are read while another one is answered; by default 2 beside an
            accelerator and none on the CPU.
        seconds: stop after so long; the run can be gone on with.
        share: compute what methods have in common once for each prompt. Answers are the same to the
            last bit; times are then those of no request, and entries do not tell them.
        square: bring every image to so many pixels a side, bicubically, as the paper does for a
            fixed N: 1008 for N = 1,296 of Qwen2.5-VL, 3528 for N = 15,876.
        directory: that the model was loaded from: its files are the weights' fingerprint, and are
            read once. Without it the weights in memory are.
        name: of the model, for tables.
        progress: is told; by default a bar, or lines where there is no terminal.
    """
    if methods is None:
        wanted = [FULL, *plans] if full else list(plans)
        methods = methods_of(wanted, keeps, identity.depth(model), seeds)
    items = task.load(data, **(choices or {})) if items is None else items
    items = items[: limit or None]
    if not items:
        raise RunError(f"task {task.name!r} has no items in {data}; allowed is one or more.")
    known = str(directory or getattr(model.config, "_name_or_path", "") or type(model).__name__)
    asked = Model(
        model,
        processor,
        prefix=prefix,
        positions=positions,
        settings=settings,
        allow_uncertified=allow_uncertified,
        support=support,
        evidence=evidence,
        shared=Shared(model, first_boundary(methods)) if share else None,
        records=records,
        asked_with={
            **({"choices": dict(choices)} if choices else {}),
            **({} if data is None else {"data": os.fspath(data)}),
            **({} if square is None else {"square": square}),
        },
        square=square,
    )
    told = {
        "asked": {
            "model": str(directory or name or known),
            "data": None if data is None else os.path.abspath(data),
            "limit": limit,
            "prefix": prefix,
            "allow_uncertified": allow_uncertified,
            "square": square,
        },
        "machine": identity.machine(model),
    }
    files = Files(Path(out) / "fingerprints.jsonl")
    about_model = identity.of_model(model, asked.processor, directory, files, square)
    about_task = identity.of_task(task, items, choices or {}, files)
    folders = []
    for method in methods:
        about = identity.of_method(method, prefix, settings, positions)
        facts = identity.run_facts(about_model, about_task, about, batch)
        info = info_of(method, facts["run_id"], name or Path(known).name, identity.depth(model))
        facts = {"task": task.name, "info": info, **facts, **told}
        folders.append(create(out, method.label, facts, [item.sample_id for item in items]))
    part = Shard.from_environment() if shard is None else shard
    part = Shard.parse(part) if isinstance(part, str) else part
    failures = run_shard(
        folders,
        [asked.answers(task, method) for method in methods],
        asked.prepare,
        cut(items, batch),
        part,
        progress or progress_for(f"{task.name} {part}"),
        repair=repair,
        ahead=(2 if model.device.type == "cuda" else 0) if ahead is None else ahead,
        seconds=seconds,
    )
    return Outcome(tuple(folders), failures)


def first_boundary(methods: Sequence[Method]) -> int:
    """Blocks that some method runs on the whole prompt; Full needs nobody's.

    Args:
        methods: of a comparison.
    """
    return max((one.plan.boundaries[0] for one in methods if one.plan is not None), default=0)


def info_of(method: Method, run_id: str, model: str, depth: int) -> dict[str, Any]:
    """What the statistics and tables need to know of a run.

    Args:
        method: of the run.
        run_id: its identity.
        model: the model's name.
        depth: L, blocks of the decoder.
    """
    info = RunInfo(
        run_id=run_id,
        method=method.name,
        plan=method.asked,
        keep="" if method.keep is None else method.requested,
        query_aware=method.query_aware,
        seed=method.seed,
        model=model,
        depth=depth,
    )
    return asdict(info)
