"""The bundled benchmark as a task: items, units, strata, scores and the macro over its tasks."""

import json
from collections import defaultdict
from pathlib import Path

import numpy as np
import pytest

from vicoset.errors import SettingError
from vicoset.evaluate import tasks
from vicoset.evaluate.sample import Sample
from vicoset.evaluate.statistics.study import Study
from vicoset.tiny import bench

PARTS = [f"tinybench-{task}" for task in bench.TASKS]


def samples(name: str, images: int, seed: int) -> list[Sample]:
    task, dice = tasks.task(name), np.random.default_rng(seed)
    found = []
    for item in task.load(None, images=images, model="llava"):
        right = dice.random() < 0.3 + 0.1 * bench.TASKS.index(item.references["task"])
        scored = task.score(item, item.references["answer"] if right else "none of these")
        assert scored.score == right
        found.append(
            Sample(name, item.sample_id, item.unit_id, item.stratum, scored.stats, scored.score)
        )
    return found


def test_names() -> None:
    assert [name for name in tasks.names() if "tiny" in name] == ["tinybench", *PARTS]


@pytest.mark.parametrize("name", ["tinybench", *PARTS])
def test_items(name: str) -> None:
    items = tasks.task(name).load(None, images=2)
    wanted = bench.TASKS if name == "tinybench" else (name.removeprefix("tinybench-"),)
    assert {item.references["task"] for item in items} == set(wanted)
    for item in items:
        image = item.pictures[0].read()
        assert (len(item.pictures), image.mode, image.size) == (1, "RGB", (1008, 1008))
        assert item.limit == 8 and item.prompt and item.unit_id.startswith(f"{item.stratum}/")
        json.dumps(item.references)
    ours = bench.items(images=2, tasks=wanted)
    assert [item.sample_id for item in items] == [one.item_id for one in ours]


def test_choices() -> None:
    task = tasks.task("tinybench-table")
    few = task.load(None, model="llava", images=3, questions=2)
    assert len(few) == 6 and few[0].pictures[0].read().size == (336, 336)
    for wrong in ({"model": "blip"}, {"questions": 3}, {"images": 0}, {"image": 1}):
        with pytest.raises(SettingError, match="allowed"):
            task.load(None, **wrong)
    with pytest.raises(SettingError, match="draws its own"):
        task.load(Path("somewhere"))


def test_macro_over_tasks_with_intervals() -> None:
    """The value is the mean of seven accuracies; the parts are the metrics, number by number."""
    task = tasks.task("tinybench")
    mine = samples("tinybench", 5, 1)
    study = Study.of([task], {"full": mine}, replicates=200)
    per_task = defaultdict(list)
    for sample in mine:
        per_task[sample.sample_id.split("/")[2]].append(sample.score)
    means = {name: float(np.mean(scores)) for name, scores in per_task.items()}
    assert len(means) == 7 and len(set(means.values())) > 3
    assert study.score("tinybench").value[0] == pytest.approx(np.mean(list(means.values())))
    for name, mean in means.items():
        found = study.score("tinybench", name)
        assert found.value[0] == pytest.approx(mean)
        assert found.replicates.std() > 0
    assert study.units["tinybench"] == 4 * 5


def test_parts_agree_with_the_whole() -> None:
    whole = {s.sample_id: s for s in samples("tinybench", 3, 2)}
    part = tasks.task("tinybench-chart")
    items = part.load(None, images=3, model="llava")
    assert {item.sample_id for item in items} == {i for i in whole if "/chart/" in i}
    right = {name: np.float64(0) for name in ("correct:chart", "questions:chart")}
    for item in items:
        for name, value in part.score(item, " ".join(item.references["answer"])).stats.items():
            right[name] += value
    assert right["correct:chart"] == right["questions:chart"] == len(items)
    assert part.aggregate(right) == 1


def test_a_limited_run_averages_what_was_asked() -> None:
    task = tasks.task("tinybench")
    found = task.load(None, images=1)[:4]
    stats = [task.score(item, item.references["answer"]).stats for item in found]
    sums = {name: np.float64(sum(one[name] for one in stats)) for name in stats[0]}
    assert task.aggregate(sums) == 1
