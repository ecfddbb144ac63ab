"""What the commands of ``python -m vicoset.evaluate`` do with their options."""

from __future__ import annotations

import argparse
import importlib
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from vicoset.errors import RunError, SettingError
from vicoset.evaluate.loading import BUNDLED, DTYPES, load_named
from vicoset.evaluate.shards import Shard
from vicoset.evaluate.texts import check_plans, data_and_choices, listed, seeds_of

FAILED, REFUSED = 3, 2


def add_model_arguments(parser: argparse.ArgumentParser, share: bool | None = False) -> None:
    """What every command that asks a model takes.

    Args:
        parser: of the command.
        share: whether methods share what they compute alike, unless told otherwise; None where the
            command decides.
    """
    add = parser.add_argument
    add("--model", required=True, help=f"directory of a checkpoint, or {', '.join(BUNDLED)}")
    add("--tasks", "--task", required=True, help="names, separated by commas")
    add("--out", required=True, type=Path, help="directory of all runs")
    add("--data", action="append", default=[], metavar="TASK=PATH", help="of a task, on the disk")
    add("--choice", action="append", default=[], metavar="TASK=KEY:VALUE,...", help="of a task")
    add("--limit", type=int, help="only the first so many items; a run of its own")
    add("--square", type=int, metavar="SIDE", help="bring every image to SIDE x SIDE pixels")
    add("--batch", type=int, default=1, help="items that are answered together")
    add("--shard", help="such as 1/4; torchrun's by default")
    add("--prefix", default="gathered", help="gathered, dense or replay")
    add("--positions", default="original", help="original or packed; take a directory of its own")
    add("--dtype", default="auto", help=", ".join(DTYPES))
    add("--device", default="auto", help="cpu, cuda, cuda:1, ...")
    add("--attention", help="attention kernel, such as sdpa or eager")
    add("--support", action="store_true", help="store the kept indices")
    add("--evidence", action="store_true", help="store what the methods measured")
    add("--records", metavar="FILE", help="append the sealed record of every answer to a file")
    add("--ahead", type=int, help="batches to read while another one is answered")
    add("--seconds", type=float, help="stop after so long; status 75; go on later")
    add("--repair", action="store_true", help="compute damaged lines again")
    add("--allow-uncertified", action="store_true", help="also families without a contract test")
    add("--name", help="of the model, for tables")
    add(
        "--share",
        action=argparse.BooleanOptionalAction,
        default=share,
        help="run the tower and dense blocks once for all methods: same answers, no times",
    )


def add_run_arguments(parser: argparse.ArgumentParser) -> None:
    """The options of ``run``.

    Args:
        parser: of the command.
    """
    add_model_arguments(parser)
    add = parser.add_argument
    add("--methods", default="gmc-h2", help="plans, separated by commas: gmc-h2,random+drop@2")
    add("--keeps", default="128", help="budgets: 128, 0.1, 10%%, coverage=0.95:min=16:max=256")
    add("--seeds", default="0", help="for the plans that draw")
    add("--no-full", action="store_true", help="leave the uncompressed model out")


def loaded(options: argparse.Namespace) -> tuple[Any, Any]:
    """The model and the processor that the options name.

    Args:
        options: of a command with the arguments of a model.
    """
    return load_named(
        options.model, dtype=options.dtype, device=options.device, attention=options.attention
    )


class Asking:
    """The options of a command, as :func:`vicoset.evaluate.runner.evaluate` takes them.

    Attributes:
        tasks: names.
    """

    def __init__(self, options: argparse.Namespace) -> None:
        """Read the questions of every task, before a model is loaded and before anything runs.

        Args:
            options: of a command with the arguments of a model.
        """
        _check(options)
        self.options = options
        self.tasks = listed(options.tasks)
        if not self.tasks:
            raise SettingError(f"--tasks {options.tasks!r} names none; allowed are one or more.")
        self._data, self._choices = data_and_choices(options.data, options.choice)
        bundled = BUNDLED.get(options.model)
        if bundled not in (None, BUNDLED["tiny"]):  # pictures of its size, unless others are named
            for name in (one for one in self.tasks if one.startswith("tinybench")):
                self._choices[name] = {"model": bundled, **self._choices.get(name, {})}
        known = {name: task(name) for name in (*self.tasks, *self._data, *self._choices)}
        self._items = {
            name: known[name].load(self._data.get(name), **self._choices.get(name, {}))
            for name in self.tasks
        }
        self._end = None if options.seconds is None else time.monotonic() + options.seconds

    def of(self, name: str) -> dict[str, Any]:
        """Keyword arguments for a task.

        Args:
            name: of the task.
        """
        o = self.options
        left = None if self._end is None else max(0.0, self._end - time.monotonic())
        return {
            "task": task(name),
            "out": o.out,
            "data": self._data.get(name),
            "choices": self._choices.get(name, {}),
            "items": self._items[name],
            "prefix": o.prefix,
            "positions": o.positions,
            "allow_uncertified": o.allow_uncertified,
            "limit": o.limit,
            "batch": o.batch,
            "shard": None if o.shard is None else Shard.parse(o.shard),
            "support": o.support,
            "evidence": o.evidence,
            "records": o.records,
            "repair": o.repair,
            "ahead": o.ahead,
            "seconds": left,
            "share": o.share,
            "square": o.square,
            "directory": None if o.model in BUNDLED else o.model,
            "name": o.name or (o.model if o.model in BUNDLED else None),
        }


def run(options: argparse.Namespace) -> int:
    """Answer what is missing of some runs.

    Args:
        options: as :func:`add_run_arguments` has them.
    """
    from vicoset.evaluate.method import budget_of
    from vicoset.evaluate.runner import evaluate
    from vicoset.plan import names_in

    asking, failed = Asking(options), 0
    asked: dict[str, Any] = {
        "plans": check_plans([text for text in names_in(options.methods) if text != "full"]),
        "keeps": [budget_of(text) for text in listed(options.keeps)],
        "full": not options.no_full,
        "seeds": seeds_of(options.seeds),
    }
    model, processor = loaded(options)
    for name in asking.tasks:
        outcome = evaluate(model, processor, **asked, **asking.of(name))
        failed += tell_failures(outcome.failures)
        for folder in outcome.folders:
            print(folder.path)
    return FAILED if failed else 0


def tell_failures(failures: Sequence[tuple[str, Any]]) -> int:
    """Name the samples that failed; gives their number.

    Args:
        failures: of an outcome.
    """
    for name, failure in failures:
        print(f"failed: {name} sample {failure.sample_id}: {failure.error}", file=sys.stderr)
    if failures:
        print(
            f"{len(failures)} samples failed; the same command tries them again.", file=sys.stderr
        )
    return len(failures)


def status(options: argparse.Namespace) -> int:
    """Say how far the runs are.

    Args:
        options: with ``out``.
    """
    from vicoset.evaluate.records import states

    found = states(options.out)
    for state in found:
        print(state)
    return 0 if all(state.answered == state.total for state in found) else FAILED


def merge(options: argparse.Namespace) -> int:
    """Write the samples of whole runs.

    Args:
        options: with ``out`` and ``parquet``.
    """
    from vicoset.evaluate import folder, records

    write = records.finalize if options.parquet else records.merge
    refused: list[str] = []
    for found in folder.folders(options.out):
        try:
            print(write(found))
        except RunError as error:
            refused.append(str(error))
    for text in refused:
        print(f"RunError: {text}", file=sys.stderr)
    return REFUSED if refused else 0


def task(name: str) -> Any:
    """A task by name.

    Args:
        name: of the task.
    """
    return importlib.import_module("vicoset.evaluate.tasks").task(name)


def _check(options: argparse.Namespace) -> None:
    """Refuse numbers that no run has."""
    from vicoset.runtime.engine import PREFIXES

    for name in ("limit", "square", "batch", "seconds", "ahead"):
        value, least = getattr(options, name), 0 if name == "ahead" else 1
        if value is not None and value < least:
            raise SettingError(f"--{name} {value:g}; allowed are numbers from {least} on.")
    if options.prefix not in PREFIXES:
        raise SettingError(f"--prefix {options.prefix}; allowed are {', '.join(PREFIXES)}.")
    if options.shard is not None:
        Shard.parse(options.shard)
