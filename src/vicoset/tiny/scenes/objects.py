"""Coloured shapes: is one there, how many, and where beside another."""

from __future__ import annotations

from typing import NamedTuple

from vicoset.tiny.draw.atlas import SHAPES
from vicoset.tiny.scenes.rng import Dice
from vicoset.tiny.scenes.scene import Blob, Colour, Question, Scene
from vicoset.tiny.scenes.span import Span

COLOURS: dict[str, Colour] = {
    "red": (215, 30, 35),
    "orange": (245, 140, 20),
    "yellow": (235, 220, 30),
    "green": (35, 160, 60),
    "cyan": (40, 200, 215),
    "blue": (35, 70, 215),
    "purple": (135, 45, 170),
    "pink": (245, 130, 190),
}
KINDS = tuple((colour, shape) for colour in COLOURS for shape in SHAPES)
PRESENCE = ("Is there a {0} {1}?", "Can you see a {0} {1}?")
COUNTING = ("How many {0} {1} are there?", "Count the {0} {1}.")
RELATION = "Is the {0} {1} {2} the {3} {4}?"
SIDES = ("left of", "right of", "above", "below")
MOST = 5  # of one kind
APART = 3  # cells between two objects before their order is asked for


class Thing(NamedTuple):
    """An object: its colour, its shape, its cell."""

    colour: str
    shape: str
    row: int
    column: int


def compose(dice: Dice, scene: Scene, span: Span) -> list[Thing]:
    """Objects in groups of one kind, and singles; never two in touching cells."""
    room = max(4, span.size * span.size // 20)
    groups = dice.shuffled(KINDS)[: dice.between(6, 11)]
    sizes = [1, 1, 1, 1] + [dice.between(1, MOST) for _ in groups[4:]]
    things: list[Thing] = []
    for (colour, shape), size in zip(groups, sizes, strict=False):
        for _ in range(size):
            if len(things) >= room:
                break
            place = _place(dice, scene, span)
            if place is not None:
                things.append(Thing(colour, shape, *place))
    for thing in things:
        wobble = [dice.between(-14, 14) for _ in range(3)]
        tint = [max(0, min(255, c + w)) for c, w in zip(COLOURS[thing.colour], wobble, strict=True)]
        down, across = dice.between(-6, 6), dice.between(-6, 6)
        size = dice.between(44, 74)
        ink = (tint[0], tint[1], tint[2])
        scene.marks.append(Blob(thing.row, thing.column, thing.shape, size, down, across, ink))
        scene.symbols[thing.row, thing.column] = (thing.colour, thing.shape)
    return things


def presence(dice: Dice, things: list[Thing], number: int) -> list[Question]:
    """As many yes as no; a no names a colour and a shape that are there, but not together."""
    kinds = {(t.colour, t.shape) for t in things}
    colours, shapes = {t.colour for t in things}, {t.shape for t in things}
    absent = [k for k in KINDS if k not in kinds and k[0] in colours and k[1] in shapes]
    questions = []
    yes = dice.sample(sorted(kinds), number // 2)
    for kind in dice.shuffled([*yes, *dice.sample(absent, len(yes))]):
        cells = tuple((t.row, t.column) for t in things if (t.colour, t.shape) == kind)
        text = dice.pick(PRESENCE).format(*kind)
        questions.append(Question("presence", text, "yes" if kind in kinds else "no", cells))
    return questions


def counting(dice: Dice, things: list[Thing], number: int) -> list[Question]:
    """Counts of different kinds, every count as likely as the page allows; 0 is one of them."""
    by_count: dict[int, list[tuple[str, str]]] = {}
    colours, shapes = {t.colour for t in things}, {t.shape for t in things}
    for kind in KINDS:
        count = sum((t.colour, t.shape) == kind for t in things)
        if count or (kind[0] in colours and kind[1] in shapes):
            by_count.setdefault(count, []).append(kind)
    questions = []
    for _ in range(number):
        if not by_count:
            break
        count = dice.pick(sorted(by_count))
        kind = by_count[count].pop(dice.below(len(by_count[count])))
        by_count = {c: kinds for c, kinds in by_count.items() if kinds}
        cells = tuple((t.row, t.column) for t in things if (t.colour, t.shape) == kind)
        text = dice.pick(COUNTING).format(kind[0], plural(kind[1]))
        questions.append(Question("counting", text, str(count), cells))
    return questions


def relation(dice: Dice, things: list[Thing], number: int) -> list[Question]:
    """Order of two objects that are each the only one of their kind; as many yes as no."""
    kinds = [(t.colour, t.shape) for t in things]
    single = [t for t in things if kinds.count((t.colour, t.shape)) == 1]
    pairs = dice.shuffled([(a, b) for a in single for b in single if a != b])
    questions: list[Question] = []
    for one, two in pairs:
        side = dice.pick(SIDES)
        gap = two.column - one.column if side in SIDES[:2] else two.row - one.row
        gap = -gap if side in ("right of", "below") else gap
        want = "yes" if len(questions) % 2 == 0 else "no"
        if len(questions) < number // 2 * 2 and gap * (1 if want == "yes" else -1) >= APART:
            text = RELATION.format(one.colour, one.shape, side, two.colour, two.shape)
            cells = ((one.row, one.column), (two.row, two.column))
            questions.append(Question("relation", text, want, cells))
    return dice.shuffled(questions[: len(questions) // 2 * 2])


def plural(shape: str) -> str:
    """The plural of a shape's name."""
    return shape + ("es" if shape.endswith("s") else "s")


def _place(dice: Dice, scene: Scene, span: Span) -> tuple[int, int] | None:
    for _ in range(40):
        row, column = span.top + dice.below(span.size), span.left + dice.below(span.size)
        if scene.free(row, column, row + 1, column + 1):
            near = (max(row - 1, 0), max(column - 1, 0))
            scene.take(*near, min(row + 2, scene.side), min(column + 2, scene.side))
            return row, column
    return None
