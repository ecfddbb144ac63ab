"""Smaller images: grids by brute force, and what models and records make of them."""

from __future__ import annotations

import math

import pytest
import torch

import vicoset
from tests import checkpoints
from tests.core.helpers import refused
from tests.runtime.helpers import model_of
from vicoset.errors import BudgetError, RuntimeStateError, UnsupportedError
from vicoset.models.resize import Cells
from vicoset.plan import Keep
from vicoset.runtime.downsample import Downsample, fitting, templated

EVERYTHING = {"plan": "random+drop@0", "keep": 1.0}


@pytest.mark.parametrize(
    ("full", "keep", "small"),
    [
        ((36, 36), 128, (11, 11)),  # 121 cells; 8 x 16 would be exact, and another picture
        ((36, 36), 256, (16, 16)),
        ((36, 36), 512, (23, 22)),  # 506, 22 x 22 has 484
        ((24, 24), 64, (8, 8)),
        ((20, 40), 128, (8, 16)),
        ((40, 20), 128, (16, 8)),
        ((6, 4), 24, (6, 4)),
        ((6, 4), 100, (6, 4)),
        ((6, 4), 1, (1, 1)),
        ((9, 3), 3, (3, 1)),
        ((9, 3), 2, (2, 1)),  # no grid of two cells has 3 : 1; 2 : 1 is nearer than 1 : 1
    ],
)
def test_grids_by_hand(full, keep, small):
    assert fitting(Cells(*full), keep) == small


@pytest.mark.parametrize("full", [(36, 36), (12, 31), (7, 5), (1, 9)])
def test_grids_by_brute_force(full):
    height, width = full
    for keep in range(1, height * width):
        found = fitting(Cells(*full), keep)
        assert found.tokens <= keep and found.height <= height and found.width <= width
        ratio = {
            (h, w): max(h * width / (w * height), w * height / (h * width))
            for h in range(1, height + 1)
            for w in range(1, width + 1)
            if h * w <= keep
        }
        close = [h * w for (h, w), off in ratio.items() if off <= 1.1 + 1e-12]
        if close:
            assert found.tokens == max(close) and ratio[found] <= 1.1 + 1e-12
        else:
            assert math.isclose(ratio[found], min(ratio.values()))


def encoded(family, keep, *chats):
    model, processor = checkpoints.model(family), PROCESSORS[family]()
    return model, processor, Downsample(model, processor, keep).encode(chats), chats


PROCESSORS = {"qwen2_5_vl": checkpoints.qwen_processor, "llava": checkpoints.llava_processor}
# 8 x 8 pixels a cell: 48 x 32 pixels are 4 x 6 cells. LLaVA: always 6 x 6.
ONE = checkpoints.question("what is it?", checkpoints.picture(48, 32))
TWO = checkpoints.question("a?", checkpoints.picture(48, 48, 1), checkpoints.picture(32, 16, 2))


def test_qwen_gets_the_grids_that_were_chosen():
    model, processor, shrunk, chats = encoded("qwen2_5_vl", 8, ONE, TWO)
    full = templated(processor, chats)
    assert full["image_grid_thw"].tolist() == [[1, 8, 12], [1, 12, 12], [1, 4, 8]]
    # K = 8 of 24: 2 x 3. Of 36 + 8 tokens the images get 6 and 2: 2 x 2 (not 2 x 3), 1 x 2.
    assert shrunk.full == (((4, 6),), ((6, 6), (2, 4)))
    assert shrunk.small == (((2, 3),), ((2, 2), (1, 2)))
    assert (shrunk.tokens, shrunk.kept) == ([24, 44], [6, 6])
    grids = shrunk.inputs["image_grid_thw"].tolist()
    assert grids == [[1, 4, 6], [1, 4, 4], [1, 2, 4]]
    pads = (shrunk.inputs["input_ids"] == model.config.image_token_id).sum(1)
    assert pads.tolist() == shrunk.kept


def test_the_small_picture_is_the_resized_one():
    _, processor, shrunk, _ = encoded("qwen2_5_vl", 8, ONE)
    by_hand = checkpoints.picture(48, 32).resize((24, 16), 3)
    images = processor.image_processor
    pixels = images(images=[by_hand], size={"shortest_edge": 1, "longest_edge": 10**6})
    torch.testing.assert_close(
        shrunk.inputs["pixel_values"], torch.as_tensor(pixels["pixel_values"])
    )
    # The bounds of the user's own processor are as they were: it would enlarge the picture.
    again = images(images=[checkpoints.picture(8, 8)])
    assert again["image_grid_thw"][0].prod() > 4


def test_llava_takes_another_size_and_interpolates_its_positions():
    model, processor, shrunk, chats = encoded("llava", 20, ONE, ONE)
    assert shrunk.full == (((6, 6),),) * 2 and shrunk.small == (((4, 4),),) * 2
    assert shrunk.inputs["pixel_values"].shape == (2, 3, 20, 20)
    small = Downsample(model, processor, 20)
    seen = []
    hook = model.model.vision_tower.embeddings.register_forward_hook(
        lambda module, args, out: seen.append(out)
    )
    with small.attached(), torch.no_grad():
        model(**shrunk.inputs)
    hook.remove()
    table = next(
        module for name, module in model.named_modules() if name.endswith("position_embedding")
    ).weight.detach()
    grid = table[1:].T.reshape(1, -1, 6, 6)
    wanted = torch.nn.functional.interpolate(grid, (4, 4), mode="bicubic").flatten(2)[0].T
    with torch.no_grad():
        patch = model.model.vision_tower.embeddings.patch_embedding(shrunk.inputs["pixel_values"])
    torch.testing.assert_close(seen[0][0, 1:] - patch[0].flatten(1).T, wanted, atol=1e-5, rtol=1e-4)
    with pytest.raises(ValueError), torch.no_grad():  # and the model is as it was
        model(**shrunk.inputs)
    with torch.no_grad():
        model(**templated(processor, chats))


@pytest.mark.parametrize("family", list(PROCESSORS))
def test_a_record_says_what_the_small_picture_costs_beside_the_whole(family):
    model, processor = checkpoints.model(family), PROCESSORS[family]()
    small = vicoset.downsample(model, processor, keep=10)
    shrunk = small.encode([ONE])
    with small.attached(), vicoset.compress(model, **EVERYTHING) as run:
        model.generate(**shrunk.inputs, max_new_tokens=2)
    (record,) = shrunk.records(run.records)
    with vicoset.compress(model, **EVERYTHING) as run:
        model.generate(**templated(processor, [ONE]), max_new_tokens=2)
    full = run.last
    wanted = {"qwen2_5_vl": (24, 6), "llava": (36, 9)}[family]
    assert (record.tokens, record.kept) == (full.tokens, shrunk.kept[0]) == wanted
    assert (record.length, record.full_kv_bytes) == (full.length, full.full_kv_bytes)
    assert record.compact_length == full.length - wanted[0] + wanted[1]
    assert record.kv_bytes * full.length == record.full_kv_bytes * record.compact_length
    assert record.work == record.depth * wanted[1]
    assert record.plan == "downsample" and record.digest != full.digest
    (stage,) = record.stages
    assert (stage.boundary, stage.selector, stage.tokens) == (0, "downsample", wanted[0])
    assert stage.evidence["grids"] == [[*shrunk.full[0][0], *shrunk.small[0][0]]]
    assert f"realised K = {wanted[1]} of the 10 asked for" in record.notes[-1]
    json = record.to_json()
    assert json["plan"]["name"] == "downsample" and json["keep"] == {"tokens": 10}
    with refused(RuntimeStateError, "kept tokens", str(wanted[0])):
        shrunk.records([full])


@pytest.mark.parametrize("family", list(PROCESSORS))
def test_a_budget_of_everything_changes_nothing(family):
    model, processor, shrunk, chats = encoded(family, Keep(fraction=1.0), ONE, ONE)
    plain = templated(processor, chats)
    assert all(torch.equal(value, shrunk.inputs[name]) for name, value in plain.items())
    small = Downsample(model, processor, 1.0)
    with torch.no_grad():
        wanted = model(**plain).logits
        with small.attached():
            assert torch.equal(model(**shrunk.inputs).logits, wanted)


def test_what_cannot_be_made_smaller_is_refused():
    qwen, processor = checkpoints.model("qwen2_5_vl"), checkpoints.qwen_processor()
    with refused(BudgetError, "coverage", "Keep(tokens=128)"):
        Downsample(qwen, processor, Keep(coverage=0.9))
    with refused(UnsupportedError, "qwen2_5_vl", "llava", "grid@0"):
        Downsample(model_of("gemma3"), processor, 8)
    small = Downsample(qwen, processor, 8)
    for part, word in (
        ({"type": "image", "image": "picture.png"}, "a str"),
        ({"type": "video", "video": []}, "a video"),
    ):
        with refused(UnsupportedError, word):
            small.encode([[{"role": "user", "content": [part]}]])
    llava = Downsample(checkpoints.model("llava"), checkpoints.llava_processor(), 20)
    with refused(UnsupportedError, "[1, 2] images", "batch of 1"):
        llava.encode([ONE, TWO])
