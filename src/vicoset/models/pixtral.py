"""Images whose rows end in a break token: Mistral3 and Pixtral towers in LLaVA's class."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from vicoset.errors import ImageError
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
)


def visual_ids(config: Any) -> tuple[int, ...]:
    """The id of the image placeholder."""
    return (int(config.image_token_id),)


def layouts(inputs: PromptInputs) -> list[Layout | None]:
    """Layouts of all rows ``[B, L]``: one run a grid row; the breaks and the end are structural."""
    prompt = masks(inputs, visual_ids(inputs.model.config))
    counts = prompt.visual.sum(1).tolist()
    shares = None
    if inputs.image_lengths and sum(counts):
        shares = shared_out(counts, inputs.image_lengths)
    found = []
    for row, mask in enumerate(prompt.visual):
        if shares is None:
            parts = _by_breaks(prompt.ids[row], mask)
        else:
            parts = cut(mask.nonzero().flatten(), shares[row])
        structural = torch.zeros_like(mask)
        for part in parts:
            structural[part[0] : part[-1] + 2] = True
        pictures = [Picture(part, _places(part)) for part in parts]
        found.append(compose(prompt, row, pictures, structural))
    return found


def _places(positions: Tensor) -> Tensor:
    """Coordinates ``[n, 2]`` of an image from the lengths of its runs."""
    gaps = (positions[1:] - positions[:-1] != 1).nonzero().flatten() + 1
    widths = {len(line) for line in torch.tensor_split(positions, gaps)}
    if len(widths) != 1:
        raise ImageError(
            f"an image has rows of {sorted(widths)} visual tokens; allowed is one width, each row "
            "ended by a break token. Use the processor's placeholders."
        )
    return grid(len(gaps) + 1, widths.pop())


def _by_breaks(ids: Tensor, mask: Tensor) -> list[Tensor]:
    """Images of a row without known lengths: the row's last run is followed by the end token."""
    lines = runs(mask)
    if not lines:
        return []
    behind = [int(ids[line[-1] + 1]) if int(line[-1]) + 1 < len(ids) else -1 for line in lines]
    parts: list[list[Tensor]] = [[]]
    for line, mark in zip(lines, behind, strict=True):
        parts[-1].append(line)
        if mark == behind[-1]:
            parts.append([])
    return [torch.cat(part) for part in parts if part]
