"""``vicoset evaluate``: benchmarks with many methods, as ``python -m vicoset.evaluate`` does."""

from __future__ import annotations

import argparse
import shlex
import sys

from vicoset.evaluate.main import add_commands, guarded

HELP = """\
Answer benchmarks with many methods, each image read once for all of them; every finished sample is
stored, and the same command goes on where the last one stopped. `study` runs everything that a
table needs and writes it. docs/evaluation.md has the protocol."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The commands of the evaluation."""
    add_commands(parser)


def run(options: argparse.Namespace) -> int:
    """Run one of them."""
    again = f"vicoset {shlex.join(sys.argv[1:])}"
    return guarded(options, again)
