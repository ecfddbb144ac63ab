"""DART: a case by hand, and against loops over a model's own keys and states."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from transformers import DynamicCache

from tests.core.helpers import refused
from tests.methods.parts import at_input, normal
from tests.runtime.helpers import ROWS, compressed, decoder_of, logits, model_of, prompt
from vicoset.errors import SettingError
from vicoset.methods.base import Decoder, View
from vicoset.methods.dart import Dart

# Six visual tokens on the circle; the two with the longest keys are 0 and 3.
DEGREES = torch.tensor([0.0, 20.0, 60.0, 90.0, 150.0, 200.0])
LENGTHS = torch.tensor([9.0, 1, 1, 8, 1, 1])
WORDS = torch.tensor([100.0, 7.0, 6.0, 5.0])  # before the image, then behind it
AT = torch.tensor([0.0, 100.0, 10.0, 270.0])


def on_circle(degrees):
    return torch.stack([degrees.deg2rad().cos(), degrees.deg2rad().sin()], 1)


def by_hand(**numbers):
    """The selection of a scene whose keys have the lengths above, spread over two key heads."""
    lengths = torch.cat([WORDS[:1], LENGTHS, WORDS[1:]])
    keys = torch.stack([-0.25 * lengths, 0.75 * lengths])[..., None]
    decoder = Decoder(1, id, id, lambda states: states * torch.tensor([1.0, 1.0]))
    states = on_circle(DEGREES) * torch.tensor([[1.0], [9], [1], [4], [1], [1]])
    view = View(0, keys, keys, keys, id, 1.0)
    scene = at_input(
        states, on_circle(AT[1:3]), boundary=1, previous=view, decoder=decoder,
        text_states=on_circle(AT),
    )  # fmt: skip
    keep = numbers.pop("keep")
    return Dart(**numbers).select(scene, keep).indices.tolist()


def test_shares_by_hand():
    # Pivots 0 and 3, then the word at 100 degrees; the word before the image is none.
    two = {"image_pivots": 2, "text_pivots": 1}
    assert by_hand(keep=1, **two) == [0]
    assert by_hand(keep=2, **two) == [0, 3]
    # 0 takes first what is farthest from 0 degrees: 200. Token 3 (90) then takes 0-20-60-150: 20
    # is 70 away, 150 is 60, 60 is 30. The word (100) has 60 and 150 left: 40 against 50.
    assert by_hand(keep=3, **two) == [0, 3, 5]
    assert by_hand(keep=4, **two) == [0, 1, 3, 5]
    assert by_hand(keep=5, **two) == [0, 1, 3, 4, 5]
    # Without the word token 0 takes two, 200 and 150; with the words alone behind one pivot
    # each takes one: 0 takes 200, the word at 100 then 0-20: 20, the word at 10 then 150.
    assert by_hand(keep=4, image_pivots=2, text_pivots=0) == [0, 1, 3, 5]
    assert by_hand(keep=5, image_pivots=2, text_pivots=0) == [0, 1, 3, 4, 5]
    assert by_hand(keep=4, image_pivots=1, text_pivots=2) == [0, 1, 4, 5]


def cosine(left, right):
    return left @ right / np.linalg.norm(left) / np.linalg.norm(right)


@pytest.mark.parametrize("family", ["qwen2_5_vl", "llava"])
def test_loops_over_the_cache_agree(family):
    model = model_of(family)
    inputs = prompt(model, family, ROWS, seed=2)
    cache = DynamicCache()
    with torch.no_grad():
        inside = model(
            **inputs, output_hidden_states=True, past_key_values=cache, use_cache=True
        ).hidden_states[2]
        normed = decoder_of(model).norm(inside).double().numpy()
    keys = cache.layers[1].keys  # rotated, as block 1 attended to them
    for keep in (3, 7, 8):
        seen = []
        with compressed(model, "dart+drop@2", keep, watch=seen.append):
            logits(model, inputs)
        for found in seen:
            scene, row = found.scene, found.row
            visual = scene.visual.tolist()
            length = keys[row].abs().sum((0, 2)).tolist()
            behind = [t for t in scene.text.positions.tolist() if t > visual[-1]]
            pivots = sorted(visual, key=lambda t: -length[t])[: min(4, keep)]
            picked = list(pivots)
            pivots += sorted(behind, key=lambda t: -length[t])[:4]
            rest = keep - len(picked)
            for turn, pivot in enumerate(pivots):
                free = [t for t in visual if t not in picked]
                free.sort(key=lambda t: cosine(normed[row, t], normed[row, pivot]))
                picked += free[: rest // len(pivots) + (turn < rest % len(pivots))]
            owners = [int(scene.image_ids[visual.index(t)]) for t in picked]
            if set(owners) != set(range(scene.images)):
                continue  # the last picks then go to an image without a carrier
            wanted = sorted(visual.index(t) for t in picked)
            assert found.selection.indices.tolist() == wanted
        assert len(seen) == 2


def test_exactly_k_where_the_released_shares_are_not():
    states = normal(0, 576, 8)
    keys = normal(1, 2, 580, 4)
    decoder = Decoder(1, id, id, lambda rows: rows)
    scene = at_input(
        states, boundary=1, previous=View(0, keys, keys, keys, id, 1.0), decoder=decoder
    )
    for keep in (64, 128):
        assert len(Dart().select(scene, keep).indices.unique()) == keep


def test_numbers_of_pivots_are_whole():
    with refused(SettingError, "image_pivots=0", "from 1 on"):
        Dart(image_pivots=0)
    with refused(SettingError, "text_pivots=1.5", "from 0 on"):
        Dart(text_pivots=1.5)
