"""PyramidDrop: the last row of the block that follows ranks; stages as released."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch

from tests.methods.scenes import random_scene
from tests.runtime.helpers import compressed, decoder_of, generate, model_of, prompt
from vicoset.methods import registry
from vicoset.methods.base import Parts
from vicoset.plan import Keep, plan_named, work


def test_the_last_row_of_the_next_block_ranks_by_hand() -> None:
    scene = random_scene(tokens=4, queries=2, heads=2, key_heads=1, head_width=2, history=1)
    keys = torch.zeros(1, scene.views[0].keys.shape[1], 2)
    # Scores of the last row, head by head: (2, 0, 0, 1) and (0, 0, 3, 1).
    keys[0, scene.visual] = torch.tensor([[2.0, 0.0], [0.0, 0.0], [0.0, 3.0], [1.0, 1.0]])
    every = torch.full((2, keys.shape[1], 2), 9.0)  # rows that have no say
    every[0, -1], every[1, -1] = torch.tensor([1.0, 0.0]), torch.tensor([0.0, 1.0])
    view = scene.views[0]._replace(keys=keys, scaling=1.0, every_query=every)
    ready = replace(scene, parts=Parts(current=view))
    for keep, wanted in ((1, [2]), (2, [0, 2]), (3, [0, 2, 3])):
        assert registry.selector("pyramiddrop").select(ready, keep).indices.tolist() == wanted


def test_counts_and_average_as_released() -> None:
    plan = plan_named("pyramiddrop", 32)
    assert plan.counts(Keep(tokens=72), 576)[0] == [288, 144, 72]
    assert work((8, 16, 24), [288, 144, 72], 576, 32) == 32 * 270


@pytest.mark.parametrize("family", ["qwen2_5_vl", "llava"])
@pytest.mark.parametrize("positions", ["original", "packed"])
def test_every_stage_ranks_by_the_models_own_attention(family: str, positions: str) -> None:
    model = model_of(family, "eager")
    inputs = prompt(model, family, [1], 2)
    seen = []
    options = {"positions": positions, "watch": seen.append, "audit": "none"}
    with compressed(model, "pyramiddrop", 3, **options):
        generate(model, inputs, 1)
    assert len(seen) == 3
    for step in seen:
        view, scene = step.scene.current, step.scene
        group = len(view.queries) // len(view.keys)
        keys = view.keys.repeat_interleave(group, 0)
        shares = (view.queries[:, -1:] @ keys.mT * view.scaling).softmax(-1)[:, 0]
        scores = shares.mean(0)[scene.visual]
        best = scores.argsort(descending=True, stable=True)[: len(step.selection.indices)]
        assert step.selection.indices.tolist() == best.sort().values.tolist()
        assert view.block == step.stage.boundary < len(decoder_of(model).layers)
