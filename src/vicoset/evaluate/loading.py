"""The model that a command names."""

from __future__ import annotations

import importlib
import os
import warnings
from collections.abc import Callable
from typing import Any

from vicoset.errors import SettingError

BUNDLED = {"tiny": "qwen", "tiny-llava": "llava"}  # a command's names, and those of load_tiny
DTYPES = ("auto", "float32", "bfloat16", "float16")


def load_named(
    name: str, *, dtype: str = "auto", device: str = "auto", attention: str | None = None
) -> tuple[Any, Any]:
    """A model and its processor, on the device and in the dtype that were asked for.

    Args:
        name: directory of a checkpoint, or a bundled model: "tiny" (the architecture of
            Qwen2.5-VL) or "tiny-llava" (that of LLaVA-1.5).
        dtype: "auto" for the checkpoint's own.
        device: "auto" for torchrun's accelerator, or the first, or the CPU.
        attention: kernel, such as sdpa or eager.
    """
    import torch

    if dtype not in DTYPES:
        raise SettingError(
            f"dtype {dtype!r}; allowed are {', '.join(DTYPES)}. Leave it out for the checkpoint's "
            "own."
        )
    if device == "auto":
        local = os.environ.get("LOCAL_RANK", "0")
        device = f"cuda:{local}" if torch.cuda.is_available() else "cpu"
    kind = dtype if dtype == "auto" else getattr(torch, dtype)
    if name in BUNDLED:
        model, processor = importlib.import_module("vicoset.tiny").load_tiny(BUNDLED[name])
        model = model if kind == "auto" else model.to(kind)
        if attention is not None:
            _tried("attention", attention, lambda: model.set_attn_implementation(attention))
        return _placed(model, device), processor
    from vicoset.api import load

    with warnings.catch_warnings():
        # What a processor without torchvision lacks are videos, and nothing here asks about one.
        warnings.filterwarnings("ignore", message="torchvision is not installed")
        if attention is None:
            model, processor = load(name, dtype=kind)
        else:
            more = {"attn_implementation": attention}
            found = _tried("attention", attention, lambda: load(name, dtype=kind, **more))
            model, processor = found
    return _placed(model, device), processor


def _placed(model: Any, device: str) -> Any:
    return _tried("device", device, lambda: model.to(device))


def _tried(what: str, given: str, task: Callable[[], Any]) -> Any:
    """Do something; what the library says of an option that it cannot follow becomes one line."""
    try:
        return task()
    except (ImportError, ValueError, RuntimeError, AssertionError) as error:
        said = " ".join(str(error).split())
        raise SettingError(
            f"{what} {given!r} does not work here: {said}; allowed is what this machine and its "
            f"libraries have. Leave --{what} out for the usual one."
        ) from error
