"""Transport after any selector; its agreement with core after GMC is in test_gmc."""

from dataclasses import replace

import pytest
import torch

from tests.core.helpers import refused
from tests.methods.scenes import random_scene
from vicoset.core.settings import Settings
from vicoset.errors import NonFiniteError
from vicoset.methods import GMC, Random, Transport


def test_without_grounding_every_token_weighs_one():
    scene = random_scene(tokens=30, images=2)
    selection = Random().select(scene, 6)
    made = Transport().realise(scene, selection)
    assert torch.equal(made.mass, torch.ones(30))
    for j, index in enumerate(selection.indices):
        mine = scene.states[made.carrier == j]
        mean = mine.mean(0)
        own = scene.states[index]
        wanted = mean * own.square().mean().sqrt() / mean.square().mean().sqrt()
        torch.testing.assert_close(made.states[j], wanted)
        assert int(made.carrier[index]) == j
    assert torch.equal(scene.image_ids[selection.indices][made.carrier], scene.image_ids)


def test_grounding_moves_the_masses_once_the_gate_opens():
    settings = Settings(gate_scale=0.01)
    scene = random_scene(tokens=60, settings=settings)
    selection = GMC().select(scene, 8)
    made = Transport().realise(scene, selection)
    assert float(made.gate) > 0.9
    gate, energy = made.gate, selection.grounding.energy
    torch.testing.assert_close(made.mass, (1 - 0.5 * gate) + 0.5 * gate * energy)
    assert made.mass.std() > 0


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16])
def test_strength_zero_leaves_the_carriers(dtype):
    scene = random_scene(dtype=dtype, settings=Settings(transport_strength=0.0))
    selection = Random().select(scene, 6)
    made = Transport().realise(scene, selection)
    assert made.states.dtype == dtype
    torch.testing.assert_close(made.states, scene.states[selection.indices])


def test_a_scene_is_left_as_it_was():
    scene = random_scene(tokens=30)
    before = scene.states.clone()
    Transport().realise(scene, GMC().select(scene, 6))
    assert torch.equal(scene.states, before)


def test_non_finite_states_are_refused():
    scene = random_scene()
    selection = Random().select(scene, 6)
    broken = scene.states.clone()
    broken[0, 0] = float("inf")
    with refused(NonFiniteError, "states", "(0, 0)"):
        Transport().realise(replace(scene, states=broken), selection)
