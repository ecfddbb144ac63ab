"""``paper`` and ``pope-parsers``: the paper's printed numbers, and three readings of one answer."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

from vicoset.errors import RunError
from vicoset.evaluate import paper
from vicoset.evaluate.tables.table import Column, Row, Table
from vicoset.evaluate.texts import data_and_choices

FORMS = ("markdown", "csv", "latex")


def add_paper_arguments(parser: argparse.ArgumentParser) -> None:
    """The options of ``paper``.

    Args:
        parser: of the command.
    """
    parser.add_argument("name", nargs="?", help="of a table; all names are listed without")
    parser.add_argument("--format", choices=FORMS, default="markdown", help="of what is printed")


def print_paper(options: argparse.Namespace) -> int:
    """Print a published table, or what tables there are.

    Args:
        options: of the command.
    """
    if options.name is None:
        for name in paper.names():
            rows = paper.table(name)
            sources = ", ".join(dict.fromkeys(row["source"] for row in rows))
            print(f"{name:18s} {len(rows):3d} rows  {sources}")
        return 0
    rows = paper.table(options.name)
    columns = [Column(name, name, text=name in ("source", "method", "plan")) for name in rows[0]]
    title = f"{options.name}, as printed in Messages, Not Tokens"
    made = Table(options.name, title, columns, [Row(dict(row)) for row in rows])
    print(getattr(made, options.format)(), end="")
    return 0


def add_parser_arguments(parser: argparse.ArgumentParser) -> None:
    """The options of ``pope-parsers``.

    Args:
        parser: of the command.
    """
    parser.add_argument("out", type=Path, help="directory of the runs")
    parser.add_argument("--data", required=True, action="append", metavar="pope=PATH")
    parser.add_argument("--choice", action="append", default=[], metavar="pope=KEY:VALUE,...")


def compare_parsers(options: argparse.Namespace) -> int:
    """Print for every run of POPE what each of the parsers makes of its answers.

    Args:
        options: of the command.
    """
    from vicoset.evaluate.folder import complete, folders
    from vicoset.evaluate.scorers.yesno import POPE_PARSERS, disagreement
    from vicoset.evaluate.tasks import task

    data, choices = data_and_choices(options.data, options.choice)
    items = task("pope").load(data.get("pope"), **choices.get("pope", {}))
    gold = {item.sample_id: item.references["answer"] for item in items}
    rows: list[Row] = []
    for folder in folders(options.out):
        if folder.task != "pope":
            continue
        entries = complete(folder)
        foreign = [one.sample_id for one in entries if one.sample_id not in gold]
        if foreign:
            raise RunError(
                f"{folder.name} has the sample {foreign[0]!r}, which these data do not; allowed "
                "are the data of the run. Check --data and --choice."
            )
        found: Any = disagreement([(one.raw.strip(), gold[one.sample_id]) for one in entries])
        values: dict[str, Any] = {"run": folder.path.name, "answers": found["answers"]}
        values |= {name: 100 * count / len(entries) for name, count in found["correct"].items()}
        rows.append(Row({**values, "differs": found["verdict_differs"]}))
    if not rows:
        raise RunError(f"{options.out} holds no run of pope; run it first.")
    columns = [
        Column("run", "Run", text=True),
        Column("answers", "Answers"),
        *(Column(name, f"{name} %", 2) for name in POPE_PARSERS),
        Column("differs", "Verdicts that differ"),
    ]
    print(Table("pope-parsers", "POPE's answers under three parsers", columns, rows).markdown())
    return 0
