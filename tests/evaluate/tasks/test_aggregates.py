"""Every task's aggregate is its native metric: compared with plain loops over the answers."""

from collections import defaultdict
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.evaluate import data
from vicoset.errors import ShapeError
from vicoset.evaluate import tasks
from vicoset.evaluate.task import Item, Scored

Answered = list[tuple[Item, Scored]]


def answered(task: Any, items: Any, seed: int = 0) -> Answered:
    said = data.answers(items, seed)
    return [(item, task.score(item, raw)) for item, raw in zip(items, said, strict=True)]


def sums_of(found: Answered, strata: list[str] | None = None) -> dict[str, Any]:
    """Sums of statistics and of groups that are right throughout; a last axis for strata."""
    if strata is not None:
        parts = [sums_of([pair for pair in found if pair[0].stratum == name]) for name in strata]
        return {name: np.stack([part[name] for part in parts], axis=-1) for name in parts[0]}
    sums: dict[str, float] = defaultdict(float)
    members: dict[tuple[str, str], list[float]] = defaultdict(list)
    for item, scored in found:
        for name, value in scored.stats.items():
            sums[name] += value
        for kind, group in item.groups.items():
            members[kind, group].append(scored.score)
    for (kind, _), scores in members.items():
        sums[f"groups:{kind}"] += 1
        sums[f"all:{kind}"] += min(scores) == 1
    return {name: np.float64(value) for name, value in sums.items()}


@pytest.mark.parametrize("name", ["textvqa", "chartqa", "docvqa", "gqa", "pope", "amber"])
def test_mean_of_scores(name: str, tmp_path: Path) -> None:
    task = tasks.task(name)
    found = answered(task, task.load(getattr(data, name)(tmp_path)))
    scores = [scored.score for _, scored in found]
    assert 0 < np.mean(scores) < 1
    assert task.aggregate(sums_of(found)) == pytest.approx(np.mean(scores), abs=1e-15)


def mme_by_hand(found: Answered, cognition: bool | None) -> float:
    pairs: dict[str, dict[str, list[float]]] = defaultdict(lambda: defaultdict(list))
    for item, scored in found:
        pairs[item.stratum][item.unit_id].append(scored.score)
    total = 0.0
    for category in sorted(pairs):
        if cognition is None or (category[3:] in data.COGNITION) == cognition:
            points = [100 * np.mean(s) + 100 * (sum(s) == 2) for s in pairs[category].values()]
            total += sum(points) / len(points)
    return total


def test_mme() -> None:
    task = tasks.task("mme")
    assert (task.maximum, task.stratified) == (2800, True)


@pytest.mark.parametrize("seed", range(5))
def test_mme_by_hand(seed: int, tmp_path: Path) -> None:
    task = tasks.task("mme")
    found = answered(task, task.load(data.mme(tmp_path, pairs=7)), seed)
    sums = sums_of(found, sorted({item.stratum for item, _ in found}))
    perception = task.metrics["perception"].aggregate(sums)
    cognition = task.metrics["cognition"].aggregate(sums)
    assert perception == mme_by_hand(found, False) and cognition == mme_by_hand(found, True)
    assert task.aggregate(sums) == perception + cognition != 0


def test_mme_refuses_half_pairs(tmp_path: Path) -> None:
    task = tasks.task("mme")
    found = answered(task, task.load(data.mme(tmp_path)))[:-1]
    with pytest.raises(ShapeError, match="29 questions and 15 pairs"):
        task.aggregate(sums_of(found, sorted({item.stratum for item, _ in found})))


def test_mmbench_is_circular(tmp_path: Path) -> None:
    task = tasks.task("mmbench")
    items = task.load(data.mmbench(tmp_path))
    said = [item.references["answer"] for item in items]
    said[4] = "E"  # one rotation of one question of three
    found = [(item, task.score(item, raw)) for item, raw in zip(items, said, strict=True)]
    assert task.aggregate(sums_of(found)) == pytest.approx(2 / 3)
    assert task.metrics["rows"].aggregate(sums_of(found)) == pytest.approx(8 / 9)
    alone = task.load(tmp_path, circular=False)
    found = [(item, task.score(item, raw)) for item, raw in zip(alone, said, strict=True)]
    assert task.aggregate(sums_of(found)) == pytest.approx(8 / 9)
    assert [item.unit_id for item in alone] == [item.unit_id for item in items]


def test_hallusionbench(tmp_path: Path) -> None:
    task = tasks.task("hallusionbench")
    items = task.load(data.hallusionbench(tmp_path))
    said = [item.references for item in items]
    wrong = {"VD_chart_0_0_1", "VD_chart_0_1_1"}  # two figures of one question
    said = [
        "no" if i.sample_id in wrong and r == "yes" else r for i, r in zip(items, said, strict=True)
    ]
    said = [
        "yes" if i.sample_id == "VD_chart_0_1_1" else r for i, r in zip(items, said, strict=True)
    ]
    found = [(item, task.score(item, raw)) for item, raw in zip(items, said, strict=True)]
    sums = sums_of(found)
    assert task.aggregate(sums) == 14 / 16
    assert task.metrics["q_acc"].aggregate(sums) == 7 / 8
    assert task.metrics["f_acc"].aggregate(sums) == 6 / 8


def test_detection(tmp_path: Path) -> None:
    """Positive is yes in POPE and no in AMBER; an answer of neither counts as AMBER's miss only."""
    pope, amber = tasks.task("pope"), tasks.task("amber")
    items = pope.load(data.pope(tmp_path / "pope"))[:4]  # yes, no, yes, no
    said = ["yes", "yes", "well", "no"]
    found = [(i, pope.score(i, a)) for i, a in zip(items, said, strict=True)]
    value = {name: float(m.aggregate(sums_of(found))) for name, m in pope.metrics.items()}
    assert value == pytest.approx({"precision": 0.5, "recall": 1, "f1": 2 / 3, "yes": 0.5})
    items = amber.load(data.amber(tmp_path / "amber"))[:4]
    said = ["Yes.", "No!", "no", "maybe"]
    found = [(i, amber.score(i, a)) for i, a in zip(items, said, strict=True)]
    value = {name: float(m.aggregate(sums_of(found))) for name, m in amber.metrics.items()}
    assert value == pytest.approx({"precision": 0.5, "recall": 0.5, "f1": 0.5, "yes": 0.25})


def test_pope_parsers(tmp_path: Path) -> None:
    task = tasks.task("pope")
    data.pope(tmp_path)
    verdicts = {}
    for parser in ("lmms", "llava", "vlmevalkit"):
        item = task.load(tmp_path, parser=parser)[0]
        said = ("yes", "Yes.", "Yes, there is", "There is a dog", "yes and no")
        verdicts[parser] = [task.score(item, raw).score for raw in said]
    assert verdicts == {
        "lmms": [1, 0, 0, 0, 0],
        "llava": [1, 1, 1, 1, 0],
        "vlmevalkit": [1, 1, 1, 0, 0],
    }


def test_chair(tmp_path: Path) -> None:
    """Objects: {person}, {cat, dog, person}, {dog, person}."""
    task = tasks.task("chair")
    items = task.load(data.coco(tmp_path))
    said = ["A man with two dogs.", "A kitten sits.", "Nothing to see."]
    found = [(item, task.score(item, raw)) for item, raw in zip(items, said, strict=True)]
    sums = sums_of(found)
    assert not task.higher_is_better and task.aggregate(sums) == 1 / 3
    assert task.metrics["chair_i"].aggregate(sums) == 1 / 3
    assert task.metrics["recall"].aggregate(sums) == 2 / 6
    assert task.metrics["length"].aggregate(sums) == (6 + 4 + 4) / 3
    assert found[0][1].normalised == "person, dog"


@pytest.mark.parametrize("name", tasks.names())
def test_leading_axes(name: str, tmp_path: Path) -> None:
    """Replicates and methods in leading axes give what each gives alone."""
    task = tasks.task(name)
    if name.startswith("tinybench"):
        items = task.load(None, images=2)
    else:
        items = task.load((data.coco if name == "chair" else getattr(data, name))(tmp_path))
    strata = sorted({item.stratum for item in items}) if task.stratified else None
    alone = [sums_of(answered(task, items, seed), strata) for seed in range(6)]
    stacked = {
        key: np.stack([part[key] for part in alone]).reshape(2, 3, *np.shape(alone[0][key]))
        for key in alone[0]
    }
    for metric in (task, *task.metrics.values()):
        values = metric.aggregate(stacked)
        assert values.shape == (2, 3)
        assert values.ravel().tolist() == [float(metric.aggregate(part)) for part in alone]


@pytest.mark.parametrize("name", tasks.names())
def test_nothing_drawn_is_no_crash(name: str) -> None:
    """A metric without questions is 0, not a warning."""
    task = tasks.task(name)
    sums: dict[str, Any] = defaultdict(lambda: np.zeros((2, 1) if task.stratified else 2))
    for metric in (task, *task.metrics.values()):
        assert metric.aggregate(sums).tolist() == [0, 0]
