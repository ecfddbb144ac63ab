"""What holds for the layouts of every family, on real inputs through the vision tower."""

import pytest
import torch

from tests import zoo
from tests.models.observe import layouts, words
from tests.zoo_parts import IMAGE, VIDEO
from vicoset.models.families import FAMILIES, decoder_of, family_of, layers_of


@pytest.fixture(scope="module", params=zoo.FAMILIES)
def family(request):
    return request.param


@pytest.fixture(scope="module")
def model(family):
    return zoo.tiny(family)


def is_placeholder(ids):
    return ((ids == IMAGE) | (ids == VIDEO)).nonzero().flatten().tolist()


def same(one, other, shift=0):
    assert one.images == other.images
    torch.testing.assert_close(one.visual + shift, other.visual)
    torch.testing.assert_close(one.image_ids, other.image_ids)
    torch.testing.assert_close(one.coordinates, other.coordinates)
    torch.testing.assert_close(one.text + shift, other.text)


@pytest.mark.parametrize("how", ["forward", "generate"])
@pytest.mark.parametrize("adjacent", [False, True])
def test_batch_of_unequal_rows(model, family, how, adjacent):
    inputs = zoo.prompt(model, family, [1, 2, 0], seed=1, adjacent=adjacent)
    found = layouts(model, inputs, how)
    assert [None if layout is None else layout.images for layout in found] == [1, 2, None]
    for row, layout in enumerate(found[:2]):
        ids = inputs["input_ids"][row]
        placeholders = is_placeholder(ids)
        assert set(layout.visual.tolist()) <= set(placeholders)
        if "next" not in family and "onevision" not in family:  # those have newlines among them
            assert layout.visual.tolist() == placeholders
        assert layout.text.tolist() == words(inputs, row).tolist()
        assert (layout.visual.diff() > 0).all()
        assert (layout.image_ids.diff() >= 0).all()
        assert layout.image_ids.unique().tolist() == list(range(layout.images))
        assert layout.coordinates.shape == (len(layout.visual), 2)
        assert layout.coordinates.dtype == torch.float32
        assert layout.coordinates.min() > 0 and layout.coordinates.max() < 1
        assert layout.visual.dtype == layout.image_ids.dtype == layout.text.dtype == torch.int64


@pytest.mark.parametrize("row", [0, 1])
def test_a_padded_row_is_the_single_row_moved(model, family, row):
    inputs = zoo.prompt(model, family, [1, 2, 0], seed=2)
    single = zoo.prompt(model, family, [1, 2, 0], seed=2, row=row)
    shift = inputs["input_ids"].shape[1] - single["input_ids"].shape[1]
    padded = layouts(model, inputs)[row]
    same(layouts(model, single, "generate")[0], padded, shift)


def test_beams_repeat_the_rows(model, family):
    if family == "llama4":
        pytest.skip("transformers repeats no Llama4 features for beams: its own forward fails")
    counts = [1, 0, 1] if family == "glm4v" else [1, 2, 0]
    inputs = zoo.prompt(model, family, counts, seed=3)
    plain = layouts(model, inputs, "generate")
    beams = layouts(model, inputs, "generate", num_beams=2)
    assert len(beams) == 6
    for row, layout in enumerate(plain):
        for copy in beams[2 * row : 2 * row + 2]:
            assert (copy is None) == (layout is None)
            if layout is not None:
                same(copy, layout)


def test_text_only_batch(model, family):
    inputs = zoo.prompt(model, family, [0, 0])
    assert layouts(model, inputs) == [None, None]


def test_family_decoder_and_ids(model, family):
    found = family_of(model)
    assert found.certified and found in FAMILIES
    assert IMAGE in found.visual_ids(model.config)
    assert len(layers_of(model)) == 5
    assert decoder_of(model).layers is layers_of(model)
    assert found.refusals(model.config) == []
    assert all(window == 2048 for window in found.windows(model.config).values())


def test_zoo_gives_the_same_answer_alone_and_padded(model, family):
    inputs = zoo.prompt(model, family, [1, 2, 0], seed=4)
    with torch.no_grad():
        batch = model(**inputs).logits[:, -1]
        for row in range(3):
            single = zoo.prompt(model, family, [1, 2, 0], seed=4, row=row)
            logits = model(**single).logits[0, -1]
            torch.testing.assert_close(logits, batch[row], rtol=0, atol=5e-6)
