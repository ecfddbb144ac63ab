"""Tables: two-digit cells under letters, beside letters."""

from __future__ import annotations

from typing import NamedTuple

from vicoset.tiny.draw.atlas import DIGITS, LETTERS
from vicoset.tiny.scenes.rng import Dice
from vicoset.tiny.scenes.scene import UNITS, Panel, Pen, Question, Scene, new_pen, write
from vicoset.tiny.scenes.span import Span

FORMS = ("What is in row {row}, column {column}?", "Read row {row}, column {column}.")
PITCH = 3  # cells from one column to the next


class Entry(NamedTuple):
    """A number, its two letters, and where the three begin."""

    row: str
    column: str
    value: str
    at: tuple[int, int]
    row_at: tuple[int, int]
    column_at: tuple[int, int]


def compose(dice: Dice, scene: Scene, span: Span) -> list[Entry]:
    """One table, with letters that differ between all its rows and columns."""
    most_rows, most_columns = span.size - 1, (span.size - 1) // PITCH
    rows = dice.between(min(3, most_rows), min(12, most_rows))
    columns = dice.between(min(2, most_columns), min(9, most_columns))
    step = 2 if rows * 2 <= span.size - 1 and dice.chance(0.6) else 1
    height, width = rows * step + 1, columns * PITCH + 1
    top = span.top + dice.below(span.size - height + 1)
    left = span.left + dice.below(span.size - width + 1)
    letters = dice.sample(LETTERS, rows + columns)
    head, body = new_pen(dice, scene.paper), new_pen(dice, scene.paper)
    _rule(dice, scene, (top, left, top + height, left + width), step, head)
    entries = []
    for j, name in enumerate(letters[rows:]):
        _known(scene, top, left + 2 + j * PITCH - 1, name, head)
    for i, name in enumerate(letters[:rows]):
        row = top + 1 + i * step
        _known(scene, row, left, name, head)
        for j, above in enumerate(letters[rows:]):
            column = left + 1 + j * PITCH
            value = dice.pick(DIGITS) + dice.pick(DIGITS)
            write(scene, row, column, value, body)
            for place in (column, column + 1):
                scene.context[row, place] = name + above
            entries.append(Entry(name, above, value, (row, column), (row, left), (top, column)))
    scene.take(max(top - 1, 0), max(left - 1, 0), top + height + 1, left + width + 1)
    return entries


def ask(dice: Dice, entries: list[Entry], number: int) -> list[Question]:
    """Numbers at different places."""
    return [
        Question(
            "table",
            dice.pick(FORMS).format(row=entry.row, column=entry.column),
            entry.value,
            (entry.row_at, entry.column_at, entry.at, (entry.at[0], entry.at[1] + 1)),
        )
        for entry in dice.sample(entries, number)
    ]


def _known(scene: Scene, row: int, column: int, name: str, pen: Pen) -> None:
    write(scene, row, column, name, pen)


def _rule(dice: Dice, scene: Scene, block: tuple[int, int, int, int], step: int, pen: Pen) -> None:
    """A tinted head row, and lines between rows, in some tables."""
    top, left, bottom, right = (edge * UNITS for edge in block)
    shift = -26 if not scene.paper.dark else 26
    if dice.chance(0.7):
        scene.marks.append(Panel((top, left, top + UNITS, right), (shift, shift, 0), True))
    if dice.chance(0.5):
        for edge in range(top + UNITS, bottom + 1, step * UNITS):
            line = (edge - 2, left, edge + 2, right)
            scene.marks.append(Panel(line, pen.colour, False))
