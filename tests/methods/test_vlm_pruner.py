"""VLM-Pruner: the plain form of its passes, redundant tokens, negative similarities."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest
import torch

from tests.core.helpers import refused
from tests.methods.scenes import random_scene, random_view
from vicoset.core.settings import Settings
from vicoset.errors import SettingError
from vicoset.methods import registry
from vicoset.methods.base import Parts
from vicoset.methods.vlm_pruner import Space, VLMPruner, in_diagonals
from vicoset.models.layout import grid

MERGE = registry.realiser("merge")


def scene_of(states, height, width, seed=0, images=1):
    """A scene on a raster grid with random keys."""
    states = torch.as_tensor(states, dtype=torch.float32)
    scene = random_scene(tokens=len(states), images=images, width=states.shape[1], history=0)
    draw = torch.Generator().manual_seed(seed)
    length = int(scene.queries[-1]) + 1
    view, _ = random_view(
        draw, 1, 4, 2, states.shape[1], 8, (3, length, len(states)), torch.float32
    )
    where = grid(height, width).repeat(images, 1)
    return replace(
        scene, states=states, coordinates=where, boundary=2, parts=Parts(previous=view),
        settings=Settings(),
    )  # fmt: skip


def plain(scene, height, width, keep, released=False, channels=256):
    """Kept tokens and what they hold, by loops; the threshold rises until there are enough."""
    keys = scene.previous.keys[:, scene.visual].transpose(0, 1).flatten(1).double().numpy()
    states = scene.states.double().numpy()
    chosen = [int(np.abs(keys).sum(1).argmax())]
    while len(chosen) < min(4, keep):
        away = [min(((k - keys[c]) ** 2).sum() for c in chosen) for k in keys]
        chosen.append(int(np.argmax(away)))
    columns = sorted(sorted(range(states.shape[1]), key=lambda c: -states[:, c].var())[:channels])
    rows = states[:, columns]
    rows = rows / np.linalg.norm(rows, axis=1, keepdims=True)

    def score(c, selected):
        gap = min(math.dist((c // width, c % width), (s // width, s % width)) for s in selected)
        gap /= math.hypot(height, width)
        sims = [float(rows[c] @ rows[s]) for s in selected]
        if released:
            return max(sim * (1 + 0.5 * gap) for sim in sims)
        return max(sim + 0.5 * gap * abs(sim) for sim in sims)

    bar = 0.8
    while len(chosen) < keep:
        before = len(chosen)
        rest = [v for v in range(len(rows)) if v not in chosen]
        now = {v: score(v, chosen) for v in rest}
        rest.sort(key=now.__getitem__)
        for start in range(0, len(rest), 16):
            if start == 16 and len(chosen) == before:
                break
            marks = {v: score(v, chosen) for v in rest[start : start + 16]}
            fits = [v for v, mark in marks.items() if mark < bar]
            chosen += sorted(fits, key=marks.__getitem__)[: keep - len(chosen)]
        bar += 0.1
    held = {s: [] for s in chosen}
    for v in set(range(len(rows))) - set(chosen):
        best = max(sorted(chosen), key=lambda s: float(rows[v] @ rows[s]))
        sim = float(rows[v] @ rows[best])
        if sim > 0:
            held[best].append((sim, states[v]))
    wanted = {}
    for s in sorted(chosen):
        total = sum(sim for sim, _ in held[s])
        moved = sum(sim / total * state for sim, state in held[s])
        wanted[s] = 0.3 * states[s] + 0.7 * moved if held[s] else states[s]
    return wanted


def drawn(height, width, seed, rank=3, noise=0.4, shift=0.0):
    draw = np.random.default_rng(seed)
    low = draw.normal(size=(height * width, rank)) @ draw.normal(size=(rank, 24))
    return low + noise * draw.normal(size=(height * width, 24)) + shift


@pytest.mark.parametrize("shift", [0.0, 2.0], ids=["both signs", "alike"])
@pytest.mark.parametrize("released", [False, True])
def test_passes_and_blend_are_the_plain_ones(shift, released):
    height, width = 7, 9
    scene = scene_of(drawn(height, width, 1, shift=shift), height, width)
    for keep in (2, 5, 20, 50, 62):
        wanted = plain(scene, height, width, keep, released, channels=12)
        selection = VLMPruner(channels=12, released_sign=released).select(scene, keep)
        assert selection.indices.tolist() == list(wanted)
        found = MERGE.realise(scene, selection).states.double()
        values = torch.tensor(np.array(list(wanted.values())))
        torch.testing.assert_close(found, values, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("keep", [4, 5, 20, 63])
def test_redundant_tokens_still_give_k(keep):
    """Every token is one of three: the released loop would stop after its first pass."""
    kinds = np.random.default_rng(0).normal(size=(3, 16))
    scene = scene_of(kinds[np.arange(64) % 3], 8, 8)
    assert len(set(VLMPruner().select(scene, keep).indices.tolist())) == keep
    same = scene_of(np.ones((64, 16)), 8, 8)
    assert len(set(VLMPruner().select(same, keep).indices.tolist())) == keep


def test_distance_makes_a_token_wait_also_where_similarity_is_negative():
    # One row of ten cells, the pivot at the left end. Cells 1 and 9 oppose it equally.
    rows = torch.tensor([[1.0, 0]] + [[-0.5, 0.75**0.5]] * 9)
    places = in_diagonals(grid(1, 10))
    space, pivot = Space(rows, places), torch.tensor([0])

    def second(**numbers):
        return VLMPruner(**numbers).outwards(space, pivot, 2).nonzero().flatten().tolist()

    assert second() == [0, 1]  # near first
    assert second(released_sign=True) == [0, 9]  # the released factor rewards the far end
    assert second(buffer=0.0) == second(buffer=0.0, released_sign=True) == [0, 1]


def test_distance_is_in_diagonals_of_the_grid():
    places = in_diagonals(grid(24, 24))
    assert abs(float((places[0] - places[-1]).norm()) - 23 * 2**0.5 / (24 * 2**0.5)) < 1e-6
    wide = in_diagonals(grid(3, 4))
    assert abs(float((wide[1] - wide[0]).norm()) - 1 / 5) < 1e-6
    assert abs(float((wide[4] - wide[0]).norm()) - 1 / 5) < 1e-6


def test_images_are_judged_alone():
    scene = scene_of(np.concatenate([drawn(4, 5, 2), drawn(4, 5, 3)]), 4, 5, images=2)
    found = VLMPruner().select(scene, 12)
    assert sum(1 for v in found.indices.tolist() if v < 20) == 6
    own = scene.image_ids[found.indices][found.merge.target]
    assert torch.equal(own, scene.image_ids[found.merge.source])


def test_numbers_are_checked():
    for numbers in ({"pivots": 0}, {"batch": 1.5}, {"buffer": 2.0}, {"blend": -0.1}):
        with refused(SettingError, *numbers, "allowed"):
            VLMPruner(**numbers)
