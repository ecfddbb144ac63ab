"""LLaVA-NeXT and LLaVA-OneVision: base view, fine grid, newlines, and what packing does."""

import dataclasses

import pytest
import torch

from tests import zoo
from tests.models.observe import cells, close, layouts, observe
from tests.zoo_parts import VIDEO
from vicoset.errors import ImageError
from vicoset.models.families import family_of


@pytest.fixture(scope="module", params=["llava_next", "llava_onevision"])
def family(request):
    return request.param


@pytest.fixture(scope="module")
def model(family):
    return zoo.tiny(family)


@pytest.mark.parametrize("how", ["forward", "generate"])
@pytest.mark.parametrize("seed", range(5))
def test_base_view_and_fine_grid(model, family, how, seed):
    batch = zoo.written(model, family, [1], seed)
    inputs = zoo.prompt(model, family, [1], seed)
    (layout,) = layouts(model, inputs, how)
    lines, columns = batch.fine[0]
    close(layout.coordinates, cells(4, 4) + cells(lines, columns))
    start = batch.rows[0].index(150)
    newlines = [start + 16 + line * (columns + 1) + columns for line in range(lines)]
    expected = [start + n for n in range(16 + lines * (columns + 1))]
    assert layout.visual.tolist() == [place for place in expected if place not in newlines]
    assert not set(newlines) & set(layout.text.tolist())


def test_onevision_interpolates_large_grids():
    model = zoo.tiny("llava_onevision")
    grids = [zoo.written(model, "llava_onevision", [1], seed).fine[0] for seed in range(5)]
    sizes = [lines * columns for lines, columns in grids]
    assert max(sizes) <= 2 * 16 * 1.21 < 64


def test_several_images_of_a_onevision_row_have_base_views_only():
    model = zoo.tiny("llava_onevision")
    inputs = zoo.prompt(model, "llava_onevision", [2, 1], adjacent=True)
    two, one = layouts(model, inputs, "generate")
    close(two.coordinates, 2 * cells(4, 4))
    assert two.images == 2 and one.images == 1
    assert two.visual.diff().max() == 2  # one newline between the images


def test_onevision_video_has_pooled_frames_and_one_newline():
    model = zoo.tiny("llava_onevision")
    ids = torch.tensor([[5, 6, *[VIDEO] * (3 * 4 + 1), 7, 8]])
    inputs = {
        "input_ids": ids,
        "attention_mask": torch.ones_like(ids),
        "pixel_values_videos": torch.randn(1, 3, 3, 24, 24),
    }
    (layout,) = layouts(model, inputs, "generate")
    frames = [[(t + 0.5) / 3, *cell] for t in range(3) for cell in cells(2, 2)]
    close(layout.coordinates, frames)
    assert layout.images == 1
    assert layout.visual.tolist() == list(range(2, 14))
    assert layout.text.tolist() == [0, 1, 15, 16]


def test_missing_sizes_are_an_error(model, family):
    prompt = observe(model, zoo.prompt(model, family, [1]), "generate")
    with pytest.raises(ImageError, match="Pass image_sizes"):
        family_of(model).layouts(dataclasses.replace(prompt, kwargs={}))
