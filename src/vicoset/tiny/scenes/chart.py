"""Bar charts: an axis with two-digit ticks, bars that end on ticks, a letter below each."""

from __future__ import annotations

from typing import NamedTuple

from vicoset.tiny.draw.atlas import LETTERS
from vicoset.tiny.scenes.rng import Dice
from vicoset.tiny.scenes.scene import UNITS, Colour, Panel, Question, Scene, new_pen, write
from vicoset.tiny.scenes.span import Span

READ = ("What is the value of bar {bar}?", "How high is bar {bar}?")
COMPARE = ("Which bar is taller, {one} or {two}?", "Which is higher, bar {one} or bar {two}?")


class Bar(NamedTuple):
    """A bar: its letter, the tick it ends on, and the cells that show both."""

    name: str
    value: str
    height: int
    label_at: tuple[int, int]
    top_at: tuple[int, int]
    tick_at: tuple[int, int]


def compose(dice: Dice, scene: Scene, span: Span) -> list[Bar]:
    """One chart, ticks on the left, letters below."""
    step = dice.between(1, 3) if span.size >= 20 else dice.between(1, 2)
    ticks = dice.between(4, max(4, min(10, (span.size - 2) // step)))
    if (ticks - 1) * step + 2 > span.size:
        step = 1
    pitch = dice.between(2, 3)
    most = (span.size - 3) // pitch
    bars = dice.between(min(3, most), min(12, most))
    height, width = (ticks - 1) * step + 2, 3 + bars * pitch
    top = span.top + dice.below(span.size - height + 1)
    left = span.left + dice.below(span.size - width + 1)
    pace = dice.pick([p for p in (1, 2, 5, 10) if 10 + p * (ticks - 1) <= 99])
    start = dice.between(10, 99 - pace * (ticks - 1))
    labels = [str(start + pace * k) for k in range(ticks)]
    base = top + (ticks - 1) * step
    ink, below = new_pen(dice, scene.paper), new_pen(dice, scene.paper)
    _lines(dice, scene, [base - k * step for k in range(ticks)], left + 2, left + width, ink.colour)
    for k, label in enumerate(labels):
        write(scene, base - k * step, left, label, ink)
    found = []
    for j, name in enumerate(dice.sample(LETTERS, bars)):
        tick, column = dice.between(1, ticks - 1), left + 3 + j * pitch
        row = base - tick * step
        _bar(dice, scene, row, base, column)
        write(scene, base + 1, column, name, below)
        scene.context[base + 1, column] = scene.context[row, column] = labels[tick]
        found.append(Bar(name, labels[tick], tick, (base + 1, column), (row, column), (row, left)))
    scene.take(max(top - 1, 0), max(left - 1, 0), top + height + 1, left + width + 1)
    return found


def ask(dice: Dice, bars: list[Bar], number: int) -> list[Question]:
    """Values of different bars."""
    return [
        Question(
            "chart",
            dice.pick(READ).format(bar=bar.name),
            bar.value,
            (bar.label_at, bar.top_at, bar.tick_at, (bar.tick_at[0], bar.tick_at[1] + 1)),
        )
        for bar in dice.sample(bars, number)
    ]


def compare(dice: Dice, bars: list[Bar], number: int) -> list[Question]:
    """The taller of two bars, named in either order."""
    pairs = [(a, b) for a in bars for b in bars if a.name != b.name and a.height > b.height]
    questions = []
    for tall, short in dice.sample(pairs, number):
        one, two = dice.shuffled([tall.name, short.name])
        text = dice.pick(COMPARE).format(one=one, two=two)
        cells = (tall.label_at, tall.top_at, short.label_at, short.top_at)
        questions.append(Question("comparison", text, tall.name, cells))
    return questions


def _bar(dice: Dice, scene: Scene, row: int, base: int, column: int) -> None:
    """A filled bar from the middle of its tick's row to the base line."""
    half = dice.between(15, 24)
    middle = column * UNITS + UNITS // 2
    edges = (row * UNITS + UNITS // 2, middle - half, base * UNITS + UNITS // 2, middle + half)
    colour = [dice.between(20, 130) + (60 if scene.paper.dark else 0) for _ in range(3)]
    colour[dice.below(3)] += 65
    scene.marks.append(Panel(edges, (colour[0], colour[1], colour[2]), False))


def _lines(
    dice: Dice, scene: Scene, rows: list[int], left: int, right: int, colour: Colour
) -> None:
    """The axis, the base line and, in most charts, a thin line for every tick."""
    thin = dice.chance(0.7)
    for row in rows:
        middle = row * UNITS + UNITS // 2
        if row == rows[0] or thin:
            weight = 2 if row == rows[0] else 1
            edges = (middle - weight, left * UNITS + UNITS // 2, middle + weight, right * UNITS)
            scene.marks.append(Panel(edges, colour, False))
    top, bottom = rows[-1] * UNITS, rows[0] * UNITS + UNITS // 2
    axis = left * UNITS + UNITS // 2
    scene.marks.append(Panel((top, axis - 2, bottom, axis + 2), colour, False))
