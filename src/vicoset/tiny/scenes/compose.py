"""Making scenes: which kinds there are, and which of them training may see."""

from __future__ import annotations

import functools
import hashlib
from collections.abc import Callable
from typing import Any

from vicoset.tiny.scenes import chart, clutter, document, objects, table
from vicoset.tiny.scenes.rng import Dice
from vicoset.tiny.scenes.scene import Question, Scene, new_paper
from vicoset.tiny.scenes.span import Span

KINDS = ("document", "table", "chart", "objects")
SPLITS = ("train", "valid", "test")
TASKS_OF = {
    "document": ("document",),
    "table": ("table",),
    "chart": ("chart", "comparison"),
    "objects": ("presence", "counting", "relation"),
}


def split_of(scene: Scene) -> str:
    """The split that a picture belongs to, by a hash of what is drawn.

    A picture has exactly one, so no generator of one split can ever draw a picture of another.
    """
    text = repr((scene.kind, scene.side, scene.paper, scene.marks))
    first = hashlib.sha256(text.encode()).digest()[0]
    return "test" if first < 32 else "valid" if first < 48 else "train"


def make_scene(
    name: str,
    kind: str,
    side: int,
    split: str,
    asked: dict[str, int],
    size: tuple[int, int] | None = None,
    crowd: tuple[int, int] = document.CROWD,
) -> Scene:
    """The scene of a name.

    Args:
        name: seeds everything.
        kind: one of ``KINDS``.
        side: cells per side.
        split: one of ``SPLITS``; scenes of other splits are drawn again.
        asked: questions wanted per task; a scene that has fewer gives fewer.
        size: smallest and largest side of the square that holds the content; the page by default.
        crowd: fewest and most entries on a document of 36 x 36 cells.
    """
    for attempt in range(10_000):
        dice = Dice(f"{name}/{attempt}")
        scene = Scene(kind, side, new_paper(dice))
        extent = side if size is None else dice.between(*size)
        span = Span(dice.below(side - extent + 1), dice.below(side - extent + 1), extent)
        clutter.panels(dice, scene)
        facts = _compose(dice, scene, span, crowd)
        clutter.words(dice, scene, dice.between(4, 12) / 100, numbers=kind != "document")
        if split_of(scene) == split:
            scene.questions = _ask(Dice(f"{name}/ask"), kind, facts, asked)
            return scene
    raise AssertionError(f"no {split} scene in 10,000 draws of {name}")


def _compose(dice: Dice, scene: Scene, span: Span, crowd: tuple[int, int]) -> list[Any]:
    makers: dict[str, Callable[[Dice, Scene, Span], list[Any]]] = {
        "document": functools.partial(document.compose, crowd=crowd),
        "table": table.compose,
        "chart": chart.compose,
        "objects": objects.compose,
    }
    return makers[scene.kind](dice, scene, span)


def _ask(dice: Dice, kind: str, facts: list[Any], asked: dict[str, int]) -> list[Question]:
    askers: dict[str, Callable[[Dice, list[Any], int], list[Question]]] = {
        "document": document.ask,
        "table": table.ask,
        "chart": chart.ask,
        "comparison": chart.compare,
        "presence": objects.presence,
        "counting": objects.counting,
        "relation": objects.relation,
    }
    questions: list[Question] = []
    for task in TASKS_OF[kind]:
        questions += askers[task](dice, facts, asked.get(task, 0))
    return questions
