"""``python -m vicoset.evaluate``: runs, studies, tables; lmms-eval's tasks and logs."""

from __future__ import annotations

import argparse
import shlex
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import NamedTuple

from vicoset.errors import JournalError, VicosetError
from vicoset.evaluate import commands, published, study, tabulate
from vicoset.evaluate.commands import REFUSED
from vicoset.evaluate.interrupt import Interrupted
from vicoset.evaluate.lmms import command as lmms
from vicoset.evaluate.texts import data_and_choices

PROGRAM = "python -m vicoset.evaluate"
INTERRUPTED = 130


class Command(NamedTuple):
    """A command.

    Attributes:
        line: what it does, for the list.
        add: puts its options on a parser.
        run: does it; gives the exit status.
    """

    line: str
    add: Callable[[argparse.ArgumentParser], None]
    run: Callable[[argparse.Namespace], int]


def _add_out(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("out", type=Path, help="directory of all runs, of a task or of a run")


def _add_merge(parser: argparse.ArgumentParser, parquet: bool = False) -> None:
    _add_out(parser)
    parser.set_defaults(parquet=parquet)


COMMANDS = {
    "run": Command("answer what is missing of some runs", commands.add_run_arguments, commands.run),
    "status": Command("how far the runs are", _add_out, commands.status),
    "merge": Command(
        "check that the shards are whole, and write samples.jsonl", _add_merge, commands.merge
    ),
    "finalize": Command(
        "merge, and write samples.parquet where pyarrow is installed",
        lambda parser: _add_merge(parser, parquet=True),
        commands.merge,
    ),
    "study": Command(
        "run everything that a table needs, and write it", study.add_arguments, study.run
    ),
    "table": Command("write a table from records", tabulate.add_arguments, tabulate.run),
    "paper": Command(
        "print the paper's own numbers", published.add_paper_arguments, published.print_paper
    ),
    "pope-parsers": Command(
        "say how three parsers read POPE's answers",
        published.add_parser_arguments,
        published.compare_parsers,
    ),
}


def main(argv: Sequence[str] | None = None) -> int:
    """Run a command; gives the exit status.

    0: all is there. 2: refused, the message says why. 3: some samples failed, a rerun tries them
    again. 75: the run's own time limit. 130 and 143: Ctrl-C and SIGTERM.

    Args:
        argv: arguments; the process's own by default.
    """
    given = list(sys.argv[1:] if argv is None else argv)
    options = _parser().parse_args(given)
    return guarded(options, f"{PROGRAM} {shlex.join(given)}")


def guarded(options: argparse.Namespace, again: str) -> int:
    """Run a command and turn what stops it into a line and an exit status.

    Args:
        options: of a parser with :func:`add_commands`.
        again: the command line that goes on with what was stopped.
    """
    try:
        code: int = options.command(options)
    except Interrupted as stop:
        print(f"{stop}. Every finished sample is stored; go on with\n  {again}", file=sys.stderr)
        return stop.code
    except KeyboardInterrupt:
        print(
            f"stopped before an answer was computed; start again with\n  {again}", file=sys.stderr
        )
        return INTERRUPTED
    except (VicosetError, JournalError) as error:
        print(f"{type(error).__name__}: {error}", file=sys.stderr)
        return REFUSED
    return code


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog=PROGRAM, description=__doc__)
    add_commands(parser)
    return parser


def add_commands(parser: argparse.ArgumentParser) -> None:
    """Put all commands on a parser.

    Args:
        parser: of the program, or of the command that holds them.
    """
    found = parser.add_subparsers(required=True, metavar="COMMAND")
    for name, command in COMMANDS.items():
        one = found.add_parser(name, help=command.line)
        one.set_defaults(command=command.run)
        command.add(one)
    lmms.add(found, data_and_choices)
