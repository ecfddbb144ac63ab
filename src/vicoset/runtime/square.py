"""Every picture in one size, as protocols with a fixed number of visual tokens ask."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from vicoset.errors import SettingError, UnsupportedError
from vicoset.models.resize import Raster, ruler_of


def squared(model: Any, processor: Any, side: int) -> tuple[Any, Callable[[Any], Any]]:
    """A processor that leaves pictures of this size alone, and what brings a picture to it.

    Stock processors of Qwen2.5-VL shrink what has more than 1,280 cells, and 1,008 pixels a side
    are 1,296: the bounds have to move too.

    Args:
        model: of a family that cuts a picture into as many cells as it has.
        processor: of the model; it stays as it is.
        side: pixels of both sides.
    """
    ruler = ruler_of(model, processor)
    if not isinstance(ruler, Raster):
        raise UnsupportedError(
            f"{type(model).__name__} brings every picture to one size itself; allowed are families "
            "whose grid follows the picture (Qwen). Leave square out."
        )
    if side < ruler.unit or side % ruler.unit:
        near = max(1, round(side / ruler.unit)) * ruler.unit
        raise SettingError(
            f"square={side}; allowed are multiples of the {ruler.unit} pixels of a visual token. "
            f"The nearest is {near}."
        )
    return ruler.bounded(side * side), _Resize(side)


class _Resize:
    def __init__(self, side: int) -> None:
        self._side = side

    def __call__(self, image: Any) -> Any:
        from PIL import Image

        size = (self._side, self._side)
        return image.convert("RGB").resize(size, Image.Resampling.BICUBIC)
