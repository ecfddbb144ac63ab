"""What a processor crops or pads away is what the frame says, by its own pixels."""

from types import SimpleNamespace

import numpy as np
import pytest
import transformers
from PIL import Image

from tests.checkpoints import of_pillow, raster_images
from vicoset.view import frame_of


@pytest.mark.parametrize("size", [(90, 60), (60, 90), (60, 60)])
def test_a_centre_crop(size: tuple[int, int]) -> None:
    images = of_pillow(
        "CLIPImageProcessor",
        size={"shortest_edge": 30},
        crop_size={"height": 30, "width": 30},
        resample=Image.Resampling.NEAREST,
        do_normalize=False,
        do_rescale=False,
    )
    xs, ys = np.meshgrid(np.arange(size[0]), np.arange(size[1]))
    page = np.stack([xs, ys, 0 * xs], -1).astype(np.uint8)
    seen = np.asarray(images(Image.fromarray(page), return_tensors="np")["pixel_values"][0])
    left, top, right, bottom = frame_of(images, size)
    assert right - left == bottom - top == 60
    assert (seen[0].min(), seen[0].max()) == pytest.approx((left, right - 1), abs=1)
    assert (seen[1].min(), seen[1].max()) == pytest.approx((top, bottom - 1), abs=1)


def test_padding_to_a_square() -> None:
    kind = next(
        getattr(transformers, name)
        for name in ("LlavaImageProcessorPil", "LlavaImageProcessor")
        if hasattr(transformers, name)
    )
    images = kind(
        do_pad=True,
        size={"shortest_edge": 30},
        crop_size={"height": 30, "width": 30},
        do_normalize=False,
        do_rescale=False,
        image_mean=(0.0, 0.0, 0.0),
    )
    white = Image.new("RGB", (90, 30), (255, 255, 255))
    seen = np.asarray(images(white, return_tensors="np")["pixel_values"][0])
    left, top, right, bottom = frame_of(images, (90, 30))
    assert (left, top, right, bottom) == (0, -30, 90, 60)
    rows = np.flatnonzero((seen > 100).all((0, 2)))  # where the image itself is
    assert (rows.min(), rows.max() + 1) == (10, 20)


def test_others_show_the_whole_image() -> None:
    assert frame_of(SimpleNamespace(image_processor=raster_images()), (48, 32)) == (0, 0, 48, 32)
    tiles = SimpleNamespace(
        image_grid_pinpoints=[[1, 2]],
        do_center_crop=True,
        size={"shortest_edge": 3},
        crop_size={"height": 3, "width": 3},
    )
    assert frame_of(tiles, (48, 32)) == (0, 0, 48, 32)
