"""The controls against plain loops and lattices laid by hand."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch

from tests.core.helpers import refused
from tests.methods.parts import greedy
from tests.methods.scenes import random_scene
from vicoset.errors import SettingError
from vicoset.methods import registry
from vicoset.methods.grid import Grid, lattice
from vicoset.methods.norm_diversity import NormDiversity

KEEPS = [3, 4, 11, 30]


def select(method, scene, keep):
    made = registry.selector(method) if isinstance(method, str) else method
    return made.select(scene, keep).indices.tolist()


def geometry(scene):
    states = scene.states.double().numpy()
    norms = np.linalg.norm(states, axis=1)
    return norms, (states / norms[:, None]) @ (states / norms[:, None]).T


@pytest.mark.parametrize("images", [1, 3])
@pytest.mark.parametrize("keep", KEEPS)
def test_k_center_is_farthest_first(images, keep):
    scene = random_scene(tokens=30, images=images, history=0)
    norms, cosines = geometry(scene)

    def score(v, picked):
        return min(1 - cosines[v, u] for u in picked) if picked else norms[v]

    assert select("k-center", scene, keep) == greedy(scene.image_ids.tolist(), keep, score)


@pytest.mark.parametrize("images", [1, 3])
@pytest.mark.parametrize("keep", KEEPS)
@pytest.mark.parametrize(("balance", "log_norm"), [(0.5, False), (0.3, True), (1.0, False), (0, 0)])
def test_norm_diversity_is_the_greedy_trade(images, keep, balance, log_norm):
    scene = random_scene(tokens=30, images=images, history=0, seed=1)
    norms, cosines = geometry(scene)
    size = np.log(norms) if log_norm else norms
    size = (size - size.min()) / (size.max() - size.min())

    def score(v, picked):
        if not picked:
            return size[v]
        return balance * size[v] - (1 - balance) * max(cosines[v, u] for u in picked)

    found = select(NormDiversity(balance, bool(log_norm)), scene, keep)
    assert found == greedy(scene.image_ids.tolist(), keep, score)


def test_a_balance_is_a_share():
    with refused(SettingError, "balance=2", "[0, 1]"):
        NormDiversity(2)


def test_topk_norm_ranks_by_length():
    scene = random_scene(tokens=6, history=0)
    scales = torch.tensor([1.0, 3.0, 2.0, 6.0, 5.0, 4.0])
    states = torch.nn.functional.normalize(scene.states, dim=1) * scales[:, None]
    assert select("topk-norm", replace(scene, states=states), 3) == [3, 4, 5]


def gridded(height, width, images=1, frames=0):
    """A scene of raster grids."""
    lines = torch.linspace(0, 1, height).repeat_interleave(width)
    where = torch.stack([lines, torch.linspace(0, 1, width).repeat(height)], 1)
    if frames:
        times = torch.linspace(0, 1, frames).repeat_interleave(height * width)
        where = torch.cat([times[:, None], where.repeat(frames, 1)], 1)
    where = where.repeat(images, 1)
    scene = random_scene(tokens=len(where), images=images, history=0)
    return replace(scene, coordinates=where)


def marked(kept, width):
    return sorted((v // width, v % width) for v in kept)


def test_lattices_by_hand():
    # A fourth of 4 x 4: two lines, two tokens in each, in the middles of the quarters.
    assert marked(select("grid", gridded(4, 4), 4), 4) == [(1, 1), (1, 3), (3, 1), (3, 3)]
    # 2 x 6 wide: one line of three, in the middles of its thirds.
    assert marked(select("grid", gridded(2, 6), 3), 6) == [(1, 1), (1, 3), (1, 5)]
    # 5 of 4 x 4: two lines; the odd one goes to the first.
    assert marked(select("grid", gridded(4, 4), 5), 4) == [
        (1, 0), (1, 2), (1, 3), (3, 1), (3, 3)
    ]  # fmt: skip
    assert select("grid", gridded(3, 3), 1) == [4]


@pytest.mark.parametrize(("height", "width"), [(1, 7), (7, 1), (5, 6), (36, 36)])
def test_lattices_have_exactly_k_different_tokens(height, width):
    lines = [range(y * width, (y + 1) * width) for y in range(height)]
    for keep in range(1, height * width + 1):
        found = lattice(lines, keep)
        assert len(set(found)) == keep and set(found) <= set(range(height * width))


def test_lattices_of_ragged_lines():
    lines = [range(0, 3), range(3, 4), range(4, 12), range(12, 14)]
    for keep in range(1, 15):
        assert len(set(lattice(lines, keep))) == keep


def test_every_line_of_a_lattice_is_as_full_as_its_neighbours():
    found = marked(select("grid", gridded(36, 36), 128), 36)
    rows = {y: sum(1 for a, _ in found if a == y) for y, _ in found}
    assert len(rows) == 11 and set(rows.values()) <= {11, 12}
    assert {b - a for a, b in zip(sorted(rows), sorted(rows)[1:], strict=False)} <= {3, 4}


def test_images_share_by_size_and_frames_are_lines():
    scene = gridded(4, 4, images=2)
    assert select("grid", scene, 8) == [5, 7, 13, 15, 21, 23, 29, 31]
    film = gridded(2, 2, frames=3)
    assert select("grid", film, 12) == list(range(12))
    assert Grid().select(film, 3).evidence["quotas"] == [3]
