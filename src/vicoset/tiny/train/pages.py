"""Batches for training: pictures of one grid, what their cells show, and questions in slots."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from vicoset.tiny import words
from vicoset.tiny.bench.evidence import is_bar
from vicoset.tiny.bench.item import RESOLUTIONS
from vicoset.tiny.draw.atlas import LETTERS, SHAPES
from vicoset.tiny.draw.canvas import draw
from vicoset.tiny.scenes.compose import KINDS, TASKS_OF, make_scene
from vicoset.tiny.scenes.objects import plural
from vicoset.tiny.scenes.rng import Dice
from vicoset.tiny.scenes.scene import UNITS, Glyph, Panel, Question, Scene

TASKS = tuple(task for kind in KINDS for task in TASKS_OF[kind])
BLANK, CLUTTER, BAR_TOP, BAR = range(len(words.VOCABULARY), len(words.VOCABULARY) + 4)
SIGNS = len(words.VOCABULARY) + 4  # what a cell can show: words, and the four above
NOTHING = -100
HEAD = {"qwen": (words.START, "user", "\n", words.VISION[0]), "llava": ("USER:", words.SPACE)}
FOOT = {"qwen": (words.VISION[1],), "llava": ("\n",)}
TAIL = {
    "qwen": (words.END, "\n", words.START, "assistant", "\n"),
    "llava": (words.SPACE, "ASSISTANT:"),
}
STOP = {"qwen": words.END, "llava": "</s>"}
SHAPE_WORDS = {words.number_of(words.SPACE + w) for s in SHAPES for w in (s, plural(s))}
LETTER_WORDS = {words.number_of(letter) for letter in LETTERS}
SLOT = {"qwen": 19, "llava": 16}  # the longest question, the tail and the longest answer


@dataclass(frozen=True)
class Sheet:
    """What the pictures of a phase are like.

    Attributes:
        side: cells per side.
        pictures: of a batch.
        slots: questions per picture.
        crowd: fewest and most entries on a document of 36 x 36 cells.
        mix: how often each kind of ``KINDS`` comes, in parts of their sum.
        pixels: whether pictures are drawn; without, cells are given by what they show.
    """

    side: int
    pictures: int
    slots: int
    crowd: tuple[int, int] = (20, 42)
    mix: tuple[int, ...] = (3, 2, 3, 4)
    pixels: bool = True


class Batch(NamedTuple):
    """A batch.

    Attributes:
        tokens: [B, Q, S] of the slots: question, the template's tail, answer.
        labels: [B, Q, S] the next token where an answer is being given, else ``NOTHING``.
        tasks: [B, Q] index in ``TASKS``.
        context: [B, N, 2] words that a reader connects with a cell, ``NOTHING`` where none.
        evidence: [B, Q, S, 5] cells that a token is about, ``NOTHING`` where there are fewer.
        signs: [B, N, 2] what the cells show, ``SIGNS`` where nothing more.
        offsets: [B, 2] row and column of the picture on the page that the model knows.
        pages: [B, G * cell, G * cell, 3] uint8; empty without pixels.
    """

    tokens: Tensor
    labels: Tensor
    tasks: Tensor
    context: Tensor
    evidence: Tensor
    signs: Tensor
    offsets: Tensor
    pages: Tensor


def make_batch(name: str, family: str, sheet: Sheet, split: str = "train") -> Batch:
    """The batch of a name.

    Args:
        name: seeds everything.
        family: "qwen" or "llava".
        sheet: what the pictures are like.
        split: of the scenes.
    """
    page, dice = RESOLUTIONS[family], Dice(f"{name}/batch")
    rows = []
    for number in range(sheet.pictures):
        kind = KINDS[_weighted(dice, sheet.mix)]
        scene = _scene(f"{name}/{number}", kind, sheet, split)
        asked = _fill(dice, scene.questions, sheet.slots)
        slots = [(*slot_of(one, family), _evidence(one, family, sheet.side)) for one in asked]
        room = page.side - sheet.side
        offset = (dice.between(0, room), dice.between(0, room))
        pixels = draw(scene, page.cell) if sheet.pixels else np.zeros(0, np.uint8)
        rows.append((slots, signs_of(scene), offset, pixels, context_of(scene)))
    return Batch(
        torch.tensor([[slot[0] for slot in row[0]] for row in rows]),
        torch.tensor([[slot[1] for slot in row[0]] for row in rows]),
        torch.tensor([[slot[2] for slot in row[0]] for row in rows]),
        torch.from_numpy(np.stack([row[4] for row in rows])),
        torch.tensor([[slot[3] for slot in row[0]] for row in rows]),
        torch.from_numpy(np.stack([row[1] for row in rows])),
        torch.tensor([row[2] for row in rows]),
        torch.from_numpy(np.stack([row[3] for row in rows])),
    )


def signs_of(scene: Scene) -> np.ndarray[tuple[int, int], np.dtype[np.int64]]:
    """[side * side, 2] what every cell shows.

    Args:
        scene: any.
    """
    found = np.full((scene.side, scene.side, 2), SIGNS, np.int64)
    found[:, :, 0] = BLANK
    for mark in scene.marks:
        if isinstance(mark, Glyph):
            found[mark.row, mark.column, 0] = CLUTTER
        elif isinstance(mark, Panel) and is_bar(mark):
            top, column = mark.edges[0] // UNITS, mark.edges[1] // UNITS
            found[top : mark.edges[2] // UNITS + 1, column, 0] = BAR
            found[top, column, 0] = BAR_TOP
    for (row, column), shown in scene.symbols.items():
        numbers = [words.number_of(s if len(s) == 1 else words.SPACE + s) for s in shown]
        found[row, column, : len(numbers)] = numbers
    return found.reshape(-1, 2)


def context_of(scene: Scene) -> np.ndarray[tuple[int, int], np.dtype[np.int64]]:
    """[side * side, 2] the words that a reader connects with every cell.

    Args:
        scene: any.
    """
    found = np.full((scene.side, scene.side, 2), NOTHING, np.int64)
    for (row, column), text in scene.context.items():
        found[row, column, : len(text)] = [words.number_of(character) for character in text]
    return found.reshape(-1, 2)


def _evidence(question: Question, family: str, side: int) -> list[list[int]]:
    """For every token of a slot the cells it is about.

    A character of the answer is about the cell it is read from, the mention of an object or a bar
    about where that is.
    """
    cells = [row * side + column for row, column in question.cells]
    asked = words.encode(question.text)
    first = len(asked) + len(TAIL[family]) - 1  # from here on the answer is being given
    found: dict[int, list[int]] = {}
    shapes = [place for place, word in enumerate(asked) if word in SHAPE_WORDS]
    if question.task in ("document", "table"):
        found = {first + place: [cell] for place, cell in enumerate(cells[2:])}
    elif question.task == "chart":
        found = {first: cells[:1], first + 1: cells[:1]}
    elif question.task == "comparison":
        names = [place for place, word in enumerate(asked) if word in LETTER_WORDS]
        tall, short = cells[0], cells[2]
        if asked[names[0]] != words.number_of(question.answer):
            tall, short = short, tall
        found = {names[0]: [tall], names[1]: [short], first: cells[:1]}
    elif question.task == "relation":
        found = {shapes[0]: cells[:1], shapes[1]: cells[1:]}
    elif cells:
        found = {shapes[0]: cells, first: cells}
    rows = [found.get(place, [])[:5] for place in range(SLOT[family])]
    return [row + [NOTHING] * (5 - len(row)) for row in rows]


def cells_at(side: int, offsets: Tensor) -> tuple[Tensor, Tensor]:
    """[B, side * side] rows, and columns, of a picture's cells on the page that the model knows.

    Args:
        side: cells per side of the picture.
        offsets: [B, 2] rows above and columns before it.
    """
    cells = torch.arange(side * side)
    return cells // side + offsets[:, :1], cells % side + offsets[:, 1:]


def _scene(name: str, kind: str, sheet: Sheet, split: str) -> Scene:
    """A scene with questions; one without any is drawn again."""
    each = -(-sheet.slots // len(TASKS_OF[kind]))
    asked = dict.fromkeys(TASKS_OF[kind], each + each % 2)
    for attempt in range(1_000):
        scene = make_scene(f"{name}/{attempt}", kind, sheet.side, split, asked, crowd=sheet.crowd)
        if scene.questions:
            return scene
    raise AssertionError(f"no scene of {kind} with a question on {sheet.side} cells a side")


def _fill(dice: Dice, questions: list[Question], slots: int) -> list[Question]:
    """As many questions as there are slots: all in random order, then again from the start."""
    order = dice.shuffled(questions)
    return [order[k % len(order)] for k in range(slots)]


def slot_of(question: Question, family: str) -> tuple[list[int], list[int], int]:
    """Tokens, labels and task of a question.

    Args:
        question: any.
        family: whose template it stands in.
    """
    asked = words.encode(question.text) + [words.number_of(word) for word in TAIL[family]]
    answer = words.encode(question.answer)
    tokens = asked + answer
    labels = [NOTHING] * (len(asked) - 1) + answer + [words.number_of(STOP[family])]
    room = SLOT[family] - len(tokens)
    pad = words.number_of(words.PAD)
    return tokens + [pad] * room, labels + [NOTHING] * room, TASKS.index(question.task)


def _weighted(dice: Dice, mix: tuple[int, ...]) -> int:
    left = dice.below(sum(mix))
    for number, share in enumerate(mix):
        left -= share
        if left < 0:
            return number
    raise AssertionError("a draw below the sum of the shares falls on one of them")
