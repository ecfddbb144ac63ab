"""GMC selects, and Transport realises, what the whole method of core does on the same inputs."""

from dataclasses import replace

import pytest
import torch

from tests.core.helpers import refused
from tests.methods.scenes import as_core, random_scene
from vicoset.core.coreset import build_coreset, clients_of, ground
from vicoset.core.coverage import facility
from vicoset.core.settings import Settings
from vicoset.errors import BudgetError, MethodError, NonFiniteError
from vicoset.methods import GMC, Transport
from vicoset.methods.gmc import reading_of

CASES = [
    {},
    {"seed": 1, "tokens": 120, "queries": 9, "history": 1},
    {"seed": 2, "tokens": 90, "images": 3, "history": 0},
    {"seed": 3, "tokens": 64, "images": 2, "axes": 3, "heads": 6, "key_heads": 1},
    {"seed": 4, "tokens": 70, "dtype": torch.bfloat16},
    {"seed": 5, "tokens": 60, "settings": Settings(long_prefix=40, long_clients=30, long_batch=2)},
    {"seed": 11, "tokens": 80, "settings": Settings(pool_factor=1, batch=4)},
    {"seed": 8, "tokens": 80, "settings": Settings(responsibility_temperature=20.0, batch=4)},
    {"seed": 9, "tokens": 80, "settings": Settings(current_mass=0.95, head_clusters=1)},
    {"seed": 10, "settings": Settings(gate_scale=0.03, assignment_margin=9.0, gate_power=1.0)},
    {
        "seed": 11,
        "settings": Settings(gate_scale=0.01, spatial_temperature=0.5, assignment_weight=3.0),
    },
    {"seed": 12, "settings": Settings(gate_scale=0.1, gate_power=1.0, population_strength=0.9)},
    {"seed": 6, "settings": Settings(row_mass="uniform", batch=3, probe_seed=7, probe_rank=2)},
]


@pytest.mark.parametrize("options", CASES, ids=str)
@pytest.mark.parametrize("keep", [3, 17])
def test_gmc_and_transport_are_the_coreset_of_core(options, keep):
    scene = random_scene(**options)
    people = as_core(scene)[0]
    whole = build_coreset(people, [reading_of(scene, v) for v in scene.views], keep, scene.settings)
    selection = GMC().select(scene, keep)
    assert torch.equal(selection.indices, whole.indices)
    realised = Transport().realise(scene, selection)
    assert realised.states.dtype == scene.states.dtype
    for name in ("states", "carrier", "mass", "gate"):
        assert torch.equal(getattr(realised, name), getattr(whole, name))


@pytest.mark.parametrize("options", CASES, ids=str)
def test_readings_are_native_attention_and_probed_values(options):
    scene = random_scene(**options)
    for view, plain in zip(scene.views, as_core(scene)[1], strict=True):
        found = reading_of(scene, view)
        torch.testing.assert_close(found.attention, plain.attention, rtol=1e-5, atol=1e-6)
        torch.testing.assert_close(found.messages, plain.messages, rtol=1e-5, atol=1e-4)


def test_native_mask_softcap_and_sinks_reach_the_attention():
    plain = random_scene(history=0)
    view = plain.views[0]
    length = view.keys.shape[1]
    causal = torch.ones(length, length, dtype=torch.bool).tril()

    def read(**changes):
        return reading_of(plain, view._replace(**changes)).attention

    assert torch.equal(read(mask=causal), read())
    changes = [
        {"softcap": 0.5},
        {"sinks": torch.ones(4)},
        {"sliding_window": 9},
        {"key_valid": torch.arange(length) > 4},
        {"scaling": 1.0},
    ]
    for change in changes:
        assert not torch.allclose(read(**change), read()), change


def test_evidence_is_that_of_the_support():
    scene = random_scene(tokens=80, images=2)
    found = GMC().select(scene, 12)
    evidence = found.evidence
    people, _ = as_core(scene)
    grounding = ground([reading_of(scene, view) for view in scene.views])
    clients = clients_of(people, grounding)
    value = facility(clients.matrix, found.indices)
    total = facility(clients.matrix, torch.arange(80))
    torch.testing.assert_close(evidence["value"], value)
    torch.testing.assert_close(evidence["total"], total)
    torch.testing.assert_close(evidence["ratio"], value / total)
    lost = 1.0 - evidence["progress"].double()
    torch.testing.assert_close(
        evidence["certificate"].double(), 1.0 - lost.prod(), atol=1e-6, rtol=0
    )
    assert evidence["banks"] == ("grounded", "appearance", "spatial")
    parts = evidence["bank_numerator"] / evidence["bank_denominator"]
    torch.testing.assert_close(evidence["bank_saturation"], parts)
    mixture = (evidence["bank_share"] * evidence["bank_saturation"]).sum()
    torch.testing.assert_close(mixture, evidence["ratio"])
    assert bool(evidence["finite"])
    assert evidence["blocks"] == [2, 0, 1]
    assert torch.equal(found.grounding.energy, grounding.energy)


def test_evidence_says_how_many_queries_were_read():
    scene = random_scene(queries=4)
    names = ("queries_read", "queries_potential", "queries_bounded")

    def counted(made):
        evidence = GMC().select(made, 5).evidence
        return tuple(evidence.get(name) for name in names)

    assert counted(scene) == (4, 4, False)
    assert counted(replace(scene, potential_queries=9)) == (4, 9, True)
    # At the bound, and nobody counted: nothing is claimed.
    assert counted(replace(scene, settings=Settings(max_queries=4))) == (4, None, None)


def test_everything_can_be_kept():
    assert GMC().select(random_scene(tokens=10), 10).indices.tolist() == list(range(10))


def test_refusals():
    scene = random_scene(images=3)
    with refused(BudgetError, "keep=2", "3 to 40"):
        GMC().select(scene, 2)
    with refused(BudgetError, "keep=41", "3 to 40"):
        GMC().select(scene, 41)
    with refused(MethodError, "'gmc'", "boundary 2"):
        GMC().select(replace(scene, views=()), 5)
    broken = scene.states.clone()
    broken[3, 1] = float("nan")
    with refused(NonFiniteError, "states", "(3, 1)"):
        GMC().select(replace(scene, states=broken), 5)
    values = scene.views[1].values.clone()
    values[0, 0, 0] = float("inf")
    views = (scene.views[0], scene.views[1]._replace(values=values), scene.views[2])
    with refused(NonFiniteError, "messages of block 0"):
        GMC().select(replace(scene, views=views), 5)
