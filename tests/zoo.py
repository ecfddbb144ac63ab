"""Tiny random models of every certified family, and real inputs for them."""

from __future__ import annotations

import warnings
from typing import Any

import torch
from torch import nn

from tests import zoo_inputs, zoo_models
from tests.zoo_batch import Batch
from tests.zoo_parts import PAD
from vicoset.models.families import decoder_of

FAMILIES: tuple[str, ...] = tuple(zoo_models.BUILDERS)
WITH_FILMS = ("qwen2_vl", "qwen2_5_vl", "qwen3_vl", "qwen3_vl_moe", "glm4v")
# Gemma2's softcap has no sdpa kernel: asking for sdpa gives the eager one.
EAGER_ONLY = ("paligemma2",)
# Random towers of some families return next to nothing: the matrix to scale, and by how much.
_LOUDER = {
    "glm4v": ("visual.merger.down_proj.weight", 30.0),
    "mistral3": ("multi_modal_projector.linear_2.weight", 8.0),
    "aya_vision": ("multi_modal_projector.linear_2.weight", 8.0),
    "llama4": ("multi_modal_projector.linear_1.weight", 12.0),
}


def tiny(
    family: str, attn: str = "sdpa", dtype: torch.dtype = torch.float32, seed: int = 0, **text: Any
) -> Any:
    """A model of `family` with random weights, in evaluation mode.

    `text` overrides entries of the text configuration. Decoder matrices are scaled up, so that
    attention is not flat and a wrong mask shows.
    """
    torch.manual_seed(seed)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        kind, config = zoo_models.BUILDERS[family](text)
        attn = "eager" if family in EAGER_ONLY and attn == "sdpa" else attn
        model: Any = kind._from_config(config, attn_implementation=attn, dtype=dtype)
    sharpen(decoder_of(model))
    end, factor = _LOUDER.get(family, ("mm_input_projection_weight", 0.0))
    with torch.no_grad():
        for name, weight in model.named_parameters():
            if name.endswith(end):
                weight.mul_(factor) if factor else weight.normal_(0.0, 0.2)
    model.eval()
    model.generation_config.eos_token_id = None
    model.generation_config.pad_token_id = PAD
    return model


def sharpen(decoder: nn.Module, factor: float = 6.0) -> None:
    """Scale the matrices of the blocks (initialised at 0.02) by `factor`."""
    with torch.no_grad():
        for name, weight in decoder.named_parameters():
            if weight.ndim >= 2 and ".layers." in f".{name}" and "router" not in name:
                weight.mul_(factor)


def prompt(
    model: Any,
    family: str,
    images: list[int] | int = 1,
    seed: int = 0,
    adjacent: bool = False,
    films: list[int] | int = 0,
    row: int | None = None,
) -> dict[str, Any]:
    """Inputs of a batch, padded on the left, in the model's dtype.

    Args:
        model: from `tiny`.
        family: its name.
        images: number of images of each row; [1, 2, 0] is a batch of three, 1 a single row.
        seed: of pixels, text and image shapes.
        adjacent: images of a row follow each other with no text between.
        films: number of videos of each row, behind its images (families in `WITH_FILMS`).
        row: give this row of the batch alone, without its padding.
    """
    batch = written(model, family, images, seed, adjacent, films)
    return zoo_inputs.finish(batch if row is None else batch.only(row), family)


def written(
    model: Any,
    family: str,
    images: list[int] | int = 1,
    seed: int = 0,
    adjacent: bool = False,
    films: list[int] | int = 0,
) -> Batch:
    """What `prompt` makes its tensors of, with the shapes that were drawn."""
    counts = [images] if isinstance(images, int) else list(images)
    each = [films] * len(counts) if isinstance(films, int) else list(films)
    return zoo_inputs.build(model, family, counts, each, seed, adjacent)
