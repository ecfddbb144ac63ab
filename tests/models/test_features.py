"""Watching the vision tower: what is recorded, and that nothing stays behind."""

import inspect
from types import SimpleNamespace

import pytest
import torch

from tests import zoo
from vicoset.models.features import (
    argument,
    lengths_from,
    lengths_of,
    owner_of,
    watch_image_features,
    watch_of,
)


@pytest.fixture(scope="module", params=["qwen2_5_vl", "llava", "llava_next", "llama4"])
def model(request):
    model = zoo.tiny(request.param)
    model.name = request.param
    return model


def test_nothing_stays_behind(model):
    owner = owner_of(model)
    before, signature = dict(vars(owner)), inspect.signature(owner.get_image_features)
    watch = watch_image_features(model)
    assert watch_of(model) is watch
    assert inspect.signature(owner.get_image_features) == signature
    watch.close()
    assert vars(owner) == before and watch_of(model) is None
    watch.close()
    with pytest.raises(KeyboardInterrupt), watch_image_features(model):
        raise KeyboardInterrupt
    assert vars(owner) == before


def test_an_own_function_of_the_instance_comes_back():
    model = SimpleNamespace(get_image_features=lambda pixels: pixels)
    own = model.get_image_features
    with watch_image_features(model) as watch:
        model.get_image_features(torch.zeros(2, 5, 3))
        assert watch.lengths == [5, 5]
    assert model.get_image_features is own


def test_an_exception_in_the_tower_leaves_the_watch_usable():
    def broken(pixels):
        if pixels is None:
            raise ValueError("no pixels")
        return [pixels]

    model = SimpleNamespace(get_image_features=broken)
    with watch_image_features(model) as watch:
        with pytest.raises(ValueError, match="no pixels"):
            model.get_image_features(None)
        model.get_image_features(torch.zeros(4, 3))
        assert watch.lengths == [4]
        watch.clear()
        assert watch.lengths is None and watch.video_lengths is None


def test_watched_logits_are_the_same_bits(model):
    inputs = zoo.prompt(model, model.name, [1, 2])
    with torch.no_grad():
        plain = model(**inputs).logits
        with watch_image_features(model):
            assert torch.equal(model(**inputs).logits, plain)
        assert torch.equal(model(**inputs).logits, plain)


def test_consumed_arguments_are_remembered():
    model = zoo.tiny("llava_next")
    inputs = zoo.prompt(model, "llava_next", [1, 1])
    with watch_image_features(model), torch.no_grad():
        model.generate(**inputs, max_new_tokens=1)
        seen = argument(model, {}, "image_sizes")
        assert seen.tolist() == inputs["image_sizes"].tolist()
        assert argument(model, {"image_sizes": 3}, "image_sizes") == 3
        assert argument(model, {}, "pixel_values") is None
    assert argument(model, {}, "image_sizes") is None


def test_videos_do_not_count_as_images():
    model = zoo.tiny("qwen3_vl")  # its videos are encoded by the image function
    inputs = zoo.prompt(model, "qwen3_vl", [1], films=1)
    with watch_image_features(model) as watch, torch.no_grad():
        model(**inputs)
        assert watch.lengths == [int(inputs["image_grid_thw"].prod()) // 4]
        assert watch.video_lengths == [int(inputs["video_grid_thw"].prod()) // 4]


def test_lengths_of_outputs():
    parts = [torch.zeros(3, 2), torch.zeros(5, 2)]
    assert lengths_of(SimpleNamespace(pooler_output=parts)) == [3, 5]
    assert lengths_of(tuple(parts)) == [3, 5]
    assert lengths_of(torch.zeros(2, 4, 3)) == [4, 4]
    assert lengths_of((tuple(parts), [torch.zeros(8, 2)])) == [3, 5]
    assert lengths_of(SimpleNamespace(pooler_output=None)) is None
    assert lengths_of(torch.zeros(2)) is None
    encoded = {"image": SimpleNamespace(pooler_output=parts)}
    assert lengths_from({"mm_encoder_outputs": encoded}) == [3, 5]
    assert lengths_from({"mm_encoder_outputs": encoded}, "video") is None
    assert lengths_from({}) is None and lengths_from({"mm_encoder_outputs": None}) is None
