"""Switches of GMC take their clients out and leave everything else; names say which."""

import itertools
from dataclasses import replace

import numpy as np
import pytest
import torch

from tests import oracle
from tests.core.helpers import refused
from tests.methods.scenes import as_core, random_scene
from vicoset.core.settings import Settings
from vicoset.errors import MethodError, PlanError, SettingError, UnknownNameError
from vicoset.evaluate.statistics.factorial import effects
from vicoset.methods import GMC
from vicoset.methods.gmc import SWITCHES, reading_of
from vicoset.methods.interventions import FACTORS, PATHWAY, crosses, factorial, probes
from vicoset.plan import names_in, plan_named


def oracle_clients(scene, on):
    """The client matrix with some clients left out, in float64 and by the oracle's own code."""
    views, grams = [], []
    for reading in as_core(replace(scene, states=scene.states.double()))[1]:
        A, Z = reading.attention.double().numpy(), reading.messages.double().numpy()
        sigma = oracle.mass_coordinate(Z)
        views.append((A, oracle.atom_norms(Z, sigma)))
        grams.append(oracle.view_gram(A, Z, sigma))
    gram = oracle.head_gram(grams, oracle.view_masses(len(views) - 1))
    omega = oracle.head_weights(gram, oracle.head_clusters(gram))
    nu = oracle.query_weights(views[0][0].shape[1])
    past = len(views) - 1
    masses = {
        (True, True): oracle.view_masses(past),
        (True, False): [1.0] + [0.0] * past,
        (False, True): [0.0] + [1.0 / max(past, 1)] * past,
        (False, False): [0.0] * (1 + past),
    }[on["message"], on["history"]]
    ids, states = scene.image_ids.numpy(), scene.states.double().numpy()
    banks = [
        oracle.grounded_bank(views, omega, nu, masses),
        oracle.appearance_bank(states, ids),
        oracle.spatial_bank(scene.coordinates.double().numpy(), ids, scene.images),
    ]
    for bank in banks[1:]:
        bank["masses"] *= on[bank["name"]]
    return oracle.client_matrix(banks)


@pytest.mark.parametrize(
    "levels", [x for x in itertools.product((True, False), repeat=4) if any(x)]
)
@pytest.mark.parametrize("history", [0, 2])
def test_a_switch_takes_its_clients_out(levels, history):
    on = dict(zip(SWITCHES, levels, strict=True))
    scene = random_scene(seed=sum(2**i * v for i, v in enumerate(levels)), history=history)
    if history == 0 and levels == (False, True, False, False):
        with refused(MethodError, "block 0"):
            GMC(**on).select(scene, 9)
        return
    found = GMC(**on).select(scene, 9)
    matrix, books = oracle_clients(scene, on)
    solved = oracle.select(matrix, 9)
    assert min(cut for r in solved["rounds"] for cut in (r["gain_margin"], r["score_margin"])) > 0
    assert found.indices.tolist() == solved["support"].tolist()
    by_bank = [
        (oracle.facility(matrix[b["start"] : b["stop"]], solved["support"]), b["attainable"])
        for b in books
    ]
    for name, column in (("bank_numerator", 0), ("bank_denominator", 1)):
        np.testing.assert_allclose(
            found.evidence[name], [pair[column] for pair in by_bank], rtol=1e-4, atol=1e-7
        )
    whole = GMC().select(scene, 9)
    assert torch.equal(found.grounding.energy, whole.grounding.energy)
    assert torch.equal(found.grounding.head_weights, whole.grounding.head_weights)


def test_everything_on_is_the_method():
    scene = random_scene(seed=3)
    plain, same = GMC().select(scene, 7), GMC(probe_rank=4, probe_seed=0).select(scene, 7)
    assert torch.equal(plain.indices, same.indices)
    for name in ("value", "total", "progress", "bank_numerator"):
        assert torch.equal(plain.evidence[name], same.evidence[name])


@pytest.mark.parametrize("numbers", [{"probe_rank": 24}, {"probe_seed": 5}, {"probe_rank": 1}])
def test_a_probe_of_its_own_stands_in_for_the_settings(numbers):
    scene = random_scene(seed=4, tokens=60)
    settings = Settings(**numbers)
    own = GMC(**numbers).select(scene, 11)
    expected = GMC().select(replace(scene, settings=settings), 11)
    assert torch.equal(own.indices, expected.indices)
    assert torch.equal(own.evidence["bank_numerator"], expected.evidence["bank_numerator"])
    reading = reading_of(replace(scene, settings=settings), scene.views[0])
    assert reading.messages.shape[-1] == settings.probe_rank


def test_numbers_that_cannot_be_are_refused():
    for name in ("message", "spatial"):
        with refused(SettingError, f"{name}=1", "True and False"):
            GMC(**{name: 1})
    with refused(SettingError, "nothing to cover"):
        GMC(message=False, history=False, appearance=False, spatial=False)
    for numbers in ({"probe_rank": 0}, {"probe_seed": -1}, {"probe_rank": 2.5}):
        with pytest.raises(SettingError):
            GMC(**numbers)


# -- names -----------------------------------------------------------------------------------------


def test_names_carry_switches_and_numbers():
    (stage,) = plan_named("gmc[-history, -spatial]@2", 28).stages
    assert stage.selector == GMC(history=False, spatial=False) and stage.boundary == 2
    assert plan_named("gmc[probe_rank=8,probe_seed=3]+drop@1", 28).stages[0].selector == GMC(
        probe_rank=8, probe_seed=3
    )
    late = plan_named("gmc-l16[-message]+uniform", 14)
    assert late.boundaries == (8,) and late.stages[0].realiser.name == "uniform"
    assert late.stages[0].selector == GMC(message=False)
    assert late.notes == ("gmc-l16 is p = 16 of 28 blocks; this model has 14, so p = 8",)
    assert plan_named("random[seed=7]+drop@2", 28).stages[0].selector.seed == 7
    names = ["gmc@2", "gmc[-history]@2", "gmc[-spatial]@2", "gmc[probe_rank=8]@2", "gmc+uniform@2"]
    assert len({plan_named(name, 28).digest() for name in names}) == len(names)


@pytest.mark.parametrize(
    ("name", "error", "fragment"),
    [
        ("gmc[-histry]@2", UnknownNameError, "Did you mean 'history'"),
        ("gmc[history]@2", SettingError, "gmc[-history]"),
        ("gmc[history=false]@2", None, ""),
        ("gmc[-history=true]@2", SettingError, "gmc[-history]"),
        ("gmc[history=3]@2", SettingError, "history=3"),
        ("gmc[-probe_rank]@2", SettingError, "probe_rank=1"),
        ("gmc[probe_rank=x]@2", SettingError, "x"),
        ("gmc[probe_rank=0]@2", SettingError, "probe_rank=0"),
        ("gmc[-history,-history]@2", SettingError, "twice"),
        ("random[seed=1.5]@2", SettingError, "seed=1.5"),
        ("gmc+drop[-history]@2", SettingError, "has no numbers"),
        ("gmc[]@2", PlanError, "hold nothing"),
        ("gmc[-history@2", PlanError, "names no boundary"),
        ("gmc[-history]", PlanError, "names no boundary"),
        ("gmc-h2[-nothing]", UnknownNameError, "nothing"),
        ("gmc-h2@3", UnknownNameError, "gmc-h2"),
    ],
)
def test_names_that_mean_nothing_are_refused(name, error, fragment):
    if error is None:
        assert plan_named(name, 28).stages[0].selector == GMC(history=False)
        return
    with pytest.raises(error) as caught:
        plan_named(name, 28)
    assert fragment in str(caught.value)


def test_a_list_of_names_keeps_commas_in_brackets():
    text = "gmc-h2, gmc[-history,-spatial]@2,,random+drop@2"
    assert names_in(text) == ["gmc-h2", "gmc[-history,-spatial]@2", "random+drop@2"]
    assert names_in("") == []


@pytest.mark.parametrize("where", ["@2", "gmc-l16"])
def test_a_factorial_is_balanced_and_every_cell_is_another_plan(where):
    cells = factorial(where)
    assert len(cells) == 8 and set(effects(PATHWAY, cells)) >= set(PATHWAY)
    plans = {name: plan_named(name, 28) for name in cells}
    assert len({plan.digest() for plan in plans.values()}) == 8
    for name, levels in cells.items():
        (stage,) = plans[name].stages
        on = dict(zip(PATHWAY, levels, strict=True))
        assert (stage.selector.message, stage.selector.history) == (on["message"], on["history"])
        assert stage.selector.appearance and stage.selector.spatial
        assert (stage.realiser.name == "transport") == on["population"]
        assert stage.boundary == (2 if where == "@2" else 16)
    assert len(factorial(where, ("appearance", "spatial"))) == 4


def test_probe_studies_and_crosses():
    assert probes("@2", (1, 4), (0, 1)) == [
        f"gmc[probe_rank={rank},probe_seed={seed}]@2" for rank in (1, 4) for seed in (0, 1)
    ]
    assert probes("gmc-l16", seeds=(3,)) == ["gmc-l16[probe_seed=3]"] and probes("@2") == ["gmc@2"]
    names = crosses(2, ("gmc", "random[seed=1]"), ("drop", "uniform"))
    assert [str(plan_named(name, 28).stages[0]) for name in names] == [
        "gmc+drop@2",
        "gmc+uniform@2",
        "random+drop@2",
        "random+uniform@2",
    ]


@pytest.mark.parametrize("factors", [(), ("message", "message"), ("colour",), FACTORS])
def test_designs_that_cannot_be_run_are_refused(factors):
    with pytest.raises(PlanError):
        factorial("@2", factors)
