"""The test items of the bundled benchmark: drawn pictures, questions, evidence, scorer."""

from vicoset.tiny.bench.evidence import Box
from vicoset.tiny.bench.item import (
    IMAGES,
    QUESTIONS,
    RESOLUTIONS,
    TASKS,
    Item,
    Resolution,
    items,
    picture_items,
)
from vicoset.tiny.bench.score import correct, normalised
from vicoset.tiny.scenes.compose import KINDS

__all__ = [
    "IMAGES",
    "KINDS",
    "QUESTIONS",
    "RESOLUTIONS",
    "TASKS",
    "Box",
    "Item",
    "Resolution",
    "correct",
    "items",
    "normalised",
    "picture_items",
]
