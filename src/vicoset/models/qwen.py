"""Families with multimodal rotary positions: Qwen2-VL to Qwen3-VL, GLM-4.1V.

The grid of an image is read from the position axes themselves: height and width minus their
minimum. A video is one identity; its frames' time is the first of three coordinates. What stands
between the frames of one video (timestamps, frame markers) is structural.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import torch
from torch import Tensor

from vicoset.errors import ImageError, PositionError
from vicoset.models.features import argument, lengths_from, watch_of
from vicoset.models.layout import (
    Layout,
    Picture,
    Prompt,
    PromptInputs,
    compose,
    cut,
    grid,
    in_time,
    masks,
    runs,
    shared_out,
)

_MARKERS = (
    "vision_start_token_id",
    "vision_end_token_id",
    "image_start_token_id",
    "image_end_token_id",
    "video_start_token_id",
    "video_end_token_id",
)


class _Run(NamedTuple):
    positions: Tensor
    frames: int
    height: int
    width: int


def visual_ids(config: Any) -> tuple[int, ...]:
    """Ids of image and video placeholders."""
    return int(config.image_token_id), int(config.video_token_id)


def layouts(inputs: PromptInputs) -> list[Layout | None]:
    """Layouts of all rows, from ids ``[B, L]`` and positions ``[3|4, B, L]``."""
    config = inputs.model.config
    prompt = masks(inputs, visual_ids(config))
    film = _film(prompt, config)
    still = prompt.visual & ~film
    stills = _shares(still, inputs.image_lengths)
    films = _shares(film, _video_lengths(inputs))
    markers = [getattr(config, name) for name in _MARKERS if getattr(config, name, None)]
    marked = torch.isin(prompt.ids, torch.tensor(markers, dtype=prompt.ids.dtype))
    found = []
    for row in range(len(prompt.ids)):
        axes = _axes(inputs, row)
        structural = marked[row].clone()
        pictures = [_image(part, axes) for part in _parts(still[row], stills, row)]
        for video in _videos(film[row], films, row, axes):
            pictures.append(_video(video))
            structural[video[0].positions[0] : video[-1].positions[-1]] = True
        pictures.sort(key=lambda picture: int(picture.positions[0]))
        found.append(compose(prompt, row, pictures, structural))
    return found


def _film(prompt: Prompt, config: Any) -> Tensor:
    """Visual positions that belong to a video, ``[B, L]`` bool."""
    film: Tensor = prompt.visual & (prompt.ids == int(config.video_token_id))
    start, end = (getattr(config, f"video_{side}_token_id", None) for side in ("start", "end"))
    if start is not None and end is not None:
        # GLM writes the image placeholder inside of a video as well.
        opened = (prompt.ids == start).cumsum(1) - (prompt.ids == end).cumsum(1)
        film = film | (prompt.visual & (opened > 0))
    return film


def _video_lengths(inputs: PromptInputs) -> list[int] | None:
    """Visual tokens of each video of the batch, from wherever they can be read."""
    lengths = inputs.video_lengths or lengths_from(inputs.kwargs, "video")
    if lengths:
        return lengths
    grids = argument(inputs.model, inputs.kwargs, "video_grid_thw", "video")
    if grids is not None:
        merge = int(inputs.model.config.vision_config.spatial_merge_size)
        return [
            int(frames * height * width) // merge**2 for frames, height, width in grids.tolist()
        ]
    watch = watch_of(inputs.model)
    return None if watch is None else watch.video_lengths


def _shares(mask: Tensor, lengths: list[int] | None) -> list[list[int]] | None:
    counts = mask.sum(1).tolist()
    return shared_out(counts, lengths) if lengths and sum(counts) else None


def _parts(mask: Tensor, shares: list[list[int]] | None, row: int) -> list[Tensor]:
    return runs(mask) if shares is None else cut(mask.nonzero().flatten(), shares[row])


def _axes(inputs: PromptInputs, row: int) -> Tensor | None:
    """Time, height and width positions of a row, ``[3, L]``; None if there is only one axis."""
    ids = inputs.position_ids
    if ids is None or ids.ndim != 3 or ids.shape[0] < 3:
        return None
    return ids[-3:, min(row, ids.shape[1] - 1)].detach().cpu().long()


def _image(positions: Tensor, axes: Tensor | None) -> Picture:
    run = _read(positions, axes)
    plane = grid(run.height, run.width)
    if run.frames == 1:
        return Picture(positions, plane)
    return _video([run])


def _videos(
    mask: Tensor, shares: list[list[int]] | None, row: int, axes: Tensor | None
) -> list[list[_Run]]:
    """The runs of each video; without lengths every run counts as one video."""
    left = list(shares[row]) if shares is not None else None
    videos: list[list[_Run]] = []
    open_tokens = 0
    for positions in runs(mask):
        if open_tokens == 0:
            videos.append([])
            open_tokens = left.pop(0) if left else len(positions)
        if len(positions) > open_tokens:
            raise ImageError(
                f"a video of {open_tokens} more tokens is followed by a run of {len(positions)}; "
                "allowed are runs that end with their video. Use the processor's placeholders."
            )
        open_tokens -= len(positions)
        videos[-1].append(_read(positions, axes))
    return videos


def _video(frames: list[_Run]) -> Picture:
    total = sum(run.frames for run in frames)
    places, number = [], 0
    for run in frames:
        plane = grid(run.height, run.width)
        places += [in_time(plane, number + frame, total) for frame in range(run.frames)]
        number += run.frames
    return Picture(torch.cat([run.positions for run in frames]), torch.cat(places))


def _read(positions: Tensor, axes: Tensor | None) -> _Run:
    """The grid that the position axes of a run spell out."""
    count = len(positions)
    if count == 1:
        return _Run(positions, 1, 1, 1)
    mine = None if axes is None else axes[:, positions]
    if mine is None or bool((mine == mine[:1]).all()):
        raise PositionError(
            f"the {count} visual tokens from position {int(positions[0])} on have one-dimensional "
            "positions, so the model does not see their grid; allowed are time, height and width. "
            "Pass mm_token_type_ids (and the grids) from the processor to the model."
        )
    mine = mine - mine.min(1, keepdim=True).values
    height, width = int(mine[1].max()) + 1, int(mine[2].max()) + 1
    raster = torch.arange(count) % (height * width)
    if count % (height * width) or not torch.equal(mine[1] * width + mine[2], raster):
        raise PositionError(
            f"the positions of the {count} visual tokens from position {int(positions[0])} on are "
            f"no {height} x {width} raster; allowed are row-major grids. Use the processor's "
            "placeholders, let the model compute its positions, and for videos take a transformers "
            "that numbers rows frame by frame (5.4 does not)."
        )
    return _Run(positions, count // (height * width), height, width)
