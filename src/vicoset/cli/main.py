"""``vicoset COMMAND``: finds the command, runs it, and turns errors into one line."""

from __future__ import annotations

import argparse
import difflib
import importlib
import os
import sys
from collections.abc import Sequence
from typing import NamedTuple

from vicoset import __version__
from vicoset.errors import VicosetError

PROGRAM = "vicoset"
FAILED, REFUSED, INTERRUPTED, NO_READER = 1, 2, 130, 141
_HELP = ("-h", "--help", "help")


class Command(NamedTuple):
    """A command's module and its line in the list of commands.

    The module has ``HELP``, the text above its options, ``add_arguments(parser)`` and
    ``run(options)``, which gives the exit status. It is imported when its command is asked for, so
    that the list of commands needs no torch.
    """

    module: str
    line: str


COMMANDS: dict[str, Command] = {
    "demo": Command("vicoset.cli.demo", "show what compression does, on the bundled model"),
    "run": Command("vicoset.cli.run", "answer a question about a picture, compressed"),
    "audit": Command("vicoset.cli.audit", "say what a compression did to a question's evidence"),
    "verify": Command("vicoset.cli.verify", "recompute what sealed records say, find what changed"),
    "methods": Command("vicoset.cli.methods", "list the presets, the selectors and the realisers"),
    "evaluate": Command("vicoset.cli.evaluate", "run benchmarks with many methods, resumably"),
    "table": Command("vicoset.cli.table", "write a table from the records of an evaluation"),
    "plan": Command("vicoset.cli.plan", "say what a plan does: stages, kept tokens, work"),
}


def main(argv: Sequence[str] | None = None) -> int:
    """Run a command; gives the exit status.

    0: done. 1: done, and the answer is no (as a command's help says). 2: refused, the message says
    why. 130: Ctrl-C. 141: whoever read the output went away.

    Args:
        argv: arguments; the process's own by default.
    """
    given = list(sys.argv[1:] if argv is None else argv)
    try:
        code = _dispatch(given)
        sys.stdout.flush()
        return code
    except KeyboardInterrupt:
        print(file=sys.stderr)
        return INTERRUPTED
    except BrokenPipeError:
        # What is still buffered has no reader either; flushing it at exit would complain.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return NO_READER
    except (VicosetError, OSError) as error:
        return refuse(" ".join([PROGRAM, *given[:1]]), error)


def refuse(program: str, error: object) -> int:
    """Print an error as one line; gives the exit status.

    Args:
        program: what was run.
        error: what was wrong.
    """
    print(f"{program}: {' '.join(str(error).split())}", file=sys.stderr)
    return REFUSED


def _dispatch(given: list[str]) -> int:
    """What the arguments ask for: the list, the version, or a command."""
    if not given or given[0] in _HELP:
        if len(given) > 1 and given[0] == "help":
            return _dispatch([given[1], "--help"])
        print(_overview())
        return 0
    name, *rest = given
    if name == "--version":
        print(f"{PROGRAM} {__version__}")
        return 0
    if name not in COMMANDS:
        return refuse(PROGRAM, _unknown(name))
    module = importlib.import_module(COMMANDS[name].module)
    parser = argparse.ArgumentParser(
        prog=f"{PROGRAM} {name}",
        description=module.HELP,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    module.add_arguments(parser)
    code: int = module.run(parser.parse_args(rest))
    return code


def _unknown(name: str) -> str:
    near = difflib.get_close_matches(name.lower(), COMMANDS, n=1, cutoff=0.5)
    fix = f"Did you mean {PROGRAM} {near[0]}?" if near else f"{PROGRAM} --help says what they do."
    what = "option" if name.startswith("-") else "command"
    return f"{name!r} is no {what}; allowed are {', '.join(COMMANDS)}. {fix}"


def _overview() -> str:
    width = max(map(len, COMMANDS))
    lines = [f"  {name:{width}s}  {command.line}" for name, command in COMMANDS.items()]
    return "\n".join(
        [
            f"usage: {PROGRAM} COMMAND ...",
            "",
            "Compress the visual tokens of vision-language models inside their decoder.",
            "",
            *lines,
            "",
            f"{PROGRAM} COMMAND --help says more about one of them.",
        ]
    )
