"""Plain text for a terminal: columns that line up, and numbers as people read them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence


def columns(head: Sequence[str], rows: Sequence[Sequence[str]], right: str = "") -> Iterator[str]:
    """Lines of a table, its columns two blanks apart.

    Args:
        head: names of the columns.
        rows: a text for every column.
        right: a letter per column: ``r`` lines it up on the right; what is missing, on the left.
    """
    table = [head, *rows]
    widths = [max(len(row[i]) for row in table) for i in range(len(head))]
    sides = right.ljust(len(head), "l")
    for row in table:
        cells = [
            cell.rjust(width) if side == "r" else cell.ljust(width)
            for cell, width, side in zip(row, widths, sides, strict=True)
        ]
        yield "  ".join(cells).rstrip()
