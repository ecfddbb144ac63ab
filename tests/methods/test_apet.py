"""ApET: errors against least squares, slots and merges by hand and by loops."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch

from tests.core.helpers import refused
from tests.methods.scenes import random_scene
from tests.methods.towers import doubled, towered
from tests.runtime.helpers import compressed, logits, model_of, prompt
from vicoset.errors import SettingError
from vicoset.methods import registry
from vicoset.methods.apet import ApET, ApETStates, reconstruction_errors
from vicoset.methods.nearest import outermost
from vicoset.plan import Keep, plan_named, work

MERGE = registry.realiser("merge")


def on(states, images=1):
    states = torch.as_tensor(states, dtype=torch.float32)
    scene = random_scene(tokens=len(states), images=images, history=0, width=states.shape[1])
    return replace(scene, states=states)


def ridge(rows, basis):
    """The released formula, in double precision."""
    gram = basis @ basis.T + 1e-5 * np.eye(len(basis))
    return np.linalg.norm(rows - rows @ basis.T @ np.linalg.solve(gram, basis), axis=1)


def test_errors_are_the_ridge_residual_and_those_of_basis_tokens_zero():
    rows = np.random.default_rng(0).normal(size=(50, 24)) * 3
    basis = rows[[4, 8, 15, 16]]
    found = reconstruction_errors(torch.tensor(rows).float(), torch.tensor(basis).float())
    np.testing.assert_allclose(found.numpy(), ridge(rows, basis), rtol=1e-4, atol=1e-4)
    assert float(found[[4, 8, 15, 16]].max()) < 1e-4


def test_a_basis_of_duplicates_does_not_upset_the_errors():
    rows = torch.ones(6, 4) * torch.tensor([1.0, 1, 1, 1, 1, 2])[:, None]
    rows[3, 0] = 5.0
    found = reconstruction_errors(rows, rows[[0, 1, 2]])
    assert float(found[[0, 1, 2, 4, 5]].max()) < 1e-3 and abs(float(found[3]) - 12**0.5) < 1e-3


def test_the_basis_is_spread_from_the_longest_token():
    rows = torch.tensor([[0.0, 1], [3, 0], [0, 2], [-3, 0], [3, 0]])
    assert outermost(rows, rows.norm(dim=1), 5).tolist() == [1, 3, 2, 0, 4]


def plain(rows, keep, basis):
    """Kept tokens and what they hold, by loops over tokens."""
    chosen = [int(np.linalg.norm(rows, axis=1).argmax())]
    while len(chosen) < min(basis, len(rows)):
        away = [min(((x - rows[c]) ** 2).sum() for c in chosen) for x in rows]
        chosen.append(int(np.argmax(away)))
    errors = ridge(rows, rows[chosen])
    order = sorted(range(len(rows)), key=lambda v: -errors[v])[:keep]
    slots = sorted(order[len(order) - basis :])
    hosts = sorted(order[: len(order) - basis])
    held = {v: [rows[v]] for v in hosts}
    for v in set(range(len(rows))) - set(order):
        near = [
            rows[v] @ rows[h] / np.linalg.norm(rows[v]) / np.linalg.norm(rows[h]) for h in hosts
        ]
        held[hosts[int(np.argmax(near))]].append(rows[v])
    states = {h: np.mean(members, 0) for h, members in held.items()}
    states |= {slot: rows[c] for slot, c in zip(slots, chosen, strict=True)}
    return {v: states[v] for v in sorted(states)}


@pytest.mark.parametrize("keep", [20, 31, 48])
def test_k_slots_ten_of_them_basis_and_exact_means(keep):
    rows = np.random.default_rng(2).normal(size=(60, 40))
    wanted = plain(rows, keep, 10)
    scene = on(rows)
    selection = ApETStates().select(scene, keep)
    assert selection.indices.tolist() == list(wanted)
    found = MERGE.realise(scene, selection).states.double()
    torch.testing.assert_close(
        found, torch.tensor(np.array(list(wanted.values()))), rtol=1e-4, atol=1e-5
    )
    again = ApETStates().select(scene, keep)
    assert torch.equal(again.merge.source, selection.merge.source)
    assert torch.equal(again.merge.weight, selection.merge.weight)


def test_slots_may_blend():
    rows = np.random.default_rng(2).normal(size=(60, 40))
    scene = on(rows)
    whole, half = (
        MERGE.realise(scene, ApETStates(share=share).select(scene, 24)).states for share in (1, 0.5)
    )
    kept = ApETStates().select(scene, 24).indices
    errors = torch.tensor(ridge(rows, rows[outermost(scene.states, scene.states.norm(dim=1), 10)]))
    slots = errors[kept].argsort(descending=True)[-10:]
    own = scene.states[kept]
    torch.testing.assert_close(half[slots], (whole[slots] + own[slots]) / 2)
    plain_ones = errors[kept].argsort(descending=True)[:-10]
    assert torch.equal(half[plain_ones], whole[plain_ones])


@pytest.mark.parametrize("keep", range(1, 15))
def test_small_budgets_leave_room_for_hosts(keep):
    scene = on(np.random.default_rng(5).normal(size=(15, 4)))
    selection = ApETStates().select(scene, keep)
    assert len(set(selection.indices.tolist())) == keep
    states = MERGE.realise(scene, selection).states
    assert bool(states.isfinite().all())
    weights = torch.zeros(keep).index_add(0, selection.merge.target, selection.merge.weight)
    assert torch.allclose(weights[weights > 0], torch.ones(()))


def test_before_the_projector_at_the_input_on_states_elsewhere():
    draw = torch.Generator().manual_seed(0)
    features = torch.randn(40, 24, generator=draw)
    scene = towered(features, torch.zeros(40), project=doubled)
    selection = ApET().select(scene, 22)
    assert selection.merge.features
    assert torch.equal(selection.indices, ApETStates().select(on(features), 22).indices)
    inside = replace(scene, boundary=1)
    selection = ApET().select(inside, 22)
    assert not selection.merge.features
    assert torch.equal(selection.indices, ApETStates().select(inside, 22).indices)


def test_numbers_are_checked():
    with refused(SettingError, "basis=0", "whole numbers"):
        ApETStates(basis=0)
    with refused(SettingError, "share=2", "[0, 1]"):
        ApET(share=2)


@pytest.mark.parametrize(("keep", "first"), [(96, 288), (64, 192), (32, 96), (576, 576)])
def test_the_plan_of_two_stages_as_released(keep, first):
    plan = plan_named("apet", 32)
    assert [stage.selector.name for stage in plan.stages] == ["apet", "apet-states"]
    assert plan.boundaries == (0, 16)
    assert "layer averages" in plan.notes[0] and len(plan.notes) == 1
    assert plan.counts(Keep(tokens=keep), 576)[0] == [first, keep]
    if keep < 576:  # tables name the average over the blocks
        assert work((0, 16), [first, keep], 576, 32) == 32 * 2 * keep


@pytest.mark.parametrize("family", ["qwen2_5_vl", "llava"])
def test_two_stages_in_a_model(family):
    model = model_of(family)
    seen = []
    with compressed(model, "apet", 3, watch=seen.append) as engine:
        logits(model, prompt(model, family, [1, 2], 2))
    for record in engine.last:
        assert [stage.selector for stage in record.stages] == ["apet", "apet-states"]
        assert record.kept == 3 < record.stages[0].kept < record.tokens
    assert {found.selection.merge.features for found in seen} == {family == "llava", False}
