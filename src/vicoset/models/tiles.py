"""Families that cut an image into square tiles, and those with one marked square an image.

A thumbnail covers the whole image, a tile its part of it. Where the placeholders spell the tile
grid (Idefics3, SmolVLM, Llama4) it is read from them; where they do not (InternVL, Aya-Vision) it
is the one arrangement whose tiles, put together, look like the thumbnail. If neither tells, each
tile has the coordinates of its own square.
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise

import torch
from torch import Tensor

from vicoset.errors import ImageError
from vicoset.models.arrange import Looks
from vicoset.models.layout import (
    Layout,
    Picture,
    PromptInputs,
    compose,
    grid,
    masks,
    runs,
    square,
)
from vicoset.models.llava import images, places, visual_ids

__all__ = ["aya", "idefics", "internvl", "llama4", "marked", "visual_ids"]

Grid = tuple[int, int] | None


def marked(inputs: PromptInputs) -> list[Layout | None]:
    """Gemma3 and PaliGemma: one square an image, a crop being one; begin and end are markers."""
    config = inputs.model.config
    prompt = masks(inputs, visual_ids(config))
    markers = [getattr(config, name, None) for name in ("boi_token_index", "eoi_token_index")]
    wanted = torch.tensor([mark for mark in markers if mark is not None], dtype=prompt.ids.dtype)
    structural = torch.isin(prompt.ids, wanted)
    found = []
    for row, parts in enumerate(images(inputs, prompt.visual)):
        pictures = [Picture(part, places(len(part))) for part in parts]
        found.append(compose(prompt, row, pictures, structural[row]))
    return found


def internvl(inputs: PromptInputs) -> list[Layout | None]:
    """InternVL: the tiles of an image in one run between two markers, the thumbnail last."""
    config = inputs.model.config
    lengths = set(inputs.image_lengths or ())
    tokens = lengths.pop() if len(lengths) == 1 else int(config.image_seq_length)

    def split(_: Tensor, mask: Tensor) -> list[list[Tensor]]:
        found = runs(mask)
        if any(len(run) % tokens for run in found):
            raise ImageError(
                f"images have {[len(run) for run in found]} visual tokens; allowed are multiples "
                f"of the {tokens} tokens of a tile. Use the processor's placeholders."
            )
        return [list(torch.split(run, tokens)) for run in found]

    return _tiled(inputs, split, None, before=1)


def aya(inputs: PromptInputs) -> list[Layout | None]:
    """Aya-Vision: a marker before every tile, the thumbnail last, an end marker after it."""

    def split(ids: Tensor, mask: Tensor) -> list[list[Tensor]]:
        found = runs(mask)
        return _until(found, [_at(ids, int(run[-1]) + 1) for run in found])

    return _tiled(inputs, split, None, before=2)


def idefics(inputs: PromptInputs) -> list[Layout | None]:
    """Idefics3 and SmolVLM: a frame token and a tile marker before every tile, global tile last."""

    def split(ids: Tensor, mask: Tensor) -> list[list[Tensor]]:
        found = runs(mask)
        return _until(found, [_at(ids, int(run[0]) - 1) for run in found])

    def read(_: Tensor, tiles: list[Tensor]) -> Grid:
        # Between tiles of a line stand the frame token and the tile marker, between lines more.
        return _lines([gap > 2 for gap in _gaps(tiles[:-1])])

    return _tiled(inputs, split, read, before=2)


def llama4(inputs: PromptInputs) -> list[Layout | None]:
    """Llama4: separators between tiles and after lines, global tile last, between two markers."""
    end = int(inputs.model.config.eoi_token_index)

    def split(ids: Tensor, mask: Tensor) -> list[list[Tensor]]:
        groups: list[list[Tensor]] = [[]]
        for run in runs(mask):
            groups[-1].append(run)
            if _at(ids, int(run[-1]) + 1) == end:
                groups.append([])
        return [group for group in groups if group]

    def read(ids: Tensor, tiles: list[Tensor]) -> Grid:
        behind = [_at(ids, int(tile[-1]) + 1) for tile in tiles[:-1]]
        return _lines([mark == behind[-1] for mark in behind[:-1]])

    return _tiled(inputs, split, read, before=2, begin=int(inputs.model.config.boi_token_index))


Split = Callable[[Tensor, Tensor], list[list[Tensor]]]
Read = Callable[[Tensor, list[Tensor]], Grid]


def _tiled(
    inputs: PromptInputs, split: Split, read: Read | None, before: int, begin: int | None = None
) -> list[Layout | None]:
    """Layouts of tiled images.

    Args:
        inputs: the prompt.
        split: (ids ``[L]``, visual ``[L]``) -> the tiles of each image of a row.
        read: (ids, tiles) -> grid of the tiles in front of the thumbnail; None: by their looks.
        before: how many markers stand in front of the first tile.
        begin: id of the first of them where it is known, and may stand closer.
    """
    prompt = masks(inputs, visual_ids(inputs.model.config))
    rows = [split(ids, mask) for ids, mask in zip(prompt.ids, prompt.visual, strict=True)]
    looks = None if read else Looks(inputs.model, [sum(map(len, row)) for row in rows])
    found = []
    for row, groups in enumerate(rows):
        structural = torch.zeros_like(prompt.visual[row])
        pictures, seen = [], 0
        for tiles in groups:
            first, last = int(tiles[0][0]), int(tiles[-1][-1])
            close = begin is not None and _at(prompt.ids[row], first - 1) == begin
            structural[max(first - (1 if close else before), 0) : last + 2] = True
            arrangement: Grid = None
            if len(tiles) > 2:
                if read is not None:
                    arrangement = read(prompt.ids[row], tiles)
                elif looks is not None:
                    arrangement = looks.arrangement(row, seen, len(tiles))
            seen += len(tiles)
            pictures.append(Picture(torch.cat(tiles), _spread(tiles, arrangement)))
        found.append(compose(prompt, row, pictures, structural))
    return found


def _spread(tiles: list[Tensor], arrangement: Grid) -> Tensor:
    """Coordinates ``[n, 2]`` of all tiles of an image, the last of several being the thumbnail."""
    planes = []
    for tile in tiles:
        plane = square(len(tile))
        if plane is None:
            raise ImageError(
                f"a tile has {len(tile)} visual tokens, which is no square grid; allowed are "
                "squares. Check the placeholders of the prompt."
            )
        planes.append(plane)
    if arrangement is None:
        return torch.cat(planes)
    lines, columns = arrangement
    corners = (grid(lines, columns) * torch.tensor([lines, columns])).floor()
    parts = [
        (plane + corner) / torch.tensor([lines, columns])
        for plane, corner in zip(planes[:-1], corners, strict=True)
    ]
    return torch.cat([*parts, planes[-1]])


def _lines(breaks: list[bool]) -> Grid:
    """The grid of tiles from whether a line ends behind each tile but the last."""
    lines = 1 + sum(breaks)
    columns, rest = divmod(len(breaks) + 1, lines)
    regular = [(place + 1) % columns == 0 for place in range(len(breaks))] if columns else []
    return None if rest or breaks != regular else (lines, columns)


def _gaps(tiles: list[Tensor]) -> list[int]:
    return [int(after[0]) - int(before[-1]) - 1 for before, after in pairwise(tiles)]


def _until(found: list[Tensor], marks: list[int]) -> list[list[Tensor]]:
    """Groups of runs that end with a run whose mark is that of the last one."""
    groups: list[list[Tensor]] = [[]]
    for run, mark in zip(found, marks, strict=True):
        groups[-1].append(run)
        if mark == marks[-1]:
            groups.append([])
    return [group for group in groups if group]


def _at(ids: Tensor, position: int) -> int:
    return int(ids[position]) if 0 <= position < len(ids) else -1
