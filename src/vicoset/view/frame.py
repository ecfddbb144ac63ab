"""Which part of an image a processor shows the model."""

from __future__ import annotations

from typing import Any

from vicoset.view.overlay import Frame


def frame_of(processor: Any, size: tuple[int, int]) -> Frame:
    """The part of an image that its visual tokens cover, in the image's pixels.

    A centre crop shows less than the image, padding to a square shows more. Processors that do
    neither, and those that cut an image into tiles, show all of it.

    Args:
        processor: a processor or an image processor.
        size: (width, height) of the image.
    """
    images = getattr(processor, "image_processor", processor)
    width, height = float(size[0]), float(size[1])
    whole = (0.0, 0.0, width, height)
    if getattr(images, "image_grid_pinpoints", None) is not None:
        return whole
    if getattr(images, "do_pad", False) and type(images).__name__.startswith("LlavaImage"):
        side = max(width, height)
        whole = _centred(width, height, side, side)
        width = height = side
    target = _entry(images, "size", "shortest_edge")
    across, down = (_entry(images, "crop_size", name) for name in ("width", "height"))
    if not (getattr(images, "do_center_crop", False) and target and across and down):
        return whole
    scale = target / min(width, height) if getattr(images, "do_resize", True) else 1.0
    return _centred(float(size[0]), float(size[1]), across / scale, down / scale)


def _centred(width: float, height: float, across: float, down: float) -> Frame:
    left, top = (width - across) / 2, (height - down) / 2
    return (left, top, left + across, top + down)


def _entry(images: Any, name: str, key: str) -> float | None:
    """A number of a size, which the library keeps as a dictionary or an object."""
    sizes = getattr(images, name, None)
    value = sizes.get(key) if isinstance(sizes, dict) else getattr(sizes, key, None)
    return None if value is None else float(value)
