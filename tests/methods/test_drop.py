"""Hard deletion keeps states bit for bit."""

import pytest
import torch

from tests.methods.scenes import random_scene
from vicoset.methods import GMC, Drop, Random


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.float16, torch.bfloat16])
@pytest.mark.parametrize("selector", [GMC(), Random()], ids=str)
def test_kept_states_stay_and_the_rest_has_no_carrier(selector, dtype):
    scene = random_scene(tokens=30, images=2, dtype=dtype)
    selection = selector.select(scene, 7)
    made = Drop().realise(scene, selection)
    assert made.states.dtype == dtype
    assert torch.equal(made.states, scene.states[selection.indices])
    assert made.carrier[selection.indices].tolist() == list(range(7))
    gone = torch.ones(30, dtype=torch.bool)
    gone[selection.indices] = False
    assert made.carrier[gone].unique().tolist() == [-1]
    assert torch.equal(made.mass == 0, gone) and float(made.mass.sum()) == 7
    assert float(made.gate) == 0


def test_the_kept_states_are_a_copy():
    scene = random_scene(tokens=30)
    made = Drop().realise(scene, Random().select(scene, 7))
    before = scene.states.clone()
    made.states.zero_()
    assert torch.equal(scene.states, before)
