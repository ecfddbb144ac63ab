"""Stock checkpoints from disk: loaded, asked, compressed, decoded."""

from __future__ import annotations

import json
import os
import shutil
import warnings
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor
from transformers import AutoProcessor, pipeline

import vicoset
from tests import checkpoints, zoo
from vicoset.errors import UnreadableError, UnsupportedError
from vicoset.models import processors
from vicoset.runtime.checkpoint import Loaded, load

STEPS = 5
families = pytest.mark.parametrize("family", ["qwen2_5_vl", "llava"])
TOKENS = {"qwen2_5_vl": 24, "llava": 36}  # of checkpoints.picture()


@pytest.fixture(scope="module")
def saved(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    return {family: checkpoints.save(family, tmp_path_factory.mktemp(family)) for family in TOKENS}


@pytest.fixture
def loaded(family: str, saved: dict[str, Path]) -> Loaded:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)  # without torchvision; tested below
        return load(saved[family])


def generate(model: Any, inputs: Any, **options: Any) -> Tensor:
    """The new tokens alone."""
    out: Tensor = model.generate(**inputs, max_new_tokens=STEPS, do_sample=False, **options)
    return out[:, inputs["input_ids"].shape[1] :]


@families
def test_weights_and_processor_come_back(family: str, loaded: Loaded) -> None:
    model, processor = loaded
    made = checkpoints.model(family)
    assert not model.training
    assert type(model) is type(made)
    theirs = made.state_dict()
    assert all(torch.equal(value, theirs[name]) for name, value in model.state_dict().items())
    assert processor.tokenizer.padding_side == "left"


@families
def test_a_question_about_one_image(family: str, loaded: Loaded) -> None:
    model, processor = loaded
    inputs = checkpoints.inputs(processor, checkpoints.question("What?", checkpoints.picture()))
    full = generate(model, inputs)
    with vicoset.compress(model, "gmc-h2", keep=8) as run:
        tokens = generate(model, inputs)
    assert tokens.shape == full.shape == (1, STEPS)
    assert isinstance(processor.batch_decode(tokens)[0], str)
    assert (run.last.tokens, run.last.kept, run.last.images) == (TOKENS[family], 8, 1)
    with vicoset.compress(model, "gmc-h2", keep=1.0):
        assert torch.equal(generate(model, inputs), full)
    assert torch.equal(generate(model, inputs), full)


@families
def test_two_images(family: str, loaded: Loaded) -> None:
    model, processor = loaded
    images = checkpoints.picture(), checkpoints.picture(64, 24, seed=1)
    inputs = checkpoints.inputs(processor, checkpoints.question("Compare.", *images))
    with vicoset.compress(model, "gmc-h2", keep=8) as run:
        generate(model, inputs)
    assert (run.last.tokens, run.last.kept, run.last.images) == (2 * TOKENS[family], 8, 2)


@families
def test_a_padded_batch_equals_its_rows(family: str, loaded: Loaded) -> None:
    model, processor = loaded
    chats = [
        checkpoints.question("A question that is the longest one of all?", checkpoints.picture()),
        checkpoints.question("Two?", checkpoints.picture(64, 64, 2), checkpoints.picture()),
        checkpoints.question("No image here."),
    ]
    inputs = checkpoints.inputs(processor, *chats)
    assert not bool(inputs["attention_mask"].all())
    with vicoset.compress(model, "gmc-h2", keep=8) as run:
        together = generate(model, inputs)
        assert [record.kept for record in run.last] == [8, 8, 0]
        for row, chat in enumerate(chats):
            assert torch.equal(
                generate(model, checkpoints.inputs(processor, chat))[0], together[row]
            )


@families
def test_the_librarys_pipeline_is_compressed(family: str, loaded: Loaded) -> None:
    model, processor = loaded
    chat = checkpoints.question("What?", checkpoints.picture())
    ask = pipeline("image-text-to-text", model=model, processor=processor)
    inputs = checkpoints.inputs(processor, chat)
    with vicoset.compress(model, "gmc-h2", keep=8) as run:
        answer = ask(text=chat, max_new_tokens=STEPS, do_sample=False, return_full_text=False)
        assert run.last.kept == 8
        want = processor.batch_decode(generate(model, inputs), skip_special_tokens=True)
    assert answer[0]["generated_text"] == want[0]
    assert len(run.records) == 2


def test_options_reach_the_model(saved: dict[str, Path]) -> None:
    model, _ = load(saved["llava"], dtype=torch.bfloat16, attn_implementation="eager")
    assert model.dtype == torch.bfloat16
    assert model.config._attn_implementation == "eager"


def test_without_torchvision_a_warning_says_what_is_missing(
    saved: dict[str, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(processors, "has_torchvision", lambda: False)
    with pytest.warns(UserWarning, match="torchvision is not installed.*videos are refused"):
        _, processor = load(saved["qwen2_5_vl"])
    assert isinstance(processor, processors.ImageOnly)


def test_a_directory_for_images_only_stays_that(
    saved: dict[str, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(processors, "has_torchvision", lambda: True)
    with pytest.warns(UserWarning, match="describes no video processor"):
        _, processor = load(str(saved["qwen2_5_vl"]))
    assert isinstance(processor, processors.ImageOnly)


def test_a_family_without_videos_is_the_stock_one(saved: dict[str, Path]) -> None:
    _, processor = load(saved["llava"])
    assert type(processor) is type(AutoProcessor.from_pretrained(saved["llava"]))


def test_a_directory_that_is_not_there() -> None:
    with pytest.raises(UnreadableError, match="is not there; allowed is a local directory"):
        load("Some/Model-7B")


def test_a_file_is_no_directory(saved: dict[str, Path]) -> None:
    with pytest.raises(UnreadableError, match="is a file"):
        load(saved["llava"] / "config.json")


def test_a_directory_without_config(saved: dict[str, Path], tmp_path: Path) -> None:
    with pytest.raises(UnreadableError, match=r"has no config\.json.*Save the model there first"):
        load(tmp_path)
    with pytest.raises(UnreadableError, match=r"Did you mean .*llava"):
        load(saved["llava"].parent)


@pytest.mark.parametrize(
    ("config", "error", "message"),
    [
        ("{", UnreadableError, "is no JSON"),
        (json.dumps({"model_type": "nothing_known"}), UnreadableError, "cannot be used"),
        (
            json.dumps({"model_type": "llama", "num_attention_heads": "many"}),
            UnreadableError,
            "cannot be used",
        ),
        (json.dumps({"model_type": "bert"}), UnsupportedError, "'bert' model, which takes no"),
    ],
)
def test_a_config_of_something_else(
    config: str, error: type[Exception], message: str, tmp_path: Path
) -> None:
    (tmp_path / "config.json").write_text(config)
    with pytest.raises(error, match=message):
        load(tmp_path)


@pytest.mark.parametrize("size", [None, 0, 100])
def test_weights_that_are_missing_or_cut_off(
    size: int | None, saved: dict[str, Path], tmp_path: Path
) -> None:
    copy = tmp_path / "copy"
    shutil.copytree(saved["llava"], copy)
    weights = copy / "model.safetensors"
    weights.unlink() if size is None else os.truncate(weights, size)
    with pytest.raises(UnreadableError, match=r"the weights of .*copy cannot be loaded.*whole"):
        load(copy)


@pytest.mark.parametrize("directory", [None, 3, ["a"]])
def test_what_is_no_path(directory: Any) -> None:
    with pytest.raises(UnreadableError, match=r"allowed is the path of a local checkpoint"):
        load(directory)


def test_a_model_without_processor(tmp_path: Path) -> None:
    checkpoints.model("llava").save_pretrained(tmp_path)
    with pytest.raises(UnreadableError, match=r"holds no .*processor.* processor\.save_pretrained"):
        load(tmp_path)


@pytest.mark.skipif(processors.has_torchvision(), reason="torchvision is installed")
@pytest.mark.parametrize(
    ("family", "kind", "images"),
    [
        ("internvl", "InternVLProcessor", "GotOcr2ImageProcessor"),
        ("llava_onevision", "LlavaOnevisionProcessor", "LlavaOnevisionImageProcessor"),
    ],
)
def test_processors_that_need_torchvision_say_so(
    family: str, kind: str, images: str, tmp_path: Path
) -> None:
    zoo.tiny(family).config.save_pretrained(tmp_path)
    checkpoints.tokenizer().save_pretrained(tmp_path)
    described = {"image_processor_type": images, "processor_class": kind}
    (tmp_path / "preprocessor_config.json").write_text(json.dumps(described))
    with pytest.raises(UnsupportedError, match=rf"{kind}, needs torchvision, which is not"):
        load(tmp_path)
