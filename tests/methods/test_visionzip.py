"""VisionZip by a worked example, and on models against their towers' own tensors."""

from __future__ import annotations

import pytest
import torch

from tests.core.helpers import refused
from tests.methods.towers import doubled, towered
from tests.runtime.helpers import compressed, logits, model_of, prompt
from tests.runtime.test_scene_parts import raster_oracle
from vicoset.errors import SettingError, UnsupportedError
from vicoset.methods import registry
from vicoset.methods.visionzip import VisionZip, VisionZipMean

MERGE = registry.realiser("merge")
# N = 10, D = 3, C = 2. Tokens 2, 5 and 9 are read most. The seven others are 0 1 3 4 6 7 8, every
# third of which is a target: 0 and 4. Keys of 1, 3 and 8 point along that of 0, 6 and 7 along 4's.
SCORES = [0.05, 0.01, 0.3, 0.02, 0.03, 0.2, 0.04, 0.01, 0.02, 0.25]
EAST, NORTH = [1.0, 0.0], [0.0, 1.0]
KEYS = [EAST, EAST, NORTH, [2, 0.1], NORTH, EAST, [0.1, 3], NORTH, EAST, NORTH]
KEPT = [0, 2, 4, 5, 9]


def example(method=VisionZip, keys=KEYS, **options):
    features = torch.arange(20.0).reshape(10, 2) ** 2
    scene = towered(features, SCORES, keys, **options)
    selection = method(contextual=0.4).select(scene, 5)
    assert selection.indices.tolist() == KEPT
    return features, scene, MERGE.realise(scene, selection).states


@pytest.mark.parametrize("cls", [True, False], ids=["class token", "received"])
def test_contextual_tokens_are_target_plus_mean(cls):
    y, _, found = example(cls=cls)
    wanted = y[KEPT].clone()
    wanted[0] = y[0] + (y[1] + y[3] + y[8]) / 3
    wanted[2] = y[4] + (y[6] + y[7]) / 2
    torch.testing.assert_close(found, wanted)
    assert torch.equal(found[[1, 3, 4]], y[[2, 5, 9]])  # dominant tokens are as they were


def test_the_mean_is_over_the_cluster():
    y, _, found = example(VisionZipMean)
    wanted = y[KEPT].clone()
    wanted[0] = (y[0] + y[1] + y[3] + y[8]) / 4
    wanted[2] = (y[4] + y[6] + y[7]) / 3
    torch.testing.assert_close(found, wanted)


@pytest.mark.parametrize("method", [VisionZip, VisionZipMean])
def test_a_target_that_nothing_joined_stays_as_it_is(method):
    y, _, found = example(method, keys=[EAST] * 10)  # ties: all join the first target
    assert torch.equal(found[2], y[4])
    five = (y[1] + y[3] + y[6] + y[7] + y[8]) / 5
    torch.testing.assert_close(
        found[0], y[0] + five if method is VisionZip else (y[0] + 5 * five) / 6
    )


def test_merging_is_before_the_projector_at_the_input_and_on_states_behind_it():
    y, _, found = example(project=doubled)
    torch.testing.assert_close(found[0], doubled((y[0] + (y[1] + y[3] + y[8]) / 3)[None])[0])
    _, scene, found = example(project=doubled, boundary=1)
    h = scene.states
    torch.testing.assert_close(found[0], h[0] + (h[1] + h[3] + h[8]) / 3)


@pytest.mark.parametrize(
    ("keep", "first"),
    [
        *((64, 54), (128, 108), (192, 162), (256, 216), (512, 432), (211, 178), (330, 278)),
        *((795, 671), (850, 717), (32, 27), (1, 1), (3, 3), (4, 3)),
    ],
)
def test_budgets_split_as_the_released_settings_do(keep, first):
    assert VisionZip().split(keep) == (first, keep - first)


def test_images_are_chosen_from_alone():
    y = torch.arange(20.0).reshape(10, 2)
    scores = [0.9, 0.8, 0.7, 0.6, 0.5, 0.1, 0.4, 0.2, 0.3, 0.1]
    scene = towered(y, scores, images=2)
    found = registry.selector("visionzip-dominant").select(scene, 4).indices
    assert found.tolist() == [0, 1, 6, 8]
    # Each image has D = 1 and C = 1: targets are the first tokens that are left.
    selection = VisionZip(contextual=0.5).select(scene, 4)
    assert selection.indices.tolist() == [0, 1, 5, 6]
    assert selection.evidence == {"contextual": 2}
    assert set(selection.merge.source[selection.merge.target < 2].tolist()) == {1, 2, 3, 4}


def test_a_share_is_in_its_bounds():
    with refused(SettingError, "contextual=1.5", "[0, 1]"):
        VisionZip(contextual=1.5)


def test_on_qwen_the_ranking_is_what_the_full_block_gives_in_raster_order():
    model = model_of("qwen2_5_vl")
    inputs = prompt(model, "qwen2_5_vl", 1, 2)
    _, _, received = raster_oracle(model, inputs["pixel_values"], inputs["image_grid_thw"][0])
    wanted = sorted(sorted(range(len(received)), key=lambda v: -float(received[v]))[:4])
    assert wanted != [0, 1, 2, 3]
    with compressed(model, "visionzip-dominant+drop@0", 4) as engine:
        logits(model, inputs)
    assert engine.last.stages[0].indices.tolist() == wanted


def test_on_llava_the_kept_states_are_projected_sums():
    model = model_of("llava", "eager")
    inputs = prompt(model, "llava", 1, 2)
    with torch.no_grad():
        out = model.model.vision_tower(
            inputs["pixel_values"], output_attentions=True, output_hidden_states=True
        )
        y, cls = out.hidden_states[-2][0, 1:], out.attentions[-2][0].sum(0)[0, 1:]
        layer = next(m for n, m in model.named_modules() if n.endswith("encoder.layers.0"))
        keys = layer.self_attn.k_proj(layer.layer_norm1(out.hidden_states[-3]))[0, 1:]
        keys = keys.unflatten(-1, (2, -1)).mean(1)
    best = sorted(sorted(range(len(y)), key=lambda v: -float(cls[v]))[:5])
    rest = [v for v in range(len(y)) if v not in best]
    targets = [rest[0], rest[len(rest) // 2]]
    groups = {t: [] for t in targets}
    for v in rest:
        if v not in targets:
            near = [float(torch.cosine_similarity(keys[v], keys[t], 0)) for t in targets]
            groups[targets[near.index(max(near))]].append(v)
    seen = []
    with compressed(model, "visionzip[contextual=0.25]+merge@0", 7, watch=seen.append):
        logits(model, inputs)
    kept = sorted([*best, *targets])
    assert seen[0].selection.indices.tolist() == kept
    with torch.no_grad():
        for slot, v in enumerate(kept):
            joined = groups.get(v)
            wanted = y[v] + y[joined].mean(0) if joined else y[v]
            own = model.model.multi_modal_projector(wanted)
            torch.testing.assert_close(seen[0].realisation.states[slot], own, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize(
    "name", ["visionzip", "visionzip-mean", "visionzip-dominant", "vispruner", "apet"]
)
def test_families_without_a_mapped_tower_refuse(name):
    gemma = model_of("gemma3")
    with (
        refused(UnsupportedError, f"{name!r}", "qwen2_5_vl", "llava"),
        compressed(gemma, f"{name}+merge@0"),
    ):
        pass
