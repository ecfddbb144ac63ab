"""The bundled models, ready to use."""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import Any

from vicoset.errors import SettingError, UnreadableError
from vicoset.tiny import configs

FOLDER = Path(__file__).with_name("weights")


def directory(name: str = "qwen") -> Path:
    """Where a bundled model lies; the stock classes read it too.

    Args:
        name: one of ``configs.FAMILIES``.
    """
    have = [family for family in configs.FAMILIES if (FOLDER / family / "config.json").is_file()]
    if not have:
        raise UnreadableError(
            f"{FOLDER} holds no model; allowed is an installation with its files. Install the "
            "package again, or train a model: python -m vicoset.tiny.train FOLDER."
        )
    if name not in have:
        raise SettingError(
            f"no bundled model is named {name!r}; allowed are {', '.join(map(repr, have))}. "
            f"Write load_tiny({have[0]!r})."
        )
    return FOLDER / name


def load_tiny(name: str = "qwen", dtype: Any = "auto") -> tuple[Any, Any]:
    """A bundled model in evaluation mode, and its processor.

    Args:
        name: "qwen" (the architecture of Qwen2.5-VL) or "llava" (that of LLaVA-1.5).
        dtype: "auto" for bfloat16 as shipped, or a type of torch.
    """
    from vicoset.runtime.checkpoint import load

    with warnings.catch_warnings():  # its processor is for images only, wherever it is loaded
        warnings.filterwarnings("ignore", message=".*images only.*")
        model, processor = load(directory(name), dtype=dtype)
    return model, processor
