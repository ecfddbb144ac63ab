"""The test items, always the same ones: seeds by name, pictures of the split "test" alone."""

from __future__ import annotations

import functools
import hashlib
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from vicoset.errors import SettingError
from vicoset.tiny.bench.evidence import Box, evidence_boxes
from vicoset.tiny.draw.canvas import draw
from vicoset.tiny.scenes.compose import KINDS, TASKS_OF, make_scene
from vicoset.tiny.scenes.scene import Question, Scene

TASKS = tuple(task for kind in KINDS for task in TASKS_OF[kind])
BALANCED = ("presence", "relation")  # as many yes as no on every picture
IMAGES = 200  # pictures per kind
QUESTIONS = (4, 2)  # per picture and task
EDITION = "tinybench/1"  # seeds every picture


class Resolution(NamedTuple):
    """A grid of cells; one cell is one visual token.

    Attributes:
        side: cells per side.
        cell: pixels per cell side.
    """

    side: int
    cell: int

    @property
    def pixels(self) -> int:
        """Per side of the picture."""
        return self.side * self.cell

    @property
    def tokens(self) -> int:
        """N."""
        return self.side * self.side


RESOLUTIONS = {"qwen": Resolution(36, 28), "llava": Resolution(24, 14)}


@dataclass(frozen=True)
class Item:
    """A question about a picture.

    Attributes:
        item_id: unique within a resolution.
        unit_id: of the picture, which all its questions share.
        model: whose resolution it has, a key of ``RESOLUTIONS``.
        kind: of the picture.
        task: of the question.
        question: its text.
        answer: the reference.
        boxes: pixels of the evidence; empty where the answer is that something is not there.
        scene_digest: 16 hex digits of what is drawn.
    """

    item_id: str
    unit_id: str
    model: str
    kind: str
    task: str
    question: str
    answer: str
    boxes: tuple[Box, ...]
    scene_digest: str

    @property
    def resolution(self) -> Resolution:
        """Of the picture."""
        return RESOLUTIONS[self.model]

    @property
    def tokens(self) -> tuple[int, ...]:
        """Index of the visual token of every box, in raster order of the grid."""
        side, cell = self.resolution
        return tuple(row * side + column for row, column in (b.cell(cell) for b in self.boxes))

    def pixels(self) -> NDArray[np.uint8]:
        """The picture [pixels, pixels, 3], drawn when it is asked for."""
        return pixels(self.model, self.unit_id)

    def image(self) -> Any:
        """The picture as an image of Pillow, RGB."""
        from PIL import Image

        return Image.fromarray(self.pixels())


def items(
    model: str = "qwen",
    images: int = IMAGES,
    questions: int = QUESTIONS[0],
    tasks: Sequence[str] = TASKS,
) -> list[Item]:
    """The items, a picture of each kind after the other; those of one picture stand together.

    Fewer images, questions or tasks give some of the same items, with the same ids.

    Args:
        model: a key of ``RESOLUTIONS``.
        images: pictures per kind.
        questions: per picture and task, one of ``QUESTIONS``; a picture that has fewer gives fewer.
        tasks: some of ``TASKS``.
    """
    _check(model, images, questions, tasks)
    kinds = [kind for kind in KINDS if set(TASKS_OF[kind]) & set(tasks)]
    found: list[Item] = []
    for number in range(images):
        for kind in kinds:
            here = picture_items(model, f"{kind}/{number:04d}", questions)
            found += [item for item in here if item.task in tasks]
    return found


@functools.lru_cache(maxsize=64)
def scene_of(model: str, unit_id: str) -> Scene:
    """The scene of a picture; it is shared, so nobody may change it.

    A scene with too few questions of a task (bars of one height, no two single objects) is drawn
    again, so that every picture counts for every task of its kind.

    Args:
        model: a key of ``RESOLUTIONS``.
        unit_id: of the picture.
    """
    kind, side = unit_id.split("/")[0], RESOLUTIONS[model].side
    asked = dict.fromkeys(TASKS, QUESTIONS[0])
    for attempt in range(1_000):
        scene = make_scene(f"{EDITION}/{model}/{unit_id}/{attempt}", kind, side, "test", asked)
        counts = Counter(question.task for question in scene.questions)
        if all(counts[task] >= QUESTIONS[1] for task in TASKS_OF[kind]):
            return scene
    raise AssertionError(f"no scene of {unit_id} with {QUESTIONS[1]} questions of every task")


@functools.lru_cache(maxsize=8)
def pixels(model: str, unit_id: str) -> NDArray[np.uint8]:
    """The picture [pixels, pixels, 3] of a unit, read-only.

    Args:
        model: a key of ``RESOLUTIONS``.
        unit_id: of the picture.
    """
    found = draw(scene_of(model, unit_id), RESOLUTIONS[model].cell)
    found.flags.writeable = False
    return found


def picture_items(model: str, unit: str, questions: int = QUESTIONS[0]) -> list[Item]:
    """The items of one picture.

    Args:
        model: a key of ``RESOLUTIONS``.
        unit: of the picture, such as "chart/0012".
        questions: per task, as in :func:`items`.
    """
    kind = unit.split("/")[0]
    scene = scene_of(model, unit)
    digest = _digest(scene)
    found = []
    for task in TASKS_OF[kind]:
        asked = [(k, q) for k, q in enumerate(q for q in scene.questions if q.task == task)]
        for k, question in _first(asked, questions, balanced=task in BALANCED):
            boxes = evidence_boxes(scene, question.cells, RESOLUTIONS[model].cell)
            name = f"{unit}/{task}/{k}"
            text, answer = question.text, question.answer
            found.append(Item(name, unit, model, kind, task, text, answer, boxes, digest))
    return found


def _first(
    asked: list[tuple[int, Question]], number: int, balanced: bool
) -> list[tuple[int, Question]]:
    """The first questions; where answers are balanced, as many of each."""
    if not balanced:
        return asked[:number]
    halves = [[one for one in asked if one[1].answer == word] for word in ("yes", "no")]
    each = min(number // 2, *map(len, halves))
    return sorted(halves[0][:each] + halves[1][:each])


def _digest(scene: Scene) -> str:
    text = repr((scene.kind, scene.side, scene.paper, scene.marks))
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def _check(model: str, images: object, questions: object, tasks: Sequence[str]) -> None:
    if model not in RESOLUTIONS:
        raise SettingError(
            f"tinybench got model={model!r}; allowed are {', '.join(map(repr, RESOLUTIONS))}. "
            "'qwen' is 1,008 pixels a side, 'llava' 336."
        )
    if isinstance(images, bool) or not isinstance(images, int) or not 1 <= images <= 9_999:
        raise SettingError(
            f"tinybench got images={images!r}; allowed are whole numbers from 1 to 9999. The "
            f"default is {IMAGES} pictures per kind."
        )
    if questions not in QUESTIONS:
        raise SettingError(
            f"tinybench got questions={questions!r}; allowed are {QUESTIONS[1]} and "
            f"{QUESTIONS[0]} per picture and task."
        )
    odd = [task for task in tasks if task not in TASKS]
    if odd or not tasks:
        raise SettingError(
            f"tinybench got tasks={list(tasks)!r}; allowed are {', '.join(TASKS)}, one or more."
        )
