"""Every task reads the public layout of its data: ids, units, prompts, limits, pictures."""

import json
from collections.abc import Callable
from pathlib import Path

import pytest
from PIL import Image

from tests.evaluate import data
from vicoset.errors import SettingError, UnknownNameError, UnreadableError, UnsupportedError
from vicoset.evaluate import tasks

SHORT = "\nAnswer the question using a single word or phrase."
LAYOUTS: dict[str, Callable[[Path], Path]] = {
    "textvqa": data.textvqa,
    "chartqa": data.chartqa,
    "docvqa": data.docvqa,
    "gqa": data.gqa,
    "mmbench": data.mmbench,
    "mme": data.mme,
    "pope": data.pope,
    "amber": data.amber,
    "hallusionbench": data.hallusionbench,
    "chair": data.coco,
}
# First and last sample id, unit of the second item, prompt of the second item, limit.
EXPECTED = {
    "textvqa": ("34602", "34609", "image img0", f"What is the brand number 1?{SHORT}", 128),
    "chartqa": (
        "00000",
        "00007",
        None,
        "How many in 1?\nAnswer the question with a single word.",
        16,
    ),
    "docvqa": ("49153", "49160", "page hs0/0", f"What is the date 1?{SHORT}", 32),
    "gqa": ("20200", "20205", "image n0", f"Is it 1?{SHORT}", 16),
    "mmbench": (
        "0",
        "2000002",
        "1",
        "Which fruit 1? There are several options:\nA. apple\nB. banana\nC. pear\nD. plum\n"
        "\nAnswer with the option's letter from the given choices directly.",
        8,
    ),
    "mme": (
        "code_reasoning/code_reasoning/0000.png#1",
        "color/color/0002.png#2",
        "code_reasoning/code_reasoning/0000.png",
        f"Is there number 0?{SHORT}",
        16,
    ),
    "pope": (
        "adversarial/1",
        "random/4",
        "image COCO_val2014_000000000000",
        f"Is there a dog 1 in the image?{SHORT}",
        128,
    ),
    "amber": ("1005", "1010", "AMBER_1.jpg", f"Is the sky 1 in this image?{SHORT}", 128),
    "hallusionbench": (
        "VD_chart_0_0_0",
        "VS_chart_1_1_1",
        "VD_chart_0",
        "Is 1 above 0?\nPlease answer yes or no.",
        8,
    ),
    "chair": ("0", "2", "1", "Please describe this image in detail.", 512),
}


@pytest.mark.parametrize("name", LAYOUTS)
def test_layout(name: str, tmp_path: Path) -> None:
    items = tasks.task(name).load(LAYOUTS[name](tmp_path))
    first, last, unit, prompt, limit = EXPECTED[name]
    assert (items[0].sample_id, items[-1].sample_id) == (first, last)
    assert items[1].prompt == prompt and {item.limit for item in items} == {limit}
    assert unit is None or items[1].unit_id == unit
    assert [len(item.pictures) for item in items] == [1] * len(items)
    for item in items[:2]:
        image = item.pictures[0].read()
        assert (image.mode, image.size) == ("RGB", (48, 32))
        assert item.pictures[0].source is not None and Path(item.pictures[0].source).is_file()
        json.dumps(item.references)


def test_every_task_has_a_layout_here() -> None:
    assert set(LAYOUTS) == {name for name in tasks.names() if not name.startswith("tinybench")}


def test_pictures_come_from_their_own_row(tmp_path: Path) -> None:
    items = tasks.task("textvqa").load(data.textvqa(tmp_path))
    drawn = [item.pictures[0].read().tobytes() for item in items]
    for place, pixels in enumerate(drawn):
        assert pixels == drawn[place - place % 2]
    assert len(set(drawn)) == len(items) // 2


def test_chartqa_knows_equal_pictures(tmp_path: Path) -> None:
    items = tasks.task("chartqa").load(data.chartqa(tmp_path))
    units = [item.unit_id for item in items]
    assert units[0::2] == units[1::2] and len(set(units)) == 4


@pytest.mark.parametrize("name", ["textvqa", "chartqa", "docvqa", "gqa", "pope", "amber"])
def test_questions_as_units(name: str, tmp_path: Path) -> None:
    items = tasks.task(name).load(LAYOUTS[name](tmp_path), unit="question")
    assert [item.unit_id for item in items] == [item.sample_id for item in items]


def test_json_beside_image_files(tmp_path: Path) -> None:
    (tmp_path / "images").mkdir()
    (tmp_path / "images" / "a.png").write_bytes(data.encoded(0))
    row = {"type": "human_test", "question": "How many?", "answer": "1", "image": "images/a.png"}
    (tmp_path / "test.jsonl").write_text(json.dumps(row) + "\n\n" + json.dumps(row))
    items = tasks.task("chartqa").load(tmp_path)
    assert items[0].pictures[0].read().size == (48, 32)
    assert [item.unit_id for item in items] == ["images/a.png"] * 2


def test_amber_takes_some(tmp_path: Path) -> None:
    task, root = tasks.task("amber"), data.amber(tmp_path / "amber")
    assert [item.sample_id for item in task.load(root, count=3)] == ["1005", "1007", "1009"]
    (tmp_path / "ids.json").write_text("[1010, 1006]")
    chosen = task.load(root, ids=tmp_path / "ids.json")
    assert [item.sample_id for item in chosen] == ["1006", "1010"]
    (tmp_path / "ids.json").write_text("[1]")
    for wrong, said in (
        ({"ids": tmp_path / "ids.json"}, "1 ids that amber does not have"),
        ({"count": 7}, "6 rows"),
        ({"count": 2, "ids": tmp_path / "ids.json"}, "one of them"),
    ):
        with pytest.raises(UnreadableError, match=said):
            task.load(root, **wrong)


def test_chair_unites_labels_and_captions(tmp_path: Path) -> None:
    items = tasks.task("chair").load(data.coco(tmp_path))
    found = [item.references["objects"] for item in items]
    assert found == [["person"], ["cat", "dog", "person"], ["dog", "person"]]


def test_chair_takes_a_table(tmp_path: Path) -> None:
    row = {"question_id": "7", "gt_object": ["dog", "cat", "dog"], "image": data.picture(0)}
    data.parquet(tmp_path / "test-0.parquet", [row])
    with pytest.raises(UnreadableError, match=r"synonyms.txt"):
        tasks.task("chair").load(tmp_path)
    (tmp_path / "synonyms.txt").write_text(data.SYNONYMS)
    (item,) = tasks.task("chair").load(tmp_path)
    assert (item.sample_id, item.references["objects"]) == ("7", ["cat", "dog"])


def test_chair_official_says_what_it_needs(tmp_path: Path) -> None:
    with pytest.raises(UnsupportedError, match=r"nltk.*punkt_tab.*averaged_perceptron.*wordnet"):
        tasks.task("chair").load(data.coco(tmp_path), mode="official")


@pytest.mark.parametrize(
    ("name", "choices", "said"),
    [
        ("pope", {"parser": "strict"}, "'lmms', 'llava', 'vlmevalkit'"),
        ("pope", {"parsers": "lmms"}, "Did you mean parser"),
        ("textvqa", {"unit": "page"}, "'image', 'question'"),
        ("mmbench", {"circular": "no"}, "True, False"),
        ("mme", {"unit": "image"}, "allowed are none"),
    ],
)
def test_choices_are_checked(
    name: str, choices: dict[str, object], said: str, tmp_path: Path
) -> None:
    with pytest.raises(SettingError, match=said):
        tasks.task(name).load(LAYOUTS[name](tmp_path), **choices)


def test_unknown_task() -> None:
    with pytest.raises(UnknownNameError, match="Did you mean 'textvqa'"):
        tasks.task("TextVQA")


def test_data_that_is_not_there(tmp_path: Path) -> None:
    task = tasks.task("textvqa")
    with pytest.raises(UnreadableError, match="textvqa got no data; allowed is a local"):
        task.load(None)
    with pytest.raises(UnreadableError, match="is not there"):
        task.load(tmp_path / "nowhere")
    data.chartqa(tmp_path)
    with pytest.raises(UnreadableError, match=r"no validation\*.*test-00000"):
        task.load(tmp_path)
    with pytest.raises(UnreadableError, match="no column question_id, image_id, answers"):
        task.load(tmp_path / "data" / "test-00000-of-00001.parquet")


def test_data_that_is_not_whole(tmp_path: Path) -> None:
    rows = [{"index": 1_000_005, "question": "?", "answer": "A", "A": "x", "B": "y"}]
    rows = [row | {"image": data.picture(0)} for row in rows]
    with pytest.raises(UnreadableError, match="rotates the question 5"):
        tasks.task("mmbench").load(data.parquet(tmp_path / "dev.parquet", rows))
    rows = [row | {"index": 1, "answer": None} for row in rows]
    with pytest.raises(UnreadableError, match="give the dev split"):
        tasks.task("mmbench").load(data.parquet(tmp_path / "dev2.parquet", rows))
    pair = {"question_id": "a", "question": "?", "answer": "Yes", "category": "color"}
    rows = [pair | {"image": data.picture(0)}] * 3
    with pytest.raises(UnreadableError, match="exactly 2"):
        tasks.task("mme").load(data.parquet(tmp_path / "test.parquet", rows))
    with pytest.raises(UnreadableError, match="allowed are yes and no"):
        rows = [row | {"answer": "perhaps"} for row in rows]
        tasks.task("mme").load(data.parquet(tmp_path / "test2.parquet", rows))
    double = {"question_id": 1, "image_id": "a", "question": "?", "answers": ["a"]}
    rows = [double | {"image": data.picture(0)}] * 2
    with pytest.raises(UnreadableError, match="'1' first; ids have to be unique"):
        tasks.task("textvqa").load(data.parquet(tmp_path / "validation.parquet", rows))


def test_pictures_stand_upright(tmp_path: Path) -> None:
    """A camera held sideways is noted in the file; lmms-eval's tables turn such pictures, too."""
    image, note = Image.new("RGB", (48, 32)), Image.Exif()
    note[0x0112] = 6  # the first row is the right side
    image.save(tmp_path / "a.jpg", exif=note)
    row = {"type": "human_test", "question": "How many?", "answer": "1", "image": "a.jpg"}
    (tmp_path / "test.jsonl").write_text(json.dumps(row))
    held = {"bytes": (tmp_path / "a.jpg").read_bytes(), "path": "a.jpg"}
    data.parquet(tmp_path / "test.parquet", [row | {"image": held}])
    for name in ("test.jsonl", "test.parquet"):
        (item,) = tasks.task("chartqa").load(tmp_path / name)
        assert item.pictures[0].read().size == (32, 48)
