"""The items: the same everywhere, enough of them, balanced, no two alike, all of the test split."""

import hashlib
import itertools
import json
import os
import subprocess
import sys
from collections import Counter, defaultdict

import numpy as np
import pytest

from tests.tiny.bench import make_golden
from vicoset.errors import SettingError
from vicoset.tiny import bench
from vicoset.tiny.bench import item as source
from vicoset.tiny.scenes.compose import split_of

GOLDEN = json.loads(make_golden.PATH.read_text(encoding="utf-8"))
AGAIN = "Regenerate on purpose only: python -m tests.tiny.bench.make_golden"


def by_task(items: list[bench.Item]) -> dict[str, list[bench.Item]]:
    found = defaultdict(list)
    for item in items:
        found[item.task].append(item)
    return found


def test_golden_items(items: list[bench.Item], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(make_golden, "all_of", lambda model: items)
    model = items[0].model
    assert make_golden.digest_of_items(model) == GOLDEN[model]["items"], AGAIN


@pytest.mark.parametrize("model", bench.RESOLUTIONS)
@pytest.mark.parametrize("unit", make_golden.PICTURES)
def test_golden_pictures(model: str, unit: str) -> None:
    assert make_golden.digest_of_picture(model, unit) == GOLDEN[model]["pictures"][unit], AGAIN


def test_another_process_draws_the_same() -> None:
    """With other hash seeds and another order of questions: nothing depends on what came before."""
    code = (
        "import hashlib; from vicoset.tiny import bench\n"
        "found = bench.items('llava', images=3)[::-1]\n"
        "print(hashlib.sha256(b''.join(i.pixels().tobytes() for i in found)).hexdigest())"
    )
    here = hashlib.sha256(
        b"".join(item.pixels().tobytes() for item in bench.items("llava", images=3)[::-1])
    ).hexdigest()
    environment = {**os.environ, "PYTHONHASHSEED": "77"}
    ran = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, env=environment
    )
    assert (ran.stdout.strip(), ran.stderr) == (here, "")


def test_at_least_200_pictures_for_every_task(items: list[bench.Item]) -> None:
    for task, mine in by_task(items).items():
        per_picture = Counter(item.unit_id for item in mine)
        assert len(per_picture) == bench.IMAGES >= 200, task
        assert min(per_picture.values()) >= 2 and max(per_picture.values()) == 4, task
        assert len(mine) >= 700, task
    assert set(by_task(items)) == set(bench.TASKS)


def test_ids_and_questions_are_unique(items: list[bench.Item]) -> None:
    assert len({item.item_id for item in items}) == len(items)
    assert len({(item.unit_id, item.question) for item in items}) == len(items)
    digests = {item.unit_id: item.scene_digest for item in items}
    assert len(set(digests.values())) == len(digests)
    assert all(item.item_id.startswith(f"{item.unit_id}/{item.task}/") for item in items)


def test_questions_of_a_picture_stand_together(items: list[bench.Item]) -> None:
    changes = sum(a.unit_id != b.unit_id for a, b in itertools.pairwise(items))
    assert changes + 1 == len({item.unit_id for item in items})
    assert [item.unit_id.split("/")[0] for item in items if item.unit_id.endswith("0000")] == [
        item.kind for item in items if item.unit_id.endswith("0000")
    ]


def test_every_picture_is_of_the_test_split(items: list[bench.Item]) -> None:
    model = items[0].model
    units = sorted({item.unit_id for item in items})
    assert {split_of(source.scene_of(model, unit)) for unit in units} == {"test"}


def test_yes_and_no_are_balanced_on_every_picture(items: list[bench.Item]) -> None:
    for task in ("presence", "relation"):
        tally: dict[str, Counter[str]] = defaultdict(Counter)
        for item in by_task(items)[task]:
            tally[item.unit_id][item.answer] += 1
        assert all(count["yes"] == count["no"] > 0 for count in tally.values()), task


def test_no_answer_dominates(items: list[bench.Item]) -> None:
    most = {"document": 0.02, "table": 0.04, "chart": 0.06, "comparison": 0.1, "counting": 0.35}
    for task, share in most.items():
        answers = Counter(item.answer for item in by_task(items)[task])
        assert max(answers.values()) / answers.total() < share, task


def test_the_taller_bar_is_named_first_as_often_as_last(items: list[bench.Item]) -> None:
    mine = by_task(items)["comparison"]
    words = [[word.strip("?,") for word in item.question.split()] for item in mine]
    first = [
        item.answer == next(word for word in named if len(word) == 1)
        for item, named in zip(mine, words, strict=True)
    ]
    assert abs(np.mean(first) - 0.5) < 4 * 0.5 / len(first) ** 0.5


@pytest.mark.parametrize("model", bench.RESOLUTIONS)
def test_fewer_are_some_of_the_same(model: str) -> None:
    whole = {item.item_id: item for item in bench.items(model, images=6)}
    for item in bench.items(model, images=4, questions=2):
        assert whole[item.item_id] == item
    part = bench.items(model, images=6, tasks=["comparison"])
    assert part == [item for item in whole.values() if item.task == "comparison"]
    half = bench.items(model, images=6, questions=2)
    assert {c for c in Counter((i.unit_id, i.task) for i in half).values()} == {2}
    for task in ("presence", "relation"):
        answers = Counter(item.answer for item in half if item.task == task)
        assert answers["yes"] == answers["no"] == 6


@pytest.mark.parametrize("model", bench.RESOLUTIONS)
def test_pictures(model: str) -> None:
    resolution = bench.RESOLUTIONS[model]
    assert resolution.pixels == {"qwen": 1008, "llava": 336}[model]
    assert resolution.tokens == {"qwen": 1296, "llava": 576}[model]
    for item in bench.items(model, images=1, questions=2):
        image = item.image()
        assert (image.mode, image.size) == ("RGB", (resolution.pixels, resolution.pixels))
        assert np.array_equal(np.asarray(image), item.pixels())
        with pytest.raises(ValueError, match="read-only"):
            item.pixels()[0, 0, 0] = 1


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"model": "clip"}, "'qwen', 'llava'"),
        ({"images": 0}, "1 to 9999"),
        ({"images": True}, "1 to 9999"),
        ({"images": 2.5}, "1 to 9999"),
        ({"questions": 3}, "2 and 4"),
        ({"questions": True}, "2 and 4"),
        ({"tasks": ["reading"]}, "document, table, chart"),
        ({"tasks": []}, "one or more"),
    ],
)
def test_refusals(given: dict[str, object], said: str) -> None:
    with pytest.raises(SettingError, match=said):
        bench.items(**given)  # type: ignore[arg-type]
