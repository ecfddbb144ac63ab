"""A table as data: columns, rows of numbers with their intervals, notes; and how it is written."""

from __future__ import annotations

import csv
import io
import re
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import NamedTuple

MISSING = "missing"
_METHODS = "--methods"


class Cell(NamedTuple):
    """A number, with its interval where it has one.

    Attributes:
        value: the number.
        low: lower end.
        high: upper end.
    """

    value: float
    low: float | None = None
    high: float | None = None


Value = Cell | float | int | str | None


@dataclass(frozen=True)
class Column:
    """A column.

    Attributes:
        key: its name in CSV files and in rows.
        title: its head for readers.
        digits: decimals that are shown; CSV files have all.
        signed: whether a plus sign is shown.
        text: whether it holds words, which stand on the left.
    """

    key: str
    title: str
    digits: int = 2
    signed: bool = False
    text: bool = False


@dataclass(frozen=True)
class Row:
    """A row.

    Attributes:
        values: by key of the column; a column that is left out is empty.
        group: rows of one group stand together, a line between two groups.
        command: what produces a row that is missing; empty for a row that is there.
        reference: whether others are compared with it.
        unsigned: whether its numbers are scores where those of other rows are differences.
    """

    values: Mapping[str, Value]
    group: str = ""
    command: str = ""
    reference: bool = False
    unsigned: bool = False


@dataclass(frozen=True)
class Table:
    """A table, or a panel of one.

    Attributes:
        name: of its files, such as ``fixed-k``.
        title: one line.
        columns: in order.
        rows: in order.
        notes: what a reader has to know: units, replicates, families, commands of missing rows.
    """

    name: str
    title: str
    columns: Sequence[Column]
    rows: Sequence[Row]
    notes: Sequence[str] = field(default=())

    def markdown(self) -> str:
        """For readers of text."""
        head = "| " + " | ".join(_bar(c.title) for c in self.columns) + " |"
        rule = "|" + "|".join("---" if c.text else "---:" for c in self.columns) + "|"
        body = [
            "| " + " | ".join(_bar(one) for one in self._shown(row)) + " |" for row in self.rows
        ]
        lines = [f"**{self.title}**", "", head, rule, *body, ""]
        lines += [f"- {note}" for note in self._notes("`{}`")]
        return "\n".join(lines).rstrip() + "\n"

    def csv(self) -> str:
        """For machines: full precision, the ends of intervals in columns of their own."""
        found = io.StringIO()
        write = csv.writer(found, lineterminator="\n")
        ends = {c.key for row in self.rows for c in self.columns if _has_ends(row.values, c.key)}
        head: list[str] = ["group"]
        for column in self.columns:
            key = column.key
            head += [key, f"{key}_low", f"{key}_high"] if key in ends else [key]
        write.writerow([*head, "missing"])
        for row in self.rows:
            line: list[str] = [row.group]
            for column in self.columns:
                value = row.values.get(column.key)
                parts = value if isinstance(value, Cell) else Cell(0.0)
                line.append(_exact(parts.value if isinstance(value, Cell) else value))
                if column.key in ends:
                    line += [_exact(parts.low), _exact(parts.high)]
            write.writerow([*line, row.command])
        return found.getvalue()

    def latex(self) -> str:
        """For papers: a tabular with the rules of booktabs."""
        align = "".join("l" if c.text else "r" for c in self.columns)
        lines = [r"\begin{table*}", r"\centering", rf"\begin{{tabular}}{{{align}}}", r"\toprule"]
        lines.append(" & ".join(_tex(c.title) for c in self.columns) + r" \\")
        lines.append(r"\midrule")
        before = self.rows[0].group if self.rows else ""
        for row in self.rows:
            if row.group != before:
                lines.append(r"\midrule")
                before = row.group
            lines.append(" & ".join(_tex(one) for one in self._shown(row)) + r" \\")
        said = " ".join(_tex(note) for note in self._notes("{}"))
        lines += [r"\bottomrule", r"\end{tabular}"]
        lines += [rf"\caption{{{_tex(self.title)}. {said}}}", rf"\label{{tab:{self.name}}}"]
        return "\n".join([*lines, r"\end{table*}"]) + "\n"

    def _shown(self, row: Row) -> list[str]:
        """The texts of a row; its numbers say that they are missing where it was not run."""
        found = []
        for column in self.columns:
            value = row.values.get(column.key)
            if value is None:
                found.append(MISSING if row.command and not column.text else "")
            else:
                found.append(
                    shown(value, replace(column, signed=False) if row.unsigned else column)
                )
        return found

    def _notes(self, form: str) -> list[str]:
        commands = joined([row.command for row in self.rows if row.command])
        return [*self.notes, *(f"missing rows: {form.format(command)}" for command in commands)]


def joined(commands: Sequence[str]) -> list[str]:
    """Commands that differ in their methods alone as one.

    Args:
        commands: that run missing rows.
    """
    together: dict[tuple[str, ...], list[str]] = {}
    for command in dict.fromkeys(commands):
        parts = shlex.split(command)
        at = parts.index(_METHODS) + 1 if _METHODS in parts else len(parts)
        key = (*parts[:at], "", *parts[at + 1 :])
        together.setdefault(key, []).extend(parts[at : at + 1])
    return [
        shlex.join([part or ",".join(methods) for part in key if part or methods])
        for key, methods in together.items()
    ]


def shown(value: Value, column: Column) -> str:
    """A value as readers see it.

    Args:
        value: of a row.
        column: says how.
    """
    sign = "+" if column.signed else ""
    if isinstance(value, Cell):
        text = format(value.value, f"{sign}.{column.digits}f")
        if value.low is None or value.high is None:
            return text
        ends = [format(end, f"{sign}.{column.digits}f") for end in (value.low, value.high)]
        return f"{text} [{', '.join(ends)}]"
    if isinstance(value, float):
        return format(value, f"{sign}.{column.digits}f")
    return "" if value is None else str(value)


def _exact(value: Value) -> str:
    if value is None:
        return ""
    return repr(value) if isinstance(value, float) else str(value)


def _has_ends(values: Mapping[str, Value], key: str) -> bool:
    value = values.get(key)
    return isinstance(value, Cell) and value.low is not None


def _bar(text: str) -> str:
    return text.replace("|", r"\|")


_TEX = {
    **{mark: f"\\{mark}" for mark in "&%$#_{}"},
    **{"~": r"\textasciitilde{}", "^": r"\textasciicircum{}", "\\": r"\textbackslash{}"},
}
_WORDS = {"Δ": r"$\Delta$", "×": r"$\times$", "−": "$-$"}  # noqa: RUF001


def _tex(text: str) -> str:
    escaped = "".join(_TEX.get(mark, _WORDS.get(mark, mark)) for mark in text)
    return re.sub(r"(?<![\w.])-(?=\d)", "$-$", escaped)
