"""The end of training: a directory that the stock classes read."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import torch

from vicoset.tiny.parts import processor_of


def write(model: Any, family: str, directory: Path) -> Path:
    """Write weights in bfloat16, configurations, tokenizer and processor; gives the directory.

    Args:
        model: of the stock class.
        family: "qwen" or "llava".
        directory: made anew.
    """
    part = directory.with_name(directory.name + ".part")
    shutil.rmtree(part, ignore_errors=True)
    copy = type(model)(model.config)
    copy.load_state_dict(model.state_dict())
    copy.to(torch.bfloat16).save_pretrained(part)
    processor_of(family).save_pretrained(part)
    shutil.rmtree(directory, ignore_errors=True)
    part.replace(directory)
    return directory
