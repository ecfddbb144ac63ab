"""Documents: entries such as ``QX:407``, scattered over the page."""

from __future__ import annotations

from typing import NamedTuple

from vicoset.tiny.draw.atlas import DIGITS, LETTERS
from vicoset.tiny.scenes.rng import Dice
from vicoset.tiny.scenes.scene import Question, Scene, new_pen, write
from vicoset.tiny.scenes.span import Span

FORMS = ("What is the value of {key}?", "What does {key} say?", "Read {key}.")
LENGTH = 6  # cells of an entry
CROWD = (20, 42)


class Entry(NamedTuple):
    """A key with its value, and where it begins."""

    key: str
    value: str
    row: int
    column: int


def compose(dice: Dice, scene: Scene, span: Span, crowd: tuple[int, int] = CROWD) -> list[Entry]:
    """Scatter entries with different keys.

    Args:
        dice: to draw from.
        scene: to write on.
        span: where.
        crowd: fewest and most entries of 36 x 36 cells; a smaller span has its share of them.
    """
    entries: list[Entry] = []
    wanted = max(2, span.size * span.size * dice.between(*crowd) // 1296)
    keys = dice.sample([a + b for a in LETTERS for b in LETTERS if a != b], wanted)
    for _ in range(wanted * 12):
        if len(entries) == wanted:
            break
        row = span.top + dice.below(span.size)
        column = span.left + dice.below(span.size - LENGTH + 1)
        if scene.free(row, max(column - 1, 0), row + 1, column + LENGTH):
            value = "".join(dice.pick(DIGITS) for _ in range(3))
            entries.append(Entry(keys[len(entries)], value, row, column))
            scene.take(row, column, row + 1, column + LENGTH + 1)
    for entry in entries:
        text = f"{entry.key}:{entry.value}"
        write(scene, entry.row, entry.column, text, new_pen(dice, scene.paper))
        for place in range(2, LENGTH):
            scene.context[entry.row, entry.column + place] = entry.key
    return entries


def ask(dice: Dice, entries: list[Entry], number: int) -> list[Question]:
    """Values of different keys."""
    return [
        Question(
            "document",
            dice.pick(FORMS).format(key=entry.key),
            entry.value,
            tuple((entry.row, entry.column + place) for place in (0, 1, 3, 4, 5)),
        )
        for entry in dice.sample(entries, number)
    ]
