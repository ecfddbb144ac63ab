"""What a task offers, and what an item of it is."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple, Protocol

from vicoset.evaluate.sample import TaskStatistics


@dataclass(frozen=True)
class Picture:
    """An image that is read when it is needed.

    Attributes:
        name: where it comes from, for messages: a path, or a file and a row.
        read: gives the image, of Pillow, in RGB.
        source: the file that holds it, part of the data's fingerprint; None for a drawn image.
    """

    name: str
    read: Callable[[], Any]
    source: str | os.PathLike[str] | None = None


@dataclass(frozen=True)
class Item:
    """One question of a task.

    Attributes:
        sample_id: the data's own id, unique within the task.
        unit_id: what is resampled together.
        stratum: within which units are resampled; empty for none.
        prompt: the user's text, whole; images stand before it.
        references: what the scorer needs: answers, options, objects; JSON values.
        limit: most tokens of the answer.
        pictures: the images, in order.
        groups: conjunctions that it is part of, kind to id, as in ``Sample.groups``.
    """

    sample_id: str
    unit_id: str
    stratum: str
    prompt: str
    references: Any
    limit: int
    pictures: tuple[Picture, ...] = ()
    groups: Mapping[str, str] = field(default_factory=dict)


class Scored(NamedTuple):
    """What a scorer says about one answer."""

    normalised: str
    stats: Mapping[str, float]
    score: float


class Task(TaskStatistics, Protocol):
    """A benchmark: what the statistics need to know about it, and how to ask and to score.

    Attributes:
        version: changes when prompts, limits, scorer or drawn data change; part of a run's
            identity.
    """

    version: str

    def load(self, path: str | os.PathLike[str] | None, **choices: Any) -> Sequence[Item]:
        """The items, always in the same order.

        Args:
            path: the data's directory or file; None for a task that draws its own.
            choices: the task's own options, part of a run's identity.
        """
        ...

    def score(self, item: Item, raw: str) -> Scored:
        """What an answer is worth.

        Args:
            item: the question.
            raw: the answer as the model gave it.
        """
        ...
