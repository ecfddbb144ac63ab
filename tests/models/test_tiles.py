"""Families that cut images into tiles: where each tile lies, by its markers or by its looks."""

import dataclasses

import pytest
import torch

from tests import zoo
from tests.models.observe import cells, close, layouts, observe
from vicoset.models.arrange import arrangement
from vicoset.models.families import family_of

FAMILIES = ["internvl", "aya_vision", "idefics3", "smolvlm", "llama4"]


@pytest.fixture(scope="module", params=FAMILIES)
def family(request):
    return request.param


@pytest.fixture(scope="module")
def model(family):
    return zoo.tiny(family)


def tiled(lines, columns):
    """Coordinates of all tiles of 4 x 4 tokens, and of the thumbnail behind several of them."""
    if lines * columns == 1:
        return cells(4, 4)
    return [
        [(line + y) / lines, (column + x) / columns]
        for line in range(lines)
        for column in range(columns)
        for y, x in cells(4, 4)
    ] + cells(4, 4)


@pytest.mark.parametrize("how", ["forward", "generate"])
@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize("adjacent", [False, True])
def test_tiles_lie_where_they_were_cut(model, family, how, seed, adjacent):
    batch = zoo.written(model, family, [1, 2, 0], seed, adjacent)
    inputs = zoo.prompt(model, family, [1, 2, 0], seed, adjacent)
    one, two, none = layouts(model, inputs, how)
    close(one.coordinates, tiled(*batch.tilings[0]))
    close(two.coordinates, tiled(*batch.tilings[1]) + tiled(*batch.tilings[2]))
    assert two.image_ids.bincount().tolist() == [len(tiled(*cut)) for cut in batch.tilings[1:]]
    assert none is None


def test_without_pixels_a_tile_is_its_own_square():
    for family in ("internvl", "aya_vision"):
        model = zoo.tiny(family)
        prompt = observe(model, zoo.prompt(model, family, [1]))
        (layout,) = family_of(model).layouts(prompt)  # nobody watches the model any more
        close(layout.coordinates, 7 * cells(4, 4))


def views(lines, columns, side=16, seed=0):
    generator = torch.Generator().manual_seed(seed)
    whole = torch.rand(3, lines * side, columns * side, generator=generator)
    whole = torch.nn.functional.avg_pool2d(whole, 4, 1, 2)[:, : lines * side, : columns * side]
    tiles = whole.reshape(3, lines, side, columns, side).permute(1, 3, 0, 2, 4).flatten(0, 1)
    thumbnail = torch.nn.functional.adaptive_avg_pool2d(whole, side)
    return torch.cat([tiles, thumbnail[None]])


@pytest.mark.parametrize("shape", [(1, 2), (2, 1), (2, 3), (3, 2), (1, 6), (4, 3), (2, 2)])
def test_looks_tell_the_arrangement(shape):
    assert arrangement(views(*shape)) == shape


def test_looks_of_a_blank_or_foreign_thumbnail_tell_nothing():
    assert arrangement(torch.ones(7, 3, 16, 16)) is None
    foreign = views(2, 3)
    foreign[-1] = torch.rand(3, 16, 16, generator=torch.Generator().manual_seed(1))
    assert arrangement(foreign) is None


def test_lengths_are_not_needed_where_markers_speak():
    for family in ("idefics3", "smolvlm", "llama4"):
        model = zoo.tiny(family)
        prompt = observe(model, zoo.prompt(model, family, [1]))
        (layout,) = family_of(model).layouts(dataclasses.replace(prompt, image_lengths=None))
        close(layout.coordinates, tiled(2, 3))
