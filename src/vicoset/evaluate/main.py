"""``python -m vicoset.evaluate``: run, status, merge, finalize; lmms-eval's tasks and logs."""

from __future__ import annotations

import argparse
import importlib
import json
import shlex
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from vicoset.errors import JournalError, RunError, SettingError, VicosetError
from vicoset.evaluate.interrupt import Interrupted
from vicoset.evaluate.lmms import command as lmms
from vicoset.evaluate.loading import DTYPES, TINY, load_named
from vicoset.evaluate.shards import Shard

PROGRAM = "python -m vicoset.evaluate"
FAILED, REFUSED = 3, 2


def main(argv: Sequence[str] | None = None) -> int:
    """Run a command; gives the exit status.

    0: all is there. 2: refused, the message says why. 3: some samples failed, a rerun tries them
    again. 75: the run's own time limit. 130 and 143: Ctrl-C and SIGTERM.

    Args:
        argv: arguments; the process's own by default.
    """
    given = list(sys.argv[1:] if argv is None else argv)
    options = _parser().parse_args(given)
    try:
        code: int = options.command(options)
    except Interrupted as stop:
        again = f"{PROGRAM} {shlex.join(given)}"
        print(f"{stop}. Every finished sample is stored; go on with\n  {again}", file=sys.stderr)
        return stop.code
    except (VicosetError, JournalError) as error:
        print(f"{type(error).__name__}: {error}", file=sys.stderr)
        return REFUSED
    return code


def _run(options: argparse.Namespace) -> int:
    from vicoset.evaluate.method import budget_of
    from vicoset.evaluate.runner import evaluate
    from vicoset.plan import names_in

    model, processor = load_named(
        options.model, dtype=options.dtype, device=options.device, attention=options.attention
    )
    data, choices = _data_and_choices(options.data, options.choice)
    failed = 0
    for name in _listed(options.tasks):
        outcome = evaluate(
            model,
            processor,
            _task(name),
            [text for text in names_in(options.methods) if text != "full"],
            [budget_of(text) for text in _listed(options.keeps)],
            out=options.out,
            data=data.get(name),
            choices=choices.get(name),
            full=not options.no_full,
            seeds=[int(seed) for seed in _listed(options.seeds)],
            prefix=options.prefix,
            allow_uncertified=options.allow_uncertified,
            limit=options.limit,
            batch=options.batch,
            shard=None if options.shard is None else Shard.parse(options.shard),
            support=options.support,
            evidence=options.evidence,
            repair=options.repair,
            ahead=options.ahead,
            seconds=options.seconds,
            directory=None if options.model == TINY else options.model,
            name=options.name,
        )
        for run, failure in outcome.failures:
            print(f"failed: {run} sample {failure.sample_id}: {failure.error}", file=sys.stderr)
        failed += len(outcome.failures)
        for folder in outcome.folders:
            print(folder.path)
    if failed:
        print(f"{failed} samples failed; the same command tries them again.", file=sys.stderr)
    return FAILED if failed else 0


def _task(name: str) -> Any:
    return importlib.import_module("vicoset.evaluate.tasks").task(name)


def _status(options: argparse.Namespace) -> int:
    from vicoset.evaluate.records import states

    found = states(options.out)
    for state in found:
        print(state)
    return 0 if all(state.answered == state.total for state in found) else FAILED


def _merge(options: argparse.Namespace) -> int:
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


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog=PROGRAM, description=__doc__)
    commands = parser.add_subparsers(required=True, metavar="COMMAND")
    run = commands.add_parser("run", help="answer what is missing of some runs")
    run.set_defaults(command=_run)
    add = run.add_argument
    add("--model", required=True, help=f"directory of a checkpoint, or {TINY!r}")
    add("--tasks", required=True, help="names, separated by commas")
    add("--out", required=True, type=Path, help="directory of all runs")
    add("--methods", default="gmc-h2", help="plans, separated by commas: gmc-h2,random+drop@2")
    add("--keeps", default="128", help="budgets: 128, 0.1, 10%%, coverage=0.95:min=16:max=256")
    add("--seeds", default="0", help="for the plans that draw")
    add("--no-full", action="store_true", help="leave the uncompressed model out")
    add("--data", action="append", default=[], metavar="TASK=PATH", help="of a task, on the disk")
    add("--choice", action="append", default=[], metavar="TASK=KEY:VALUE,...", help="of a task")
    add("--limit", type=int, help="only the first so many items; a run of its own")
    add("--batch", type=int, default=1, help="items that are answered together")
    add("--shard", help="such as 1/4; torchrun's by default")
    add("--prefix", default="gathered", help="gathered, dense or replay")
    add("--dtype", default="auto", help=", ".join(DTYPES))
    add("--device", default="auto", help="cpu, cuda, cuda:1, ...")
    add("--attention", help="attention kernel, such as sdpa or eager")
    add("--support", action="store_true", help="store the kept indices")
    add("--evidence", action="store_true", help="store what the methods measured")
    add("--ahead", type=int, help="batches to read while another one is answered")
    add("--seconds", type=float, help="stop after so long; status 75; go on later")
    add("--repair", action="store_true", help="compute damaged lines again")
    add("--allow-uncertified", action="store_true", help="also families without a contract test")
    add("--name", help="of the model, for tables")
    for name, command, text in (
        ("status", _status, "how far the runs are"),
        ("merge", _merge, "check that the shards are whole, and write samples.jsonl"),
        ("finalize", _merge, "merge, and write samples.parquet where pyarrow is installed"),
    ):
        sub = commands.add_parser(name, help=text)
        sub.set_defaults(command=command, parquet=name == "finalize")
        sub.add_argument("out", type=Path, help="directory of all runs, of a task or of a run")
    lmms.add(commands, _data_and_choices)
    return parser


def _listed(text: str) -> list[str]:
    return [part.strip() for part in text.split(",") if part.strip()]


def _data_and_choices(
    data: Sequence[str], choices: Sequence[str]
) -> tuple[dict[str, str], dict[str, dict[str, Any]]]:
    """What ``--data`` and ``--choice`` say, by task."""
    chosen = _by_task(choices, "--choice")
    read = {
        task: dict(_choice(one) for one in text.split(",") if one) for task, text in chosen.items()
    }
    return _by_task(data, "--data"), read


def _by_task(given: Sequence[str], option: str) -> dict[str, str]:
    found: dict[str, str] = {}
    for text in given:
        task, equals, value = text.partition("=")
        if not equals:
            raise SettingError(
                f"{option} {text!r}; allowed is TASK=VALUE, such as {option} pope=/data/pope."
            )
        found[task] = value
    return found


def _choice(text: str) -> tuple[str, Any]:
    """``key:value``; numbers, true and false are read as such."""
    key, colon, value = text.partition(":")
    if not colon:
        raise SettingError(f"choice {text!r}; allowed is KEY:VALUE, such as parser:first-sentence.")
    try:
        return key, json.loads(value)
    except ValueError:
        return key, value
