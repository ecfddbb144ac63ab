"""The bundled models: stock checkpoints that load, answer, and fit into the package."""

import itertools
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from vicoset.errors import SettingError, UnreadableError
from vicoset.tiny import bench, configs, directory, load, load_tiny
from vicoset.tiny.bench.score import correct
from vicoset.tiny.load import FOLDER
from vicoset.tiny.train import exam

MEGABYTES = 24
SHIPPED = [family for family in configs.FAMILIES if (FOLDER / family / "config.json").is_file()]


@pytest.fixture(scope="module", params=SHIPPED)
def family(request: pytest.FixtureRequest) -> str:
    name: str = request.param
    return name


@pytest.fixture(scope="module")
def bundled(family: str) -> tuple[Any, Any]:
    return load_tiny(family)


def prompt(processor: Any, item: bench.Item) -> Any:
    asked = [{"type": "image"}, {"type": "text", "text": item.question}]
    text = processor.apply_chat_template(
        [{"role": "user", "content": asked}], add_generation_prompt=True
    )
    return processor(images=[item.image()], text=[text], return_tensors="pt")


def one_of_each(family: str) -> list[bench.Item]:
    """A question of every task, each about the first picture that has it."""
    found: dict[str, bench.Item] = {}
    for item in bench.items(family, images=1):
        found.setdefault(item.task, item)
    return list(found.values())


def test_generation_and_exam_agree(family: str, bundled: tuple[Any, Any]) -> None:
    model, processor = bundled
    weights = dict(model.named_parameters())
    for item in one_of_each(family):
        inputs = prompt(processor, item)
        with torch.inference_mode():
            out = model.generate(**inputs, max_new_tokens=8, do_sample=False)
        said = processor.decode(out[0, inputs["input_ids"].shape[1] :], skip_special_tokens=True)
        verdict = exam.answers(model, family, weights, exam.pixels_of(item), [item])
        assert verdict == [correct(said, item.answer)], (item.question, said)


def test_they_read_documents_and_see_objects(family: str, bundled: tuple[Any, Any]) -> None:
    """16 questions of each; the exam of docs/tiny.md asks all of them."""
    model, _ = bundled
    weights = dict(model.named_parameters())
    for task in ("document", "presence"):
        items = bench.items(family, images=4, tasks=[task])
        right = []
        for _, group in itertools.groupby(items, key=lambda item: item.unit_id):
            mine = list(group)
            right += exam.answers(model, family, weights, exam.pixels_of(mine[0]), mine)
        assert len(right) == 16 and sum(right) >= 14, (task, right)


def test_auto_class_gives_the_same_logits(family: str, bundled: tuple[Any, Any]) -> None:
    from transformers import AutoModelForImageTextToText

    model, processor = bundled
    stock = AutoModelForImageTextToText.from_pretrained(directory(family), local_files_only=True)
    inputs = prompt(processor, one_of_each(family)[0])
    with torch.inference_mode():
        assert torch.equal(stock(**inputs).logits, model(**inputs).logits)
    assert model.dtype == torch.bfloat16 and not model.training
    assert type(model).__name__ == type(configs.empty(family)).__name__


def test_image_processor_is_the_stock_one(family: str, bundled: tuple[Any, Any]) -> None:
    """Bit for bit, with nothing resized: patches hold the picture's own pixels."""
    from transformers.models.clip.image_processing_pil_clip import CLIPImageProcessorPil
    from transformers.models.qwen2_vl.image_processing_pil_qwen2_vl import Qwen2VLImageProcessorPil

    item = one_of_each(family)[0]
    inputs = prompt(bundled[1], item)
    if family == "qwen":
        stock: Any = Qwen2VLImageProcessorPil(
            size={"shortest_edge": 3136, "longest_edge": 28 * 28 * 1600}
        )
        assert inputs["image_grid_thw"].tolist() == [[1, 72, 72]]
    else:
        stock = CLIPImageProcessorPil(size={"shortest_edge": 336})
    wanted = stock(images=[item.image()], return_tensors="pt")["pixel_values"]
    assert torch.equal(inputs["pixel_values"], wanted)
    visual = inputs["input_ids"] == bundled[0].config.image_token_id
    assert int(visual.sum()) == item.resolution.tokens


def test_seen_pixels_matter(family: str, bundled: tuple[Any, Any]) -> None:
    """A document's value cannot be told from a grey page."""
    model, _ = bundled
    weights = dict(model.named_parameters())
    items = bench.items(family, images=2, tasks=["document"])
    side = items[0].resolution.pixels
    grey = torch.from_numpy(np.full((1, side, side, 3), 127, np.uint8))
    assert not any(exam.answers(model, family, weights, grey, items))


def test_they_fit_into_the_package() -> None:
    assert "qwen" in SHIPPED
    size = sum(path.stat().st_size for path in FOLDER.rglob("*") if path.is_file())
    assert 10e6 < size <= MEGABYTES * 1e6
    names = {path.name for path in FOLDER.rglob("*") if path.is_file()}
    assert {"model.safetensors", "config.json", "tokenizer.json"} <= names
    assert not any(Path(name).suffix in (".pt", ".bin", ".part") for name in names)


def test_an_unknown_name() -> None:
    with pytest.raises(SettingError, match="'qwenn'; allowed are 'qwen'"):
        load_tiny("qwenn")


def test_an_installation_without_them(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(load, "FOLDER", tmp_path)
    with pytest.raises(UnreadableError, match="holds no model; allowed is an installation"):
        load_tiny()
