"""What a command's IMAGE and QUESTION name."""

import json
from pathlib import Path

import numpy as np
import pytest

from tests import checkpoints
from vicoset.ask.source import image_of, resolution_of, source_of
from vicoset.errors import SettingError, UnreadableError
from vicoset.tiny import bench

UNIT = "document/0000"


def test_a_file_is_read_with_its_question(tmp_path: Path) -> None:
    image = checkpoints.picture(30, 20)
    image.save(tmp_path / "a.png")
    found = source_of(str(tmp_path / "a.png"), "what?")
    assert found.question == "what?" and found.item is None and found.boxes == []
    assert np.array_equal(np.asarray(found.image), np.asarray(image))
    assert found.correct("407") is None


def test_a_picture_of_the_benchmark_brings_its_question_and_its_evidence() -> None:
    first, second = bench.picture_items("qwen", UNIT)[:2]
    for name in ("tinybench:document", f"tinybench:{UNIT}", f"tinybench:{first.item_id}"):
        found = source_of(name)
        assert found.item == first and found.question == first.question
        assert found.name == f"tinybench:{UNIT}" and found.image.size == (1008, 1008)
    assert source_of(f"tinybench:{second.item_id}").item == second
    assert source_of(f"tinybench:{UNIT}", second.question).item == second
    assert found.boxes == [(b.left, b.top, b.right, b.bottom) for b in first.boxes]
    assert found.correct(first.answer) and not found.correct("other")


def test_a_question_of_one_s_own_has_no_reference() -> None:
    found = source_of(f"tinybench:{UNIT}", "what else?")
    assert found.question == "what else?" and found.item is None


def test_the_resolution_is_the_model_s(tmp_path: Path) -> None:
    for kind, name in (("llava", "llava"), ("qwen2_5_vl", "qwen"), ("gemma3", "qwen")):
        (tmp_path / "config.json").write_text(json.dumps({"model_type": kind}))
        assert resolution_of(str(tmp_path)) == name
    assert resolution_of("tiny") == "qwen" and resolution_of("tiny-llava") == "llava"
    (tmp_path / "config.json").write_text('{"model_type": "llava"}')
    assert image_of(f"tinybench:{UNIT}", str(tmp_path)).size == (336, 336)
    (tmp_path / "config.json").write_text("[1")
    with pytest.raises(UnreadableError, match=r"config\.json is no configuration"):
        resolution_of(str(tmp_path))


@pytest.mark.parametrize(
    ("name", "told"),
    [
        ("tinybench:documnet/0000", "Write tinybench:document/0000"),
        ("tinybench:", "allowed are the kinds"),
        ("tinybench:chart/one", "allowed are 0000 to 9999"),
        ("tinybench:chart/00001", "allowed are 0000 to 9999"),
        ("tinybench:document/0000/chart/0", "allowed are document/0"),
    ],
)
def test_names_that_the_benchmark_does_not_have(name: str, told: str) -> None:
    with pytest.raises(SettingError, match=told):
        source_of(name)


@pytest.mark.parametrize("question", ["", "  \n"])
def test_an_empty_question_is_refused_before_the_image_is_read(question: str) -> None:
    with pytest.raises(SettingError, match="is empty"):
        source_of("missing.png", question)


def test_a_file_without_a_question_is_refused(tmp_path: Path) -> None:
    checkpoints.picture().save(tmp_path / "a.png")
    with pytest.raises(SettingError, match="Write it in quotation marks"):
        source_of(str(tmp_path / "a.png"))


def test_files_that_are_no_images_are_refused(tmp_path: Path) -> None:
    whole = tmp_path / "whole.png"
    checkpoints.picture(300, 200).save(whole)
    data = whole.read_bytes()
    (tmp_path / "half.png").write_bytes(data[: len(data) // 2])
    (tmp_path / "text.png").write_text("no image")
    (tmp_path / "empty.png").touch()
    for name, told in (
        ("half.png", "copied whole"),
        ("text.png", "no image that Pillow knows"),
        ("empty.png", "0 bytes"),
        ("none.png", "is not there"),
        (".", "is a directory"),
    ):
        with pytest.raises(UnreadableError, match=told):
            source_of(str(tmp_path / name), "what?")
