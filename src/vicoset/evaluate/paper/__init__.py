"""The numbers printed in *Messages, Not Tokens: Grounded Coresets for Faithful VLM Compression*.

One CSV per table or panel; the column ``source`` holds the label of the table in the paper's LaTeX
(``tab:...``), or of the section for numbers that stand in the running text. Methods are named as
the paper prints them; ``plan`` is this project's name of the same thing.
"""

from __future__ import annotations

import csv
import functools
from collections.abc import Mapping
from importlib import resources

from vicoset.errors import UnknownNameError

Row = Mapping[str, str]


def names() -> list[str]:
    """Names of all tables."""
    files = resources.files(__name__).iterdir()
    return sorted(file.name[:-4] for file in files if file.name.endswith(".csv"))


@functools.cache
def table(name: str) -> tuple[Row, ...]:
    """The rows of a table, every value as it is printed.

    Args:
        name: of the table, such as ``fixed_k``.
    """
    if name not in names():
        raise UnknownNameError(f"no published table {name!r}; there are {', '.join(names())}.")
    text = (resources.files(__name__) / f"{name}.csv").read_text(encoding="utf-8")
    return tuple(csv.DictReader(text.splitlines()))


def find(name: str, **where: str | int) -> Row | None:
    """The one row of a table in which some columns hold some values; None without one.

    Args:
        name: of the table.
        where: column = value.
    """
    wanted = {column: str(value) for column, value in where.items()}
    rows = table(name)
    unknown = wanted.keys() - rows[0].keys()
    if unknown:
        raise UnknownNameError(
            f"no columns {sorted(unknown)} in {name!r}; there are {', '.join(rows[0])}."
        )
    found = [row for row in rows if all(row[c] == value for c, value in wanted.items())]
    if len(found) > 1:
        raise UnknownNameError(
            f"{len(found)} rows of {name!r} have {wanted}; name more columns of "
            f"{', '.join(rows[0])}."
        )
    return found[0] if found else None
