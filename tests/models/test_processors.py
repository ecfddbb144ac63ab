"""The image-only processors do what the stock ones do with text and images."""

from __future__ import annotations

import copy
import json
import pickle
from pathlib import Path
from typing import Any

import pytest
import torch
import transformers
from PIL import Image

from tests import checkpoints
from vicoset.errors import UnreadableError, UnsupportedError
from vicoset.models import processors
from vicoset.models.processors import image_only_processor, read_image

every_stock = pytest.mark.parametrize("stock", processors.STOCK[:3])


def chats() -> list[list[dict[str, Any]]]:
    one, other = checkpoints.picture(), checkpoints.picture(64, 24, seed=1)
    return [checkpoints.question("What?", one), checkpoints.question("And these?", other, one)]


def assert_same(first: Any, second: Any) -> None:
    assert first.keys() == second.keys()
    assert all(torch.equal(first[name], second[name]) for name in first)


def as_older_releases_write(directory: Path) -> None:
    """Image processor and template in files of their own, as most published checkpoints are."""
    config = json.loads((directory / "processor_config.json").read_text())
    described = {**config["image_processor"], "processor_class": config["processor_class"]}
    (directory / "preprocessor_config.json").write_text(json.dumps(described))
    (directory / "processor_config.json").unlink()
    template = directory / "chat_template.jinja"
    (directory / "chat_template.json").write_text(
        json.dumps({"chat_template": template.read_text()})
    )
    template.unlink()


def as_the_stock_class_writes(directory: Path) -> None:
    """With the part that the image-only class does not have."""
    path = directory / "processor_config.json"
    config = json.loads(path.read_text())
    video = {**config["image_processor"], "video_processor_type": "Qwen2VLVideoProcessor"}
    video.pop("image_processor_type")
    path.write_text(json.dumps({**config, "video_processor": video}))


@every_stock
def test_text_and_images_become_the_stock_tensors(stock: str) -> None:
    processor = checkpoints.qwen_processor(stock)
    assert isinstance(processor, getattr(transformers, stock))
    batch = checkpoints.inputs(processor, *chats())
    ids, kinds = batch["input_ids"], batch["mm_token_type_ids"]
    image = processor.tokenizer.convert_tokens_to_ids(checkpoints.QWEN["image"])
    assert torch.equal(kinds == 1, ids == image)
    # 48 x 32 pixels are 6 x 4 tokens of 8 x 8, and 64 x 24 are 8 x 3.
    assert batch["image_grid_thw"].tolist() == [[1, 8, 12], [1, 6, 16], [1, 8, 12]]
    assert (ids == image).sum(1).tolist() == [24, 48]
    assert not batch["attention_mask"][0, 0] and bool(batch["attention_mask"][:, -1].all())


@every_stock
@pytest.mark.parametrize(
    "rewrite",
    [None, as_older_releases_write, as_the_stock_class_writes],
    ids=["as it is", "older releases", "stock class"],
)
def test_directories_are_read_back(stock: str, rewrite: Any, tmp_path: Path) -> None:
    processor = checkpoints.qwen_processor(stock)
    processor.save_pretrained(tmp_path)
    if rewrite is not None:
        rewrite(tmp_path)
    again = image_only_processor(tmp_path)
    assert type(again) is type(processor)
    assert_same(checkpoints.inputs(again, *chats()), checkpoints.inputs(processor, *chats()))


# transformers' Pillow form of the GLM image processor hands torch tensors to numpy.
@pytest.mark.filterwarnings(
    "ignore:__array__ implementation doesn't accept a copy:DeprecationWarning"
)
def test_glm_has_its_own_words(tmp_path: Path) -> None:
    words = checkpoints.tokenizer()
    glm = ["<|image|>", "<|video|>", "<|begin_of_video|>", "<|end_of_video|>"]
    words.add_special_tokens({"additional_special_tokens": glm})
    processor = image_only_processor(
        image_processor=checkpoints.of_pillow(
            "Glm4vImageProcessor",
            patch_size=4,
            merge_size=2,
            size={"shortest_edge": 4 * 64, "longest_edge": 64 * 64},
        ),
        tokenizer=words,
        chat_template=checkpoints.TEMPLATE.replace("<|image_pad|>", "<|image|>"),
        stock="Glm4vProcessor",
    )
    batch = checkpoints.inputs(processor, *chats())
    image = words.convert_tokens_to_ids("<|image|>")
    assert (batch["input_ids"] == image).sum(1).tolist() == [24, 48]
    processor.save_pretrained(tmp_path)
    assert_same(checkpoints.inputs(image_only_processor(tmp_path), *chats()), batch)


def test_directories_are_saved_under_the_stock_name(tmp_path: Path) -> None:
    checkpoints.qwen_processor("Qwen2VLProcessor").save_pretrained(tmp_path)
    assert processors.stock_of(tmp_path) == "Qwen2VLProcessor"
    assert json.loads((tmp_path / "processor_config.json").read_text()).keys() == {
        "image_processor",
        "processor_class",
    }


def test_a_directory_without_processor_class_goes_by_its_model(tmp_path: Path) -> None:
    assert processors.stock_of(tmp_path) == ""
    (tmp_path / "config.json").write_text(json.dumps({"model_type": "qwen3_vl"}))
    assert processors.stock_of(tmp_path) == "Qwen3VLProcessor"


def test_a_template_can_replace_the_directorys(tmp_path: Path) -> None:
    checkpoints.qwen_processor().save_pretrained(tmp_path)
    processor = image_only_processor(tmp_path, chat_template="{{ messages[0]['role'] }}")
    assert processor.apply_chat_template(chats()[0]) == "user"


@pytest.mark.parametrize(
    "remake", [copy.deepcopy, lambda p: pickle.loads(pickle.dumps(p))], ids=["copy", "pickle"]
)
def test_copies_and_pickles(remake: Any) -> None:
    processor = checkpoints.qwen_processor()
    again = remake(processor)
    assert type(again) is type(processor)
    assert again is not processor
    assert_same(checkpoints.inputs(again, *chats()), checkpoints.inputs(processor, *chats()))


def test_image_files_are_read(tmp_path: Path) -> None:
    path = tmp_path / "page.png"
    checkpoints.picture().save(path)
    processor = checkpoints.qwen_processor()
    text = processor.apply_chat_template(chats()[0], add_generation_prompt=True)
    want = processor(text=text, images=checkpoints.picture(), return_tensors="pt")
    for images in (path, str(path), [str(path)]):
        assert_same(processor(text=text, images=images, return_tensors="pt"), want)
    missing = [{"type": "image", "path": str(tmp_path / "gone.png")}]
    with pytest.raises(UnreadableError, match=r"gone\.png is not there"):
        checkpoints.inputs(processor, [{"role": "user", "content": missing}])


def test_videos_are_refused() -> None:
    processor = checkpoints.qwen_processor()
    with pytest.raises(UnsupportedError, match="Install torchvision"):
        processor(text="<|video_pad|>", videos=[torch.zeros(4, 3, 16, 16)])


def test_other_processors_have_no_image_only_form() -> None:
    with pytest.raises(UnsupportedError, match="InternVLProcessor has no image-only form"):
        processors.image_only("InternVLProcessor")


def test_parts_are_both_needed_and_exclude_a_directory(tmp_path: Path) -> None:
    with pytest.raises(UnsupportedError, match="no image_processor="):
        image_only_processor(tokenizer=checkpoints.tokenizer())
    with pytest.raises(UnsupportedError, match="no tokenizer="):
        image_only_processor(image_processor=checkpoints.raster_images())
    with pytest.raises(UnsupportedError, match="allowed is one of the two"):
        image_only_processor(tmp_path, tokenizer=checkpoints.tokenizer())


def test_broken_json_is_named(tmp_path: Path) -> None:
    (tmp_path / "processor_config.json").write_text("{")
    with pytest.raises(UnreadableError, match=r"processor_config\.json is no JSON"):
        image_only_processor(tmp_path)


def test_images_come_back_upright_and_in_colour(tmp_path: Path) -> None:
    path = tmp_path / "photo.jpg"
    turned = Image.Exif()
    turned[0x0112] = 6
    Image.new("L", (20, 10)).save(path, exif=turned)
    image = read_image(path)
    assert (image.mode, image.size) == ("RGB", (10, 20))
    assert read_image(image) is image


def test_unreadable_images_say_why(tmp_path: Path) -> None:
    with pytest.raises(UnreadableError, match="is not there"):
        read_image(tmp_path / "none.png")
    with pytest.raises(UnreadableError, match="is a directory"):
        read_image(str(tmp_path))
    text = tmp_path / "text.png"
    text.write_text("not an image")
    with pytest.raises(UnreadableError, match="12 bytes\\) is no image that Pillow knows"):
        read_image(text)
    half = tmp_path / "half.png"
    checkpoints.picture().save(half)
    half.write_bytes(half.read_bytes()[:200])
    with pytest.raises(UnreadableError, match="cannot be decoded"):
        read_image(half)
