"""How the size of an image becomes a grid of visual tokens, and how to ask for a smaller grid.

Two kinds are known. Raster families (Qwen) cut the image into as many cells as it has; square
families (LLaVA) bring every image to one size, which their vision tower takes in another size when
it interpolates its position table.
"""

from __future__ import annotations

import copy
import inspect
import math
import sys
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from torch import nn

from vicoset.errors import UnsupportedError
from vicoset.models.features import owner_of
from vicoset.models.towers import RASTER

SQUARE = ("llava",)


class Cells(NamedTuple):
    """A grid of visual tokens.

    Attributes:
        height: lines.
        width: tokens of a line.
    """

    height: int
    width: int

    @property
    def tokens(self) -> int:
        """How many."""
        return self.height * self.width


class Raster:
    """Images become as many cells as they have pixels, within two bounds."""

    def __init__(self, processor: Any) -> None:
        self._processor = processor
        images = processor.image_processor
        self.unit = int(images.patch_size) * int(images.merge_size)
        self._round = _rounding(images)
        self._bounds = [_edge(images, name) for name in ("shortest_edge", "longest_edge")]

    def cells(self, image: Any) -> Cells:
        """The grid that the processor gives an image of this size.

        Args:
            image: of Pillow.
        """
        width, height = image.size
        low, high = self._bounds
        sides = self._round(height, width, factor=self.unit, min_pixels=low, max_pixels=high)
        return Cells(*(int(side) // self.unit for side in sides))

    def resized(self, image: Any, cells: Cells) -> Any:
        """The image in the size that has this grid.

        Args:
            image: of Pillow.
            cells: the grid.
        """
        from PIL import Image

        size = (cells.width * self.unit, cells.height * self.unit)
        return image.convert("RGB").resize(size, Image.Resampling.BICUBIC)

    def processor(self, cells: Cells) -> Any:
        """A processor that does not enlarge small images again.

        Args:
            cells: any grid that is asked for.
        """
        return self._with(self.unit**2, self._bounds[1])

    def bounded(self, pixels: int) -> Any:
        """A processor that brings every image to about this many pixels.

        Args:
            pixels: of an image.
        """
        return self._with(pixels, pixels)

    def _with(self, low: int, high: int) -> Any:
        found, images = _copied(self._processor)
        images.size = {"shortest_edge": low, "longest_edge": high}
        if hasattr(images, "min_pixels"):  # releases before 5.0 keep the bounds twice
            images.min_pixels, images.max_pixels = low, high
        return found


class Square:
    """Every image becomes the same grid."""

    def __init__(self, processor: Any) -> None:
        self._processor = processor
        images = processor.image_processor
        self.unit = int(processor.patch_size)
        self._short = _edge(images, "shortest_edge")
        self._crop = Cells(*(_side(images.crop_size, name) for name in ("height", "width")))

    def cells(self, image: Any) -> Cells:
        """The grid of every image.

        Args:
            image: any.
        """
        return Cells(*(side // self.unit for side in self._crop))

    def resized(self, image: Any, cells: Cells) -> Any:
        """The image itself: the processor brings it to its size.

        Args:
            image: of Pillow.
            cells: the grid.
        """
        return image

    def processor(self, cells: Cells) -> Any:
        """A processor that brings every image to this grid.

        Args:
            cells: the grid.
        """
        found, images = _copied(self._processor)
        height, width = (side * self.unit for side in cells)
        images.crop_size = {"height": height, "width": width}
        short = math.ceil(self._short * max(cells) / max(self.cells(None)))
        images.size = {"shortest_edge": max(short, height, width)}
        return found


def ruler_of(model: Any, processor: Any) -> Raster | Square:
    """What knows the sizes of a family, or an error that names the families that are known.

    Args:
        model: a stock model.
        processor: of the model.
    """
    kind = str(getattr(model.config, "model_type", ""))
    vision = getattr(getattr(model.config, "vision_config", None), "model_type", None)
    if kind in RASTER:
        return Raster(processor)
    if kind in SQUARE and vision != "pixtral":
        return Square(processor)
    raise UnsupportedError(
        f"nobody has said which sizes of an image give which grid for {type(model).__name__}; "
        f"downsample runs on {', '.join((*RASTER, *SQUARE))} (CLIP or SigLIP towers). Compare with "
        "grid@0 instead, which keeps a lattice of tokens."
    )


def resizing_tower(model: Any) -> nn.Module:
    """The vision tower of a square family, which can interpolate its positions.

    Args:
        model: a stock model.
    """
    tower: nn.Module = owner_of(model).vision_tower
    if "interpolate_pos_encoding" not in inspect.signature(tower.forward).parameters:
        raise UnsupportedError(
            f"{type(tower).__name__} cannot interpolate its positions, so it takes images of one "
            "size only; allowed are CLIP and SigLIP towers. Compare with grid@0 instead."
        )
    return tower


def _rounding(images: Any) -> Callable[..., Any]:
    """The function by which an image processor of the raster families rounds sides to cells."""
    for kind in type(images).__mro__:
        found = getattr(sys.modules[kind.__module__], "smart_resize", None)
        if found is not None:
            rounding: Callable[..., Any] = found
            return rounding
    raise UnsupportedError(
        f"{type(images).__name__} does not say how it rounds the sides of an image; allowed is the "
        "family's own image processor. Load the checkpoint's processor."
    )


def _copied(processor: Any) -> tuple[Any, Any]:
    """A processor and its image processor, neither of them the user's own."""
    found = copy.copy(processor)
    found.image_processor = copy.copy(processor.image_processor)
    return found, found.image_processor


def _edge(images: Any, name: str) -> int:
    return _side(images.size, name)


def _side(size: Any, name: str) -> int:
    value = size.get(name) if isinstance(size, Mapping) else getattr(size, name, None)
    if value is None:
        raise UnsupportedError(
            f"the image processor's size is {size!r}, which has no {name}; allowed are the sizes "
            "of the family's own processor. Load the checkpoint's processor."
        )
    return int(value)
