"""Images as the processors write them into a prompt, and the tensors their towers take."""

from __future__ import annotations

import math
from typing import Any

import torch
from torch.nn.functional import interpolate

from tests.zoo_batch import Batch
from tests.zoo_parts import END, FILM_END, FILM_START, IMAGE, MARK, START, VIDEO


def raster(batch: Batch) -> None:
    """An image of a family with multimodal positions: markers around its merged patches."""
    height, width = batch.turn([(4, 6), (8, 4), (6, 6), (4, 10)])
    batch.say(START)
    batch.show(height * width // 4)
    batch.say(END)
    batch.see(batch.noise(height * width, 96), 1, height, width)


def rasters(batch: Batch) -> dict[str, Any]:
    return {
        "pixel_values": torch.cat(batch.flat()),
        "image_grid_thw": torch.tensor(batch.flat_sizes()),
    }


def film(batch: Batch) -> None:
    """A video of a family with multimodal positions; from Qwen3-VL on frame by frame."""
    frames, height, width = batch.turn([(3, 4, 6), (2, 6, 4)])
    tokens = height * width // 4
    kind = batch.model.config.model_type
    if kind in ("qwen2_vl", "qwen2_5_vl"):
        batch.say(START)
        batch.show(frames * tokens, VIDEO, 2)
        batch.say(END)
    else:
        if kind == "glm4v":
            batch.say(FILM_START)
        for _ in range(frames):
            batch.chat(2, 3)
            batch.say(START)
            batch.show(tokens, IMAGE if kind == "glm4v" else VIDEO, 2)
            batch.say(END)
        if kind == "glm4v":
            batch.say(FILM_END)
    batch.films[-1].append((batch.noise(frames * height * width, 96), (frames, height, width)))


def films(batch: Batch) -> dict[str, Any]:
    return {
        "pixel_values_videos": torch.cat([pixels for row in batch.films for pixels, _ in row]),
        "video_grid_thw": torch.tensor([size for row in batch.films for _, size in row]),
    }


def plain(batch: Batch) -> None:
    """An image of LLaVA: nothing but its tokens."""
    config = batch.model.config
    side = config.vision_config.image_size
    batch.show((side // config.vision_config.patch_size) ** 2)
    batch.see(batch.noise(3, side, side))


def stack(batch: Batch) -> dict[str, Any]:
    return {"pixel_values": torch.stack(batch.flat())}


def marked(batch: Batch) -> None:
    """An image of Gemma3: its tokens between two markers."""
    side = batch.model.config.vision_config.image_size
    batch.say(START)
    batch.show(batch.model.config.mm_tokens_per_image)
    batch.say(END)
    batch.see(batch.noise(3, side, side))


def lines(batch: Batch) -> None:
    """An image of Mistral3: every grid row ends in a break, the last one in the end token."""
    height, width = batch.turn([(24, 40), (48, 16), (32, 32)])
    lines, columns = height // 8, width // 8
    for line in range(lines):
        batch.show(columns)
        batch.say(MARK if line + 1 < lines else MARK + 1)
    batch.see(batch.noise(3, height, width), height, width)


def canvas(batch: Batch) -> dict[str, Any]:
    """Images of unequal size in the corner of equal canvases."""
    height, width = (max(size[axis] for size in batch.flat_sizes()) for axis in (0, 1))
    pixels = torch.zeros(len(batch.flat_sizes()), 3, height, width)
    for number, image in enumerate(batch.flat()):
        pixels[number, :, : image.shape[1], : image.shape[2]] = image
    return {"pixel_values": pixels, "image_sizes": torch.tensor(batch.flat_sizes())}


def anyres(batch: Batch) -> None:
    """An any-resolution image; how many tokens it has follows from the unpadded grid."""
    config = batch.model.config
    height, width = batch.turn([(20, 44), (50, 30), (40, 44), (18, 18), (23, 70)])
    tile = config.vision_config.image_size
    side = tile // config.vision_config.patch_size
    if "onevision" in config.model_type and batch.images > 1:
        batch.show(side * side + 1)
        batch.see(batch.noise(1, 3, tile, tile), height, width)
        return
    full_height, full_width = _canvas_of((height, width), config.image_grid_pinpoints)
    lines, columns = full_height // tile * side, full_width // tile * side
    if width / height > columns / lines:
        lines -= 2 * ((lines - int(round(height * columns / width, 7))) // 2)
    else:
        columns -= 2 * ((columns - int(round(width * lines / height, 7))) // 2)
    if "onevision" in config.model_type:
        ratio = math.sqrt(lines * columns / (2 * side**2))
        if ratio > 1.1:
            lines, columns = int(lines // ratio), int(columns // ratio)
    batch.fine.append((lines, columns))
    batch.show(side * side + lines * (columns + 1))
    tiles = full_height * full_width // tile**2 + 1
    batch.see(batch.noise(tiles, 3, tile, tile), height, width)


def _canvas_of(size: tuple[int, int], options: list[list[int]]) -> tuple[int, int]:
    """The canvas that keeps most of an image, then the one that wastes least."""

    def merit(canvas: list[int]) -> tuple[int, int]:
        scale = min(canvas[0] / size[0], canvas[1] / size[1])
        kept = min(int(size[0] * scale) * int(size[1] * scale), size[0] * size[1])
        return kept, kept - canvas[0] * canvas[1]

    best = max(options, key=merit)
    return best[0], best[1]


def levels(batch: Batch) -> dict[str, Any]:
    images = batch.flat()
    most = max(len(image) for image in images)
    pixels = torch.zeros(len(images), most, *images[0].shape[1:])
    for number, image in enumerate(images):
        pixels[number, : len(image)] = image
    return {
        "pixel_values": pixels,
        "image_sizes": torch.tensor(batch.flat_sizes()),
        "batch_num_images": torch.tensor([len(row) for row in batch.pixels]),
    }


TILINGS = [(2, 3), (1, 1), (3, 1), (2, 2), (1, 2)]


def _cut(batch: Batch, side: int = 32) -> tuple[int, int]:
    """A picture of blobs, cut into tiles of `side` pixels, with its thumbnail last."""
    lines, columns = batch.turn(TILINGS)
    batch.tilings.append((lines, columns))
    coarse = batch.noise(1, 3, 4 * lines, 4 * columns)
    whole = interpolate(coarse, (lines * side, columns * side), mode="bilinear")
    thumbnail = interpolate(whole, (side, side), mode="area")
    tiles = whole[0].reshape(3, lines, side, columns, side).permute(1, 3, 0, 2, 4).flatten(0, 1)
    batch.see(torch.cat([tiles, thumbnail]) if lines * columns > 1 else thumbnail)
    return lines, columns


def internvl(batch: Batch) -> None:
    lines, columns = _cut(batch)
    batch.say(START)
    batch.show(16 * (lines * columns + (lines * columns > 1)))
    batch.say(END)


def aya(batch: Batch) -> None:
    lines, columns = _cut(batch)
    batch.say(START)
    for tile in range(lines * columns if lines * columns > 1 else 0):
        batch.say(MARK + 1 + tile)
        batch.show(16)
    batch.say(MARK)
    batch.show(16)
    batch.say(END)


def idefics(batch: Batch) -> None:
    lines, columns = _cut(batch)
    frame, newline, whole = MARK, MARK + 1, MARK + 2
    if lines * columns > 1:
        for line in range(lines):
            for column in range(columns):
                batch.say(frame, MARK + 10 + 6 * line + column)
                batch.show(16)
            batch.say(newline)
        batch.say(newline)
    batch.say(frame, whole)
    batch.show(16)
    batch.say(frame)


def llama4(batch: Batch) -> None:
    lines, columns = _cut(batch)
    batch.say(START)
    for _ in range(lines if lines * columns > 1 else 0):
        for column in range(columns):
            batch.show(16)
            batch.say(MARK if column + 1 < columns else MARK + 1)
    batch.say(MARK + 2)
    batch.show(16)
    batch.say(END)


def tiles(batch: Batch) -> dict[str, Any]:
    return {"pixel_values": torch.cat(batch.flat())}


def tiles_by_row(batch: Batch) -> dict[str, Any]:
    """Tiles of a row together, rows filled up with empty tiles."""
    rows = [torch.cat(row) if row else torch.zeros(0, 3, 32, 32) for row in batch.pixels]
    pixels = torch.zeros(len(rows), max(map(len, rows)), 3, 32, 32)
    for number, row in enumerate(rows):
        pixels[number, : len(row)] = row
    return {"pixel_values": pixels}
