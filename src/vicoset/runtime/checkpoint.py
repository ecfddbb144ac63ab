"""A model and its processor from a local directory."""

from __future__ import annotations

import os
import warnings
from pathlib import Path
from typing import Any, NamedTuple

from vicoset.errors import UnreadableError, UnsupportedError, VicosetError
from vicoset.models import processors
from vicoset.models.processors import image_only_processor as image_only_processor
from vicoset.models.processors import read_image as read_image


class Loaded(NamedTuple):
    """What a directory held.

    Attributes:
        model: in evaluation mode.
        processor: pads on the left, as batched generation needs.
    """

    model: Any
    processor: Any


def load(directory: str | os.PathLike[str], **options: Any) -> Loaded:
    """The model and the processor of a checkpoint, through the library's own Auto classes.

    Without torchvision the processors of the Qwen-VL and GLM-4.1V families are loaded for images
    only, and a warning says so.

    Args:
        directory: as ``save_pretrained`` or ``hf download --local-dir`` leaves it.
        options: for the model's ``from_pretrained``: ``dtype=``, ``attn_implementation=``,
            ``device_map=`` and so on.
    """
    if not isinstance(directory, (str, os.PathLike)):
        raise UnreadableError(
            f"directory={directory!r} is a {type(directory).__name__}; allowed is the path of a "
            "local checkpoint, such as load('models/qwen')."
        )
    path = _checked(Path(directory))
    options = {"local_files_only": True, **options}
    from safetensors import SafetensorError
    from transformers import (
        MODEL_FOR_IMAGE_TEXT_TO_TEXT_MAPPING,
        AutoConfig,
        AutoModelForImageTextToText,
    )

    trust = {"trust_remote_code": options.get("trust_remote_code", False)}
    try:
        config = AutoConfig.from_pretrained(path, local_files_only=True, **trust)
    except Exception as error:  # whatever a config's own checks and code may raise
        raise UnreadableError(f"{path / 'config.json'} cannot be used: {error}") from error
    custom = "AutoModelForImageTextToText" in (getattr(config, "auto_map", None) or {})
    if type(config) not in MODEL_FOR_IMAGE_TEXT_TO_TEXT_MAPPING and not custom:
        raise UnsupportedError(
            f"{path} holds a {config.model_type!r} model, which takes no images as input; allowed "
            "are models that AutoModelForImageTextToText knows. Check the directory."
        )
    processor = _processor(path, **trust)
    try:
        model: Any = AutoModelForImageTextToText.from_pretrained(path, **options)
    except (OSError, SafetensorError) as error:
        raise UnreadableError(
            f"the weights of {path} cannot be loaded: {error} Check that the checkpoint was copied "
            "whole."
        ) from error
    return Loaded(model.eval(), processor)


def _checked(path: Path) -> Path:
    """A directory with a readable config.json."""
    if not path.is_dir():
        what = "a file" if path.exists() else "not there"
        raise UnreadableError(
            f"checkpoint {path} is {what}; allowed is a local directory. A model of the Hub is "
            "copied to one by `hf download <name> --local-dir <directory>`."
        )
    config = path / "config.json"
    if not config.is_file():
        nested = sorted(found.parent.name for found in path.glob("*/config.json"))
        hint = f"Did you mean {path / nested[0]}?" if nested else "Save the model there first."
        raise UnreadableError(
            f"{path} has no config.json; allowed are directories that save_pretrained wrote. {hint}"
        )
    processors.json_of(path, config.name)
    return path


def _processor(path: Path, **trust: Any) -> Any:
    """The stock processor, or the image-only one with a warning."""
    reason = processors.without_videos(path)
    if reason is not None:
        warnings.warn(
            f"{reason}, so the processor of {path} is loaded for text and images only; videos are "
            "refused.",
            stacklevel=3,
        )
    try:
        if reason is not None:
            processor = processors.image_only_processor(path)
        else:
            processor = _stock(path, **trust)
    except VicosetError:
        raise
    except (ImportError, OSError, ValueError) as error:
        raise _unusable(path, error) from error
    tokenizer = getattr(processor, "tokenizer", None)
    if tokenizer is None:
        raise UnreadableError(
            f"{path} holds no processor, only a {type(processor).__name__}; save the processor "
            "beside the model with processor.save_pretrained."
        )
    tokenizer.padding_side = "left"
    return processor


def _stock(path: Path, **trust: Any) -> Any:
    import transformers

    auto: Any = transformers.AutoProcessor
    return auto.from_pretrained(path, local_files_only=True, **trust)


def _unusable(path: Path, error: Exception) -> VicosetError:
    """What to tell about a processor that could not be made."""
    said = " ".join(str(error).split())
    name = processors.stock_of(path) or "unnamed"
    if "torchvision" in said.lower() and not processors.has_torchvision():
        return UnsupportedError(
            f"the processor of {path}, {name}, needs torchvision, which is not installed; without "
            f"it, of those with videos only {', '.join(processors.STOCK)} can be made, for images. "
            "Install torchvision."
        )
    if isinstance(error, ImportError):
        return UnsupportedError(
            f"the processor of {path}, {name}, needs a package that is not installed: {said}"
        )
    return UnreadableError(
        f"{path} holds no usable processor: {said} Save it beside the model with "
        "processor.save_pretrained."
    )
