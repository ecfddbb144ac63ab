"""The exam asks every question under every condition, and greedy generation agrees with it."""

import json
from pathlib import Path
from typing import Any

import pytest
import torch

from tests.tiny.train.test_forward import stirred
from vicoset.tiny import bench, parts
from vicoset.tiny.bench.score import correct
from vicoset.tiny.train import exam
from vicoset.tiny.train.write import write


def generated(model: Any, processor: Any, item: bench.Item) -> str:
    asked = [{"type": "image"}, {"type": "text", "text": item.question}]
    text = processor.apply_chat_template(
        [{"role": "user", "content": asked}], add_generation_prompt=True
    )
    inputs = processor(images=[item.image()], text=[text], return_tensors="pt")
    with torch.inference_mode():
        out = model.generate(**inputs, max_new_tokens=5, do_sample=False)
    found: str = processor.tokenizer.decode(
        out[0, inputs["input_ids"].shape[1] :], skip_special_tokens=True
    )
    return found


def test_generation_agrees() -> None:
    """Each question's answer becomes what the model generates, and one that it does not."""
    family = "llava"
    model, processor = stirred(family), parts.processor_of(family)
    weights = dict(model.named_parameters())
    items = bench.items(family, images=1, tasks=["document", "presence"])[:4]
    verdicts = []
    for item in items:
        said = generated(model, processor, item)
        found = exam.answers(model, family, weights, exam.pixels_of(item), [item])
        assert found == [correct(said, item.answer)]
        verdicts += found
    assert len(verdicts) == 4


def test_every_question_under_every_condition(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    directory = write(stirred("llava"), "llava", tmp_path / "model")
    out = tmp_path / "exam.jsonl"
    assert exam.main([str(directory), str(out), "--family", "llava", "--images", "2"]) == 0
    lines = [json.loads(line) for line in out.read_text().splitlines()]
    items = bench.items("llava", images=2)
    seen = {(line["item"], line["condition"]) for line in lines}
    assert seen == {(item.item_id, c) for item in items for c in exam.CONDITIONS}
    assert len(lines) == len(seen)
    assert "picture document" in capsys.readouterr().out
