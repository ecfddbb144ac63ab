"""Families with one grid an image: LLaVA, PaliGemma, Gemma3, and rows of a Pixtral tower."""

import dataclasses
import warnings

import pytest
import torch

from tests import zoo
from tests.models.observe import cells, close, layouts, observe
from tests.zoo_parts import END, IMAGE, MARK, START
from vicoset.errors import ImageError
from vicoset.models.families import family_of
from vicoset.models.layout import PromptInputs

SIDES = {"llava": 6, "llava_mistral": 6, "vipllava": 6, "paligemma2": 4, "gemma3": 4}


@pytest.fixture(scope="module", params=SIDES)
def family(request):
    return request.param


@pytest.fixture(scope="module")
def model(family):
    return zoo.tiny(family)


@pytest.mark.parametrize("adjacent", [False, True])
def test_squares_in_row_major_order(model, family, adjacent):
    found = layouts(model, zoo.prompt(model, family, [1, 2], adjacent=adjacent), "generate")
    side = SIDES[family]
    close(found[0].coordinates, cells(side, side))
    close(found[1].coordinates, 2 * cells(side, side))
    assert found[1].image_ids.bincount().tolist() == [side**2, side**2]


def test_adjacent_images_without_lengths_are_split_by_the_configuration(model, family):
    prompt = observe(model, zoo.prompt(model, family, [2], adjacent=True))
    (layout,) = family_of(model).layouts(dataclasses.replace(prompt, image_lengths=None))
    assert layout.images == 2


def test_a_length_that_is_no_square_is_an_error(model, family):
    ids = torch.tensor([[5, *[IMAGE] * 7, 6]])
    prompt = PromptInputs(model, ids, torch.ones_like(ids, dtype=torch.bool), None, [7])
    with pytest.raises(ImageError, match="no square"):
        family_of(model).layouts(prompt)


def test_a_class_token_covers_the_whole_image():
    model = zoo.tiny("llava")
    ids = torch.tensor([[5, *[IMAGE] * 10, 6]])
    prompt = PromptInputs(model, ids, torch.ones_like(ids, dtype=torch.bool), None, [10])
    (layout,) = family_of(model).layouts(prompt)
    close(layout.coordinates, [[0.5, 0.5], *cells(3, 3)])


def test_gemma_markers_are_structural():
    model = zoo.tiny("gemma3")
    inputs = zoo.prompt(model, "gemma3", [1])
    (layout,) = layouts(model, inputs)
    ids = inputs["input_ids"][0, layout.text]
    assert START not in ids and END not in ids


@pytest.mark.parametrize("lengths", ["seen", "unseen"])
def test_mistral3_rows_end_in_breaks(lengths):
    model = zoo.tiny("mistral3")
    inputs = zoo.prompt(model, "mistral3", [2, 1], seed=1, adjacent=True)
    prompt = observe(model, inputs, "generate")
    if lengths == "unseen":
        prompt = dataclasses.replace(prompt, image_lengths=None)
    two, one = family_of(model).layouts(prompt)
    grids = [(height // 8, width // 8) for height, width in inputs["image_sizes"].tolist()]
    close(two.coordinates, cells(*grids[0]) + cells(*grids[1]))
    close(one.coordinates, cells(*grids[2]))
    assert two.images == 2
    marks = inputs["input_ids"][0, two.text]
    assert MARK not in marks and MARK + 1 not in marks


def test_a_pixtral_tower_inside_of_llava():
    from transformers import LlavaConfig, LlavaForConditionalGeneration

    from tests.zoo_parts import square_tower, text_part

    config = LlavaConfig(
        text_config=text_part({"model_type": "mistral"}, head_dim=16),
        vision_config=square_tower(64, 8, "pixtral", head_dim=16),
        image_token_index=IMAGE,
        vision_feature_select_strategy="full",
        vision_feature_layer=-1,
    )
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        model = LlavaForConditionalGeneration._from_config(config).eval()
    rows = [IMAGE] * 3 + [MARK] + [IMAGE] * 3 + [MARK + 1]
    ids = torch.tensor([[5, 6, *rows, 7, 8]])
    inputs = {
        "input_ids": ids,
        "attention_mask": torch.ones_like(ids),
        "pixel_values": torch.randn(1, 3, 16, 24),
        "image_sizes": torch.tensor([[16, 24]]),
    }
    (layout,) = layouts(model, inputs)
    close(layout.coordinates, cells(2, 3))
    assert layout.text.tolist() == [0, 1, 10, 11]


def test_rows_of_unequal_width_are_an_error():
    model = zoo.tiny("mistral3")
    ids = torch.tensor([[5, IMAGE, IMAGE, MARK, IMAGE, MARK + 1, 6]])
    prompt = PromptInputs(model, ids, torch.ones_like(ids, dtype=torch.bool), None, [3])
    with pytest.raises(ImageError, match="rows of"):
        family_of(model).layouts(prompt)
