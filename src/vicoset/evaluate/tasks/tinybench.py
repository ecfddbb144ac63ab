"""The bundled benchmark: seven tasks on drawn pictures, together and one by one."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any

import numpy as np

from vicoset.errors import SettingError
from vicoset.evaluate.sample import Metric, Sums
from vicoset.evaluate.task import Item, Picture, Scored
from vicoset.evaluate.tasks.base import Array, Benchmark, rate, ratio
from vicoset.tiny import bench

_LIMIT = 8  # tokens; the longest answer has three and its end


class TinyBench(Benchmark):
    """All seven tasks; the value is the unweighted mean of their accuracies.

    The unit is the picture, and pictures are resampled inside their kind. ``model`` is whose
    resolution is drawn: "qwen" is 1,008 pixels a side and N = 1,296, "llava" 336 and N = 576.
    """

    name = "tinybench"
    draws = True
    limit = _LIMIT
    parts: tuple[str, ...] = bench.TASKS
    choices: Mapping[str, tuple[Any, ...]] = {
        "model": tuple(bench.RESOLUTIONS),
        "images": (bench.IMAGES,),
        "questions": bench.QUESTIONS,
    }
    metrics: Mapping[str, Metric] = {
        task: Metric(rate(f"correct:{task}", f"questions:{task}")) for task in bench.TASKS
    }
    layout = "none; pictures are drawn from seeds, and no path is needed"

    def items(self, path: str | os.PathLike[str] | None, **choices: Any) -> list[Item]:
        """The items, those of one picture together."""
        if path is not None:
            raise SettingError(
                f"{self.name} got path={os.fspath(path)!r}; it draws its own pictures. Leave the "
                f"path out, and choose model, images and questions instead."
            )
        return [self._item(one) for one in bench.items(tasks=self.parts, **choices)]

    def _item(self, one: bench.Item) -> Item:
        picture = Picture(f"{one.model}/{one.unit_id}", one.image)
        return Item(
            sample_id=one.item_id,
            unit_id=one.unit_id,
            stratum=one.kind,
            prompt=one.question,
            references={
                "answer": one.answer,
                "task": one.task,
                "boxes": [list(box) for box in one.boxes],
                "scene": one.scene_digest,
            },
            limit=self.limit,
            pictures=(picture,),
        )

    def score(self, item: Item, raw: str) -> Scored:
        """Equal but for blanks and case; counted for the question's task."""
        right = float(bench.correct(raw, item.references["answer"]))
        task = item.references["task"]
        stats = {f"correct:{one}": right * (one == task) for one in self.parts}
        stats |= {f"questions:{one}": float(one == task) for one in self.parts}
        return Scored(bench.normalised(raw), stats, right)

    def aggregate(self, sums: Sums) -> Array:
        """The mean accuracy of the tasks that were asked; all of them unless a run is limited."""
        right = np.stack([np.asarray(sums[f"correct:{task}"]) for task in self.parts])
        asked = np.stack([np.asarray(sums[f"questions:{task}"]) for task in self.parts])
        return ratio(ratio(right, asked).sum(0), (asked > 0).sum(0))


class TinyBenchPart(TinyBench):
    """The questions of one task alone; the value is their accuracy."""

    metrics: Mapping[str, Metric] = {}

    def __init__(self, task: str) -> None:
        self.name = f"{TinyBench.name}-{task}"
        self.parts = (task,)


PARTS = tuple(TinyBenchPart(task) for task in bench.TASKS)
