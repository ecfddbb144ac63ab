"""A scene: what a picture shows and what can be asked about it, in cells of a square grid."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import NamedTuple

from vicoset.tiny.scenes.rng import Dice

UNITS = 56  # parts of a cell side in which offsets and edges are given
Colour = tuple[int, int, int]


class Paper(NamedTuple):
    """The empty page.

    Attributes:
        dark: light ink on dark paper.
        base: colour in the upper left corner.
        slopes: per channel how far it rises downwards and to the right.
        texture: number of the texture.
        texture_gain: in eighths.
        texture_offset: where in the texture the page begins.
        noise_offset: where in the noise it begins.
    """

    dark: bool
    base: Colour
    slopes: tuple[tuple[int, int], ...]
    texture: int
    texture_gain: int
    texture_offset: tuple[int, int]
    noise_offset: tuple[int, int]


class Panel(NamedTuple):
    """A filled rectangle; edges are (top, left, bottom, right) in units of a cell."""

    edges: tuple[int, int, int, int]
    colour: Colour
    tint: bool


class Glyph(NamedTuple):
    """A character in a cell."""

    row: int
    column: int
    character: str
    font: int
    size: int
    down: int
    across: int
    colour: Colour


class Blob(NamedTuple):
    """A shape around the centre of a cell, ``size`` in units of a cell."""

    row: int
    column: int
    shape: str
    size: int
    down: int
    across: int
    colour: Colour


class Question(NamedTuple):
    """A question with its answer and the cells (row, column) that show it."""

    task: str
    text: str
    answer: str
    cells: tuple[tuple[int, int], ...]


@dataclass
class Scene:
    """What is drawn, and what is known about it.

    Attributes:
        kind: document, table, chart or objects.
        side: cells per side.
        paper: the empty page.
        marks: what lies on it, in drawing order.
        questions: what can be asked.
        symbols: (row, column) -> the words that a cell shows, for training.
        context: (row, column) -> the characters that a reader connects with a cell, for training.
        taken: cells that nothing else may use.
    """

    kind: str
    side: int
    paper: Paper
    marks: list[Panel | Glyph | Blob] = field(default_factory=list)
    questions: list[Question] = field(default_factory=list)
    symbols: dict[tuple[int, int], tuple[str, ...]] = field(default_factory=dict)
    context: dict[tuple[int, int], str] = field(default_factory=dict)
    taken: set[tuple[int, int]] = field(default_factory=set)

    def free(self, top: int, left: int, bottom: int, right: int) -> bool:
        """Whether a block of cells (ends excluded) lies on the page and nobody uses it."""
        if top < 0 or left < 0 or bottom > self.side or right > self.side:
            return False
        block = ((r, c) for r in range(top, bottom) for c in range(left, right))
        return not any(cell in self.taken for cell in block)

    def take(self, top: int, left: int, bottom: int, right: int) -> None:
        """Reserve a block of cells (ends excluded)."""
        self.taken.update((r, c) for r in range(top, bottom) for c in range(left, right))


class Pen(NamedTuple):
    """How a run of text is written."""

    font: int
    size: int
    down: int
    across: int
    colour: Colour


def new_paper(dice: Dice) -> Paper:
    """A page of any lightness but the middle, with a gradient and a texture."""
    dark = dice.chance(0.3)
    level = dice.between(20, 70) if dark else dice.between(175, 235)
    base = tuple(level + dice.between(-18, 18) for _ in range(3))
    slopes = tuple((dice.between(-30, 30), dice.between(-30, 30)) for _ in range(3))
    return Paper(
        dark=dark,
        base=(base[0], base[1], base[2]),
        slopes=slopes,
        texture=dice.below(12),
        texture_gain=dice.between(3, 9),
        texture_offset=(dice.below(1024), dice.below(1024)),
        noise_offset=(dice.below(64), dice.below(64)),
    )


def new_pen(dice: Dice, paper: Paper) -> Pen:
    """A font, a size, a small offset, and an ink that stands out from the paper."""
    low, high = (170, 255) if paper.dark else (0, 95)
    ink = (dice.between(low, high), dice.between(low, high), dice.between(low, high))
    return Pen(dice.below(4), dice.below(3), dice.between(-4, 4), dice.between(-4, 4), ink)


def write(scene: Scene, row: int, column: int, text: str, pen: Pen, known: bool = True) -> None:
    """Write text to the right, a character a cell.

    Args:
        scene: to write on.
        row: of the text.
        column: of its first character.
        text: blanks leave their cell empty.
        pen: how.
        known: whether training is told what the cells show.
    """
    for place, character in enumerate(text, column):
        if character == " ":
            continue
        scene.marks.append(Glyph(row, place, character, *pen))
        if known:
            scene.symbols[row, place] = (character,)
