"""The exam asks every question under every condition, and a picture is asked about as if alone."""

import json
from pathlib import Path

import pytest
import torch

from tests.tiny.train.test_forward import stirred
from vicoset.tiny import bench
from vicoset.tiny.train import exam
from vicoset.tiny.train.write import write


def test_company_changes_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """The logits behind a verdict are the same whoever else asks about the picture."""
    family = "llava"
    model = stirred(family)
    weights = dict(model.named_parameters())
    items = bench.items(family, images=1, tasks=["table"])
    seen = []
    answer_loss = exam.losses.answer_loss

    def keep(logits: torch.Tensor, batch: object) -> object:
        seen.append(logits[0, 0])
        return answer_loss(logits, batch)  # type: ignore[arg-type]

    monkeypatch.setattr(exam.losses, "answer_loss", keep)
    page = exam.pixels_of(items[0])
    exam.answers(model, family, weights, page, items[:1])
    exam.answers(model, family, weights, page, items)
    assert torch.allclose(*seen, atol=1e-4, rtol=0) and seen[0].std() > 0.3


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
