"""``prepare-tasks`` and ``import-lmms``, two commands of ``python -m vicoset.evaluate``."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from vicoset.errors import SettingError

Read = Callable[[Sequence[str], Sequence[str]], tuple[Mapping[str, str], Mapping[str, Any]]]
DIFFERING = 3


def add(commands: Any, read: Read) -> None:
    """Add both commands.

    Args:
        commands: of argparse.
        read: gives the data's paths and the choices by task, from ``--data`` and ``--choice``.
    """
    prepare = commands.add_parser("prepare-tasks", help="write lmms-eval's task files, local data")
    prepare.set_defaults(command=_prepare, read=read)
    prepare.add_argument("--tasks", required=True, help="names of ours, separated by commas")
    prepare.add_argument("--out", required=True, type=Path, help="for --include_path")
    bring = commands.add_parser("import-lmms", help="runs of ours from lmms-eval's sample logs")
    bring.set_defaults(command=_import, read=read)
    add_one = bring.add_argument
    add_one("logs", nargs="+", type=Path, help="<date>_samples_<task>.jsonl, or directories")
    add_one("--out", required=True, type=Path, help="directory of all runs")
    add_one("--journal", type=Path, help="JOURNAL/<method>-<digest> of the model vicoset")
    add_one("--method", help="name for tables; full for an uncompressed model")
    add_one("--keep", default="", help="budget, for tables")
    add_one("--model", default="", help="name of the model, for tables")
    add_one("--query-aware", action="store_true", help="the method reads the question")
    add_one("--task", help="ours, where the log's name does not tell")
    add_one("--limit", type=int, help="given to lmms-eval as --limit")
    for one in (prepare, bring):
        one.add_argument("--data", action="append", default=[], metavar="TASK=PATH")
        one.add_argument("--choice", action="append", default=[], metavar="TASK=KEY:VALUE,...")


def _prepare(options: argparse.Namespace) -> int:
    from vicoset.evaluate.lmms.prepare import SUFFIX, prepare

    data, choices = options.read(options.data, options.choice)
    names = [name.strip() for name in options.tasks.split(",") if name.strip()]
    for path in prepare(names, data, choices, options.out):
        print(path)
    listed = ",".join(name + SUFFIX for name in names)
    print(f"lmms-eval: --include_path {options.out.resolve()} --tasks {listed}")
    return 0


def _import(options: argparse.Namespace) -> int:
    from vicoset.evaluate.lmms.importing import import_log
    from vicoset.evaluate.lmms.logs import named_in

    data, choices = options.read(options.data, options.choice)
    differing = 0
    for log in _files(options.logs):
        task = options.task or named_in(log)[1]
        found = import_log(
            log,
            options.out,
            task=options.task,
            data=data.get(task),
            choices=choices.get(task),
            limit=options.limit,
            journal=options.journal,
            method=options.method,
            keep=options.keep,
            model=options.model,
            query_aware=options.query_aware,
        )
        print(found.folder.path)
        own = f"lmms-eval scored {found.compared} answers one by one"
        print(f"{task}: {own}, {len(found.differing)} of them differently", file=sys.stderr)
        if found.differing:
            differing += 1
            print(f"{task}: such as sample {found.differing[0]}", file=sys.stderr)
    return DIFFERING if differing else 0


def _files(given: Sequence[Path]) -> list[Path]:
    """The logs among files and directories; two of one task in a directory are refused."""
    files: list[Path] = []
    for path in given:
        found = [path] if path.is_file() else sorted(path.glob("*_samples_*.jsonl"))
        tasks = [one.stem.partition("_samples_")[2] for one in found]
        double = sorted({name for name in tasks if tasks.count(name) > 1})
        if double or not found:
            what = f"several logs of {double[0]}" if double else "no *_samples_*.jsonl"
            raise SettingError(f"{path} holds {what}; allowed is one a task. Name the files.")
        files += found
    return files
