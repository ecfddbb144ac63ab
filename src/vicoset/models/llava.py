"""Families with one square grid an image and no markers: LLaVA-1.5, VipLLaVA, and any other.

LLaVA's class also carries Pixtral towers, whose rows end in break tokens.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from vicoset.errors import ImageError
from vicoset.models import pixtral
from vicoset.models.layout import (
    Layout,
    Picture,
    PromptInputs,
    compose,
    cut,
    grid,
    masks,
    runs,
    shared_out,
    square,
)


def visual_ids(config: Any) -> tuple[int, ...]:
    """Ids of image and video placeholders that the configuration names."""
    names = ("image_token_id", "image_token_index", "video_token_id", "video_token_index")
    found = [getattr(config, name, None) for name in names]
    return tuple(dict.fromkeys(int(number) for number in found if number is not None))


def layouts(inputs: PromptInputs) -> list[Layout | None]:
    """Layouts of all rows ``[B, L]``: a square grid an image, or rows of a Pixtral tower."""
    vision = getattr(inputs.model.config, "vision_config", None)
    if getattr(vision, "model_type", None) == "pixtral":
        return pixtral.layouts(inputs)
    return plain(inputs, strict=True)


def fallback(inputs: PromptInputs) -> list[Layout | None]:
    """Layouts of a family that nobody certified: a square where the length is one, else a line."""
    return plain(inputs, strict=False)


def plain(inputs: PromptInputs, strict: bool) -> list[Layout | None]:
    """Layouts of rows whose images follow each other without markers.

    Args:
        inputs: ids ``[B, L]``.
        strict: whether a length that is no square is an error.
    """
    prompt = masks(inputs, visual_ids(inputs.model.config))
    none = torch.zeros(prompt.ids.shape[1], dtype=torch.bool)
    found = []
    for row, parts in enumerate(images(inputs, prompt.visual, strict)):
        pictures = [Picture(part, places(len(part), strict)) for part in parts]
        found.append(compose(prompt, row, pictures, none))
    return found


def images(inputs: PromptInputs, visual: Tensor, strict: bool = True) -> list[list[Tensor]]:
    """The positions of each image of each row.

    Args:
        inputs: the prompt.
        visual: ``[B, L]`` bool.
        strict: whether lengths that do not fit are an error; otherwise the runs are the images.
    """
    counts = visual.sum(1).tolist()
    if inputs.image_lengths and sum(counts):
        try:
            shares = shared_out(counts, inputs.image_lengths)
        except ImageError:
            if strict:
                raise
        else:
            return [
                cut(mask.nonzero().flatten(), share)
                for mask, share in zip(visual, shares, strict=True)
            ]
    size = _tokens(inputs.model.config) if strict else 0
    return [[part for run in runs(mask) for part in _even(run, size)] for mask in visual]


def places(tokens: int, strict: bool = True) -> Tensor:
    """Coordinates ``[tokens, 2]`` of one image.

    A token in front of a square is the tower's class token; it covers the whole image.
    """
    found = square(tokens)
    if found is not None:
        return found
    rest = square(tokens - 1)
    if strict and rest is not None:
        return torch.cat([grid(1, 1), rest])
    if strict:
        raise ImageError(
            f"an image has {tokens} visual tokens, which is no square grid; allowed are squares "
            "(and one class token). Check the placeholders of the prompt."
        )
    return grid(1, tokens)


def _even(run: Tensor, size: int) -> list[Tensor]:
    return list(torch.split(run, size)) if size and len(run) % size == 0 else [run]


def _tokens(config: Any) -> int:
    """Visual tokens an image has by the configuration; 0 if it does not say."""
    for part in (config, getattr(config, "text_config", None)):
        for name in ("image_seq_length", "mm_tokens_per_image", "num_image_tokens"):
            if getattr(part, name, None):
                return int(getattr(part, name))
    return 0
