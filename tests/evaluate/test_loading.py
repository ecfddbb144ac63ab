"""A command's name of a model is a directory or a bundled model."""

from pathlib import Path
from typing import Any

import pytest
import torch

import vicoset.tiny
from tests import checkpoints
from vicoset.errors import SettingError, UnreadableError
from vicoset.evaluate.loading import BUNDLED, load_named


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The families that were asked for."""
    found: list[str] = []

    def load_tiny(name: str) -> tuple[Any, Any]:
        found.append(name)
        return checkpoints.model("llava"), checkpoints.llava_processor()

    monkeypatch.setattr(vicoset.tiny, "load_tiny", load_tiny, raising=False)
    return found


def test_bundled_models_are_loaded_by_name(asked: list[str]) -> None:
    for name in BUNDLED:
        model, _ = load_named(name, dtype="bfloat16", device="cpu", attention="eager")
        assert model.dtype == torch.bfloat16
        assert model.config.get_text_config()._attn_implementation == "eager"
    assert asked == ["qwen", "llava"] == list(BUNDLED.values())


def test_directories_are_loaded_as_they_are(asked: list[str], tmp_path: Path) -> None:
    checkpoints.save("llava", tmp_path)
    model, processor = load_named(str(tmp_path), device="cpu")
    assert type(model).__name__ == "LlavaForConditionalGeneration" and asked == []
    assert processor.tokenizer.padding_side == "left"


def test_what_cannot_be_loaded_is_refused(asked: list[str], tmp_path: Path) -> None:
    with pytest.raises(SettingError, match="dtype 'int8'"):
        load_named("tiny", dtype="int8")
    with pytest.raises(SettingError, match="attention 'none'"):
        load_named("tiny", device="cpu", attention="none")
    with pytest.raises(UnreadableError, match="is not there"):
        load_named(str(tmp_path / "none"))
