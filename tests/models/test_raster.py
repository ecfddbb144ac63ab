"""Families with multimodal positions: grids, videos, and the positions that lost their axes."""

import dataclasses

import pytest
import torch

from tests import zoo
from tests.models.observe import cells, close, layouts, observe
from tests.zoo_parts import IMAGE, VIDEO
from vicoset.errors import ImageError, PositionError
from vicoset.models.families import family_of


@pytest.fixture(scope="module", params=zoo.WITH_FILMS)
def family(request):
    return request.param


@pytest.fixture(scope="module")
def model(family):
    return zoo.tiny(family)


def merged(grids):
    """Merged heights and widths, from the grids that the processor reports."""
    return [(height // 2, width // 2) for _, height, width in grids.tolist()]


@pytest.mark.parametrize("how", ["forward", "generate"])
def test_coordinates_are_the_grid_of_the_processor(model, family, how):
    inputs = zoo.prompt(model, family, [1, 3], seed=1)
    one, three = layouts(model, inputs, how)
    grids = merged(inputs["image_grid_thw"])
    close(one.coordinates, cells(*grids[0]))
    close(three.coordinates, [cell for grid in grids[1:] for cell in cells(*grid)])
    sizes = [height * width for height, width in grids[1:]]
    assert three.image_ids.bincount().tolist() == sizes


@pytest.mark.parametrize("how", ["forward", "generate"])
def test_a_video_is_one_identity_with_time(model, family, how):
    # GLM writes one placeholder for both: its own forward takes images or videos, not a mixture.
    stills = 0 if family == "glm4v" else 1
    inputs = zoo.prompt(model, family, [stills, 0], seed=2, films=[1, 2])
    mixed, films = layouts(model, inputs, how)
    places = []
    for frames, height, width in inputs["video_grid_thw"].tolist():
        plane = cells(height // 2, width // 2)
        places.append([[(t + 0.5) / frames, *cell] for t in range(frames) for cell in plane])
    still = cells(*merged(inputs["image_grid_thw"])[0]) if stills else []
    assert (mixed.images, films.images) == (stills + 1, 2)
    close(mixed.coordinates, [[0.5, *cell] for cell in still] + places[0])
    close(films.coordinates, places[1] + places[2])
    assert films.image_ids.bincount().tolist() == [len(places[1]), len(places[2])]


def test_what_stands_between_frames_is_no_query(model, family):
    inputs = zoo.prompt(model, family, 0, seed=3, films=1)
    (layout,) = layouts(model, inputs)
    first, last = int(layout.visual[0]), int(layout.visual[-1])
    assert not [place for place in layout.text.tolist() if first < place < last]
    assert (layout.text > last).sum() >= 5 and (layout.text < first).sum() >= 3


def test_two_videos_without_lengths_are_read_from_the_grids(model, family):
    inputs = zoo.prompt(model, family, 0, seed=4, films=2)
    prompt = observe(model, inputs)
    (layout,) = family_of(model).layouts(dataclasses.replace(prompt, image_lengths=None))
    assert layout.images == 2


def test_images_without_lengths_are_the_runs(model, family):
    prompt = observe(model, zoo.prompt(model, family, [2, 1], seed=5))
    alone = dataclasses.replace(prompt, image_lengths=None)
    found = family_of(model).layouts(alone)
    assert [layout.images for layout in found] == [2, 1]


def test_missing_token_types_are_an_error(model, family):
    inputs = zoo.prompt(model, family, [1, 2], seed=6)
    if "mm_token_type_ids" not in inputs:
        pytest.skip("this transformers finds the positions without token types")
    del inputs["mm_token_type_ids"]
    for how in ("forward", "generate"):
        # Qwen2-VL's own forward already complains; everywhere else the layout has to.
        with pytest.raises(ValueError, match=r"ass `?mm_token_type_ids"):
            layouts(model, inputs, how)


def test_one_dimensional_positions_are_an_error(model, family):
    prompt = observe(model, zoo.prompt(model, family, [1, 2]))
    flat = torch.arange(prompt.input_ids.shape[1])
    for positions in (None, flat.expand(2, -1), flat.expand(3, 2, -1), flat.expand(4, 2, -1)):
        with pytest.raises(PositionError, match="Pass mm_token_type_ids"):
            family_of(model).layouts(dataclasses.replace(prompt, position_ids=positions))


def test_a_single_token_image_has_equal_axes_and_is_fine(model, family):
    prompt = observe(model, zoo.prompt(model, family, 1))
    ids = torch.tensor([[5, IMAGE, 6]])
    positions = torch.arange(3).expand(3, 1, 3)
    one = dataclasses.replace(
        prompt,
        input_ids=ids,
        attended=torch.ones_like(ids, dtype=torch.bool),
        position_ids=positions,
        image_lengths=[1],
    )
    (layout,) = family_of(model).layouts(one)
    close(layout.coordinates, [[0.5, 0.5]])
    assert layout.text.tolist() == [0, 2]


def test_positions_that_are_no_raster_are_an_error(model, family):
    prompt = observe(model, zoo.prompt(model, family, 1))
    shuffled = prompt.position_ids.flip(-1)
    with pytest.raises(PositionError, match="raster"):
        family_of(model).layouts(dataclasses.replace(prompt, position_ids=shuffled))


def test_lengths_of_other_images_are_an_error(model, family):
    prompt = observe(model, zoo.prompt(model, family, 1))
    with pytest.raises(ImageError, match="vision tower returned 7"):
        family_of(model).layouts(dataclasses.replace(prompt, image_lengths=[7]))


def test_visual_ids(model, family):
    assert set(family_of(model).visual_ids(model.config)) == {IMAGE, VIDEO}
