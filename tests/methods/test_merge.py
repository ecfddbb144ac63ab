"""Realisers `merge` and `uniform` against plain loops."""

from dataclasses import replace

import pytest
import torch

from tests.core.helpers import refused
from tests.methods.scenes import random_scene
from vicoset.core import coreset, realise
from vicoset.core.settings import Settings
from vicoset.errors import MethodError
from vicoset.methods import GMC, registry
from vicoset.methods.base import Merge, Parts, Selection, Tower

MERGE, UNIFORM = registry.realiser("merge"), registry.realiser("uniform")
KEPT = torch.tensor([1, 4, 7, 9])


def entries(*triples):
    target, source, weight = zip(*triples, strict=True)
    return Merge(torch.tensor(target), torch.tensor(source), torch.tensor(weight))


def plain(states, kept, merge):
    """h~_j = sum of weight * source, in Python; carriers without an entry keep their state."""
    rows = []
    for place, index in enumerate(kept.tolist()):
        mine = [e for e, target in enumerate(merge.target.tolist()) if target == place]
        rows.append(
            sum(merge.weight[e] * states[merge.source[e]] for e in mine) if mine else states[index]
        )
    return torch.stack(rows)


MAPS = {
    "sum of target and mean": entries((0, 1, 1.0), (0, 0, 0.5), (0, 2, 0.5), (2, 7, 1.0)),
    "mean into nearest": entries((1, 4, 0.25), (1, 3, 0.25), (1, 5, 0.25), (1, 6, 0.25)),
    "blend": entries((3, 9, 0.3), (3, 8, 0.5), (3, 10, 0.2)),
    "another token's state": entries((2, 0, 1.0)),
}


@pytest.mark.parametrize("name", MAPS)
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_the_map_is_the_sum(name, dtype):
    scene = random_scene(tokens=12, history=0, dtype=dtype)
    merge = MAPS[name]
    found = MERGE.realise(scene, Selection(KEPT, {}, None, merge))
    assert found.states.dtype == dtype
    wanted = plain(scene.states.float(), KEPT, merge).to(dtype)
    torch.testing.assert_close(found.states, wanted)
    untouched = [n for n in range(4) if n not in merge.target.tolist()]
    assert torch.equal(found.states[untouched], scene.states[KEPT][untouched])
    carrier, mass = found.carrier.tolist(), found.mass.tolist()
    assert [carrier[index] for index in KEPT.tolist()] == [0, 1, 2, 3]
    for target, source in zip(merge.target.tolist(), merge.source.tolist(), strict=True):
        assert carrier[source] == target or source in KEPT.tolist()
    gone = set(range(12)) - set(KEPT.tolist()) - set(merge.source.tolist())
    assert all(carrier[index] == -1 and mass[index] == 0 for index in gone)


def test_a_source_of_two_targets_is_carried_by_the_heavier():
    scene = random_scene(tokens=12, history=0)
    merge = entries((0, 0, 0.2), (1, 0, 0.7), (2, 0, 0.1))
    found = MERGE.realise(scene, Selection(KEPT, {}, None, merge))
    assert int(found.carrier[0]) == 1
    assert float(found.mass[0]) == pytest.approx(1.0)


def test_without_a_map_each_carrier_is_the_mean_of_what_is_nearest():
    scene = random_scene(tokens=12, images=2, history=0)
    found = MERGE.realise(scene, Selection(KEPT, {}))
    unit = torch.nn.functional.normalize(scene.states, dim=1)
    groups = {place: [] for place in range(4)}
    for index in range(12):
        own = [p for p, k in enumerate(KEPT) if scene.image_ids[k] == scene.image_ids[index]]
        place = max(own, key=lambda p: float(unit[index] @ unit[KEPT[p]]))
        groups[place].append(index)
    for place, members in groups.items():
        torch.testing.assert_close(found.states[place], scene.states[members].mean(0))
        assert all(int(found.carrier[index]) == place for index in members)


def test_a_map_of_features_goes_through_the_projector():
    scene = random_scene(tokens=12, history=0)
    draw = torch.Generator().manual_seed(1)
    features, weight = torch.randn(12, 5, generator=draw), torch.randn(24, 5, generator=draw)
    tower = Tower(features, features, features[:, 0], project=lambda z: z @ weight.mT)
    merge = MAPS["mean into nearest"]._replace(features=True)
    seen = replace(scene, parts=Parts(tower=tower))
    found = MERGE.realise(seen, Selection(KEPT, {}, None, merge))
    torch.testing.assert_close(found.states[1], features[3:7].mean(0) @ weight.mT)
    assert torch.equal(found.states[0], scene.states[1])
    tower.project = None
    with refused(MethodError, "whole groups of patches", "features=False"):
        MERGE.realise(seen, Selection(KEPT, {}, None, merge))


def test_wrong_maps_are_refused():
    scene = random_scene(tokens=12, history=0)
    for wrong, fragment in (
        (entries((4, 0, 1.0)), "targets from 4 to 4; allowed are 0 to 3"),
        (entries((0, 12, 1.0)), "sources from 12 to 12; allowed are 0 to 11"),
        (MAPS["blend"]._replace(weight=torch.ones(2)), "'weight': 2"),
    ):
        with refused(MethodError, fragment):
            MERGE.realise(scene, Selection(KEPT, {}, None, wrong))


def test_uniform_is_transport_whose_tokens_weigh_one():
    scene = random_scene(tokens=30, images=2, history=1)
    selection = GMC().select(scene, 6)
    found = UNIFORM.realise(scene, selection)
    people = coreset.Population(scene.states, scene.coordinates, scene.image_ids, scene.images)
    carrier = coreset.assign(people, selection.indices, Settings()).carrier
    for place, index in enumerate(selection.indices.tolist()):
        own = scene.states[index]
        mean = scene.states[carrier == place].mean(0)
        wanted = mean * own.square().mean().sqrt() / mean.square().mean().sqrt()
        torch.testing.assert_close(found.states[place], wanted)
    bare = registry.realiser("transport").realise(scene, selection._replace(grounding=None))
    assert torch.equal(found.states, bare.states)
    assert bool((found.mass == 1).all())
    moved = realise.cluster_mass(found.mass, found.carrier, 6)
    assert float(moved.sum()) == 30
