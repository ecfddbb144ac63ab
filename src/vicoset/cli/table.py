"""``vicoset table``: a table from the records of an evaluation."""

from __future__ import annotations

import argparse

from vicoset.evaluate import tabulate

HELP = """\
Write a table from records: Markdown, CSV and LaTeX, with realised K, layer average and work in
every row, 95% intervals of a paired, clustered bootstrap, and p-values adjusted by Holm."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The command's options."""
    tabulate.add_arguments(parser)


def run(options: argparse.Namespace) -> int:
    """Write the table."""
    return tabulate.run(options)
