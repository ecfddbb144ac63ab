"""Any-resolution families: LLaVA-NeXT and LLaVA-OneVision.

The model's own packing is asked where it puts what: markers run through ``pack_image_features`` in
place of features, so that unpadding, interpolation and newlines come out as the model does them.
Newlines are structural. The base view and the fine grid both cover the whole image.
"""

from __future__ import annotations

import inspect
import math
import sys
from typing import Any

import torch
from torch import Tensor

from vicoset.errors import ImageError
from vicoset.models.features import argument, owner_of
from vicoset.models.layout import (
    Layout,
    Picture,
    PromptInputs,
    compose,
    cut,
    grid,
    in_time,
    masks,
    runs,
    shared_pieces,
    square,
)
from vicoset.models.llava import visual_ids

__all__ = ["layouts", "visual_ids"]


def layouts(inputs: PromptInputs) -> list[Layout | None]:
    """Layouts of all rows ``[B, L]``, images and (OneVision) videos."""
    config = inputs.model.config
    prompt = masks(inputs, visual_ids(config))
    film_id = getattr(config, "video_token_id", None)
    film = prompt.visual & (prompt.ids == (-1 if film_id is None else film_id))
    still = prompt.visual & ~film
    packed = _packed(inputs) if bool(still.any()) else []
    shares = shared_pieces(still.sum(1).tolist(), [len(one) for one in packed])
    found, none = [], torch.zeros(prompt.ids.shape[1], dtype=torch.bool)
    for row, share in enumerate(shares):
        levels = [packed[index] for index in share]
        parts = cut(still[row].nonzero().flatten(), [len(one) for one in levels])
        pictures = [_picture(part, one) for part, one in zip(parts, levels, strict=True)]
        pictures += [_video(positions, config) for positions in runs(film[row])]
        pictures.sort(key=lambda picture: int(picture.positions[0]))
        found.append(compose(prompt, row, pictures, none))
    return found


def sources(inputs: PromptInputs) -> list[Tensor]:
    """Per image of the batch ``[n]``: its token's patch among those of all tiles, NaN for newlines.

    Only for families whose packing moves features and never mixes them.
    """
    return _packed(inputs, numbered=True)


def _packed(inputs: PromptInputs, numbered: bool = False) -> list[Tensor]:
    """Per image of the batch ``[n]``: 0 for base tokens, 1 for fine ones, NaN for newlines.

    With ``numbered``, base and fine tokens are their patch's number instead.
    """
    model, config = inputs.model, inputs.model.config
    sizes = argument(model, inputs.kwargs, "image_sizes")
    if sizes is None:
        raise ImageError(
            "the prompt has any-resolution images and no image_sizes, without which their tiles "
            "cannot be placed. Pass image_sizes from the processor with the pixels."
        )
    owner = owner_of(model)
    sizes = [tuple(int(side) for side in size) for size in torch.as_tensor(sizes).tolist()]
    vision = config.vision_config
    tokens = (vision.image_size // vision.patch_size) ** 2
    levels, before = [], 0
    for count in _tiles(inputs, owner, sizes):
        numbers = torch.arange(count * tokens, dtype=torch.float64).view(count, tokens, 1)
        levels.append(before + numbers if numbered else (numbers >= tokens).float())
        before += count * tokens
    options: dict[str, Any] = {"image_newline": torch.full((1,), math.nan)}
    for name in ("vision_feature_select_strategy", "vision_aspect_ratio"):
        if name in inspect.signature(owner.pack_image_features).parameters:
            given = argument(model, inputs.kwargs, name)
            options[name] = getattr(config, name) if given is None else given
    with torch.no_grad():
        packed, _ = owner.pack_image_features(levels, sizes, **options)
    return [image[:, 0] for image in packed]


def _tiles(inputs: PromptInputs, owner: Any, sizes: list[tuple[int, ...]]) -> list[int]:
    """How many tiles (the base view is one) each image of the batch has."""
    count = sys.modules[type(owner).__module__].image_size_to_num_patches
    config = inputs.model.config
    tiles = [
        int(count(list(size), config.image_grid_pinpoints, config.vision_config.image_size))
        for size in sizes
    ]
    groups = argument(inputs.model, inputs.kwargs, "batch_num_images")
    if groups is None:
        return tiles
    alone = [n == 1 for n in torch.as_tensor(groups).tolist() for _ in range(n)]
    return [number if single else 1 for number, single in zip(tiles, alone, strict=True)]


def _picture(positions: Tensor, levels: Tensor) -> Picture:
    """An image from the levels ``[n]`` of its tokens; its newlines are left out."""
    newline = levels.isnan()
    base, fine = int((levels < 0.5).sum()), int((levels >= 0.5).sum())
    lines = int(newline.sum()) if fine else 0
    plane = square(base)
    if plane is None or (fine and (not lines or fine % lines)):
        raise ImageError(
            f"an image has {base} base and {fine} fine tokens in {lines} lines; allowed are a "
            "square and a rectangle. Use a vision tower without class token in its features."
        )
    if fine:
        plane = torch.cat([plane, grid(lines, fine // lines)])
    return Picture(positions[~newline], plane)


def _video(positions: Tensor, config: Any) -> Picture:
    """A video of OneVision: pooled square frames, then one newline."""
    vision = config.vision_config
    side = math.ceil(vision.image_size // vision.patch_size / 2)
    frames, rest = divmod(len(positions) - 1, side * side)
    if rest or frames < 1:
        raise ImageError(
            f"a video has {len(positions)} tokens; allowed are frames of {side * side} and one "
            "newline. Use the processor's placeholders."
        )
    plane = grid(side, side)
    places = torch.cat([in_time(plane, frame, frames) for frame in range(frames)])
    return Picture(positions[:-1], places)
