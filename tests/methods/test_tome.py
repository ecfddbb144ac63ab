"""ToMe-style merging: by hand, and against a loop over pairs."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch

from tests.core.helpers import refused
from tests.methods.scenes import random_scene
from vicoset.errors import SettingError
from vicoset.methods import registry
from vicoset.methods.tome import ToMe

MERGE = registry.realiser("merge")


def merged(states, keep, images=1, **numbers):
    states = torch.as_tensor(states, dtype=torch.float32)
    scene = random_scene(tokens=len(states), images=images, history=0, width=states.shape[1])
    scene = replace(scene, states=states)
    selection = ToMe(**numbers).select(scene, keep)
    return selection.indices.tolist(), MERGE.realise(scene, selection).states


def test_by_hand():
    # Round one: 0 -> 3 (cosine 1) before 2 -> 1 (0.95) and 4 -> 5 (0). Round two, of 1 2 3 4 5:
    # even places 1, 3, 5, odd places 2 and 4: 1 joins 2.
    h = [[2.0, 0, 0], [0, 1, 0.2], [0, 1, 0.9], [1, 0, 0], [0, -1, 0.5], [-1, 0, 0.1]]
    kept, states = merged(h, 5, rounds=3)
    assert kept == [1, 2, 3, 4, 5]
    assert states[2].tolist() == [1.5, 0, 0]
    kept, states = merged(h, 4, rounds=3)
    assert kept == [2, 3, 4, 5]
    torch.testing.assert_close(states[0], torch.tensor([0, 1, 0.55]))
    assert torch.equal(states[2:], torch.tensor(h)[4:])


def plain(states, keep, rounds):
    """Clusters as lists of members, their means taken anew from the members each round."""
    groups = {v: [v] for v in range(len(states))}
    pace = max(1, -(-(len(states) - keep) // rounds))
    while len(groups) > keep:
        alive = sorted(groups)
        means = {v: np.mean([states[m] for m in groups[v]], 0) for v in alive}
        unit = {v: mean / np.linalg.norm(mean) for v, mean in means.items()}
        ones, twos = alive[::2], alive[1::2]
        best = [max((float(unit[a] @ unit[b]), -b) for b in twos) for a in ones]
        ranked = sorted(range(len(ones)), key=lambda n: -best[n][0])
        for n in ranked[: min(pace, len(alive) - keep, len(alive) // 2)]:
            groups[-best[n][1]] += groups.pop(ones[n])
    return {v: np.mean([states[m] for m in members], 0) for v, members in groups.items()}


@pytest.mark.parametrize("rounds", [1, 5, 24])
def test_clusters_are_means_of_their_members(rounds):
    states = np.random.default_rng(1).normal(size=(41, 6))
    for keep in (1, 2, 11, 40):
        wanted = plain(states, keep, rounds)
        kept, found = merged(states, keep, rounds=rounds)
        assert kept == sorted(wanted)
        torch.testing.assert_close(
            found.double(), torch.tensor(np.array([wanted[v] for v in kept])), rtol=1e-4, atol=1e-5
        )


def test_merges_stay_inside_an_image():
    states = torch.ones(8, 3)  # all alike: nothing but the image tells them apart
    kept, found = merged(states, 2, images=2)
    assert kept[0] < 4 <= kept[1]
    torch.testing.assert_close(found, torch.ones(2, 3))


def test_rounds_are_counted():
    with refused(SettingError, "rounds=0", "whole numbers"):
        ToMe(rounds=0)
