"""Rasterise the glyphs and shapes once: ``python -m vicoset.tiny.draw.make_atlas FONT_DIRECTORY``.

Rasterisers differ between versions, so the package ships their result (``atlas.npz``) and never
reads a font of the system. The fonts are DejaVu's (see ``FONT-LICENSE``).
"""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from vicoset.tiny.draw.atlas import CELLS, CHARACTERS, FONTS, PATH, SHAPE_SIDE, SHAPES

FILES = ("DejaVuSans.ttf", "DejaVuSans-Bold.ttf", "DejaVuSerif.ttf", "DejaVuSansMono.ttf")
SIZES = {28: (21, 23, 25), 14: (12, 13)}  # font sizes in pixels for each cell side
SAMPLES = 8  # supersampling of the shapes, per axis


def glyphs(directory: Path, cell: int) -> NDArray[np.uint8]:
    """Ink [fonts, sizes, characters, cell, cell] of every character, centred on its advance."""
    from PIL import Image, ImageDraw, ImageFont

    assert len(FILES) == FONTS
    sheets = np.zeros((FONTS, len(SIZES[cell]), len(CHARACTERS), cell, cell), np.uint8)
    for f, name in enumerate(FILES):
        for s, size in enumerate(SIZES[cell]):
            font = ImageFont.truetype(str(directory / name), size)
            for k, character in enumerate(CHARACTERS):
                tile = Image.new("L", (cell, cell), 0)
                place = (cell / 2, round(cell * 0.79))
                ImageDraw.Draw(tile).text(place, character, font=font, fill=255, anchor="ms")
                sheets[f, s, k] = np.asarray(tile)
    return sheets


def shape_mask(name: str, side: int) -> NDArray[np.uint8]:
    """Coverage [side, side] of a shape that fills its box, 0 to 255."""
    fine = side * SAMPLES
    axis = (np.arange(fine) + 0.5) / fine * 2 - 1  # -1 to 1
    x, y = axis[None, :], axis[:, None]
    radius, turn = np.hypot(x, y), np.arctan2(x, -y) / (2 * np.pi / 5)
    inside = {
        "circle": radius <= 1,
        "square": np.maximum(abs(x), abs(y)) <= 0.88,
        "triangle": (y <= 0.88) & (abs(x) <= (y + 1) / 1.88),
        "diamond": abs(x) + abs(y) <= 1,
        "cross": (np.minimum(abs(x), abs(y)) <= 0.32) & (np.maximum(abs(x), abs(y)) <= 0.95),
        "star": radius <= 0.4 + 0.6 * abs(turn % 1 * 2 - 1) ** 1.4,  # tips at whole turns
    }[name]
    grid = np.broadcast_to(inside, (fine, fine)).reshape(side, SAMPLES, side, SAMPLES)
    found: NDArray[np.uint8] = (grid.mean((1, 3)) * 255).round().astype(np.uint8)
    return found


def main(directory: str) -> None:
    """Write the atlas."""
    sheets = {f"glyphs{cell}": glyphs(Path(directory), cell) for cell in CELLS}
    masks = np.stack([shape_mask(name, SHAPE_SIDE) for name in SHAPES])
    np.savez_compressed(PATH, shapes=masks, **sheets)  # type: ignore[arg-type]
    print(f"{PATH}: {PATH.stat().st_size} bytes")


if __name__ == "__main__":
    main(sys.argv[1])
