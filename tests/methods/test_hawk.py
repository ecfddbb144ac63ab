"""HAWK: against loops over the model's own weights, invariances, and where its queries stand."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch

from tests.core.helpers import refused
from tests.methods.lent import Words, model_for
from tests.methods.parts import at_input, normal
from tests.runtime.helpers import ROWS, compressed, decoder_of, logits, model_of, prompt
from tests.zoo_parts import END
from vicoset.errors import MethodError
from vicoset.methods import hawk, registry
from vicoset.methods.base import Decoder
from vicoset.methods.hawk import HawkStyle, weighted

OVER = 30  # an id that the tokenizer below calls the end of a turn


class Turns(Words):
    eos_token_id = OVER


def run(name, model, inputs, boundary=0, keep=5, processor=None):
    seen = []
    plan = f"{name}+drop@{boundary}"
    with compressed(model, plan, keep, processor=processor, watch=seen.append):
        logits(model, inputs)
    return seen


def plain(layer, text, visual, weights):
    """The sum of the method, in float64 and one head after another."""
    attention = layer.self_attn
    with torch.no_grad():
        rows = [layer.input_layernorm(part) for part in (text, visual)]
        queries = attention.q_proj(rows[0]).double().numpy()
        keys = attention.k_proj(rows[1]).double().numpy()
    width = attention.head_dim
    group = queries.shape[1] // keys.shape[1]
    total = np.zeros(len(visual))
    for head, weight in enumerate(weights):
        q = queries[:, head * width : (head + 1) * width]
        k = keys[:, head // group * width : (head // group + 1) * width]
        scores = np.array([np.mean([t @ v for t in q]) for v in k]) / math.sqrt(width)
        total += weight * scores / np.linalg.norm(scores)
    return total


def best(scores, images, count, keep):
    order = sorted(range(len(scores)), key=lambda v: -scores[v])
    leads = [next(v for v in order if images[v] == image) for image in range(count)]
    return sorted([*leads, *(v for v in order if v not in leads)][:keep])


@pytest.mark.parametrize("family", ["qwen2_5_vl", "llava"])
def test_scores_are_those_of_block_0_without_rotation(family):
    model = model_for("hawk", family)
    inputs = prompt(model, family, ROWS)
    layer = decoder_of(model).layers[0]
    for boundary in (0, 3):  # block 0 and the embeddings, wherever tokens are dropped
        for found in run("hawk", model, inputs, boundary):
            scene = found.scene
            text = scene.text.embeddings[scene.text.question_mask]
            scores = plain(layer, text, scene.embeddings, hawk.PUBLISHED)
            wanted = best(scores, scene.image_ids.tolist(), scene.images, 5)
            assert found.selection.indices.tolist() == wanted


def test_the_style_reads_its_own_block_or_block_0():
    model = model_of("qwen2_5_vl")
    inputs = prompt(model, "qwen2_5_vl", ROWS)
    with torch.no_grad():
        inside = model(**inputs, output_hidden_states=True).hidden_states
    answers = {}
    for name, boundary, block in (
        ("hawk-style", 0, 0),
        ("hawk-style[-here]", 3, 0),
        ("hawk-style", 3, 3),
    ):
        found = run(name, model, inputs, boundary)
        answers[name, boundary] = [one.selection.indices.tolist() for one in found]
        for row, one in enumerate(found):
            states = inside[block][row]
            asked = one.scene.text.positions[one.scene.text.question_mask]
            scores = plain(
                decoder_of(model).layers[block], states[asked], states[one.scene.visual], [1] * 4
            )
            wanted = best(scores, one.scene.image_ids.tolist(), one.scene.images, 5)
            assert one.selection.indices.tolist() == wanted
    assert answers["hawk-style", 0] == answers["hawk-style[-here]", 3] != answers["hawk-style", 3]


@pytest.mark.parametrize("closed", [True, False])
def test_queries_stand_between_the_last_image_and_the_end_of_the_turn(closed):
    model = model_for("hawk", "qwen2_5_vl")
    inputs = prompt(model, "qwen2_5_vl", 2)
    ids = inputs["input_ids"][0]
    last = int((ids == END).nonzero()[-1])  # the marker behind the second image
    assert len(ids) - last > 3
    stop = len(ids)
    ids[(ids == OVER).nonzero()] = OVER + 1
    ids[1] = OVER  # an end before the images ends nothing here
    if closed:
        stop = last + 3
        ids[stop] = OVER
    (found,) = run("hawk", model, inputs, processor=Turns())
    asked = found.scene.text.positions[found.scene.text.question_mask]
    assert asked.tolist() == list(range(last + 1, stop))
    with torch.no_grad():
        text = model.get_input_embeddings()(ids[last + 1 : stop])
    scores = plain(decoder_of(model).layers[0], text, found.scene.embeddings, hawk.PUBLISHED)
    wanted = best(scores, found.scene.image_ids.tolist(), 2, 5)
    assert found.selection.indices.tolist() == wanted


def decoded(queries, keys):
    """A scene in which block 0 projects the question to some queries, the image to some keys."""
    heads, width = queries.shape[0], queries.shape[-1]
    decoder = Decoder(1, lambda *_: queries, lambda *_: keys, lambda states: states)
    assert keys.shape[-1] == width and heads % len(keys) == 0
    return at_input(normal(0, keys.shape[1], 4), decoder=decoder)


def test_signs_are_kept_by_hand():
    # One head, one direction: scores -3, -1, 2, 0. Neither a softmax nor sizes rank like this.
    keys = torch.tensor([[[-3.0], [-1.0], [2.0], [0.0]]])
    scene = decoded(torch.ones(1, 2, 1), keys)
    for keep, wanted in ((1, [2]), (2, [2, 3]), (3, [1, 2, 3])):
        assert HawkStyle().select(scene, keep).indices.tolist() == wanted


def test_every_head_has_length_one_and_its_weight():
    scores = torch.tensor([[300.0, 400.0, 0.0], [0.0, 0.6, -0.8]])  # (.6 .8 0) and (0 .6 -.8)
    even = weighted(scores, torch.ones(2))
    torch.testing.assert_close(even * 1.4, torch.tensor([0.6, 1.4, -0.8]), atol=2e-6, rtol=0)
    assert torch.equal(weighted(scores, torch.full((2,), 0.01)), even)  # their scale is free
    tilted = weighted(scores, torch.tensor([0.0, 3.0]))
    torch.testing.assert_close(tilted, torch.tensor([0.0, 0.75, -1.0]), atol=2e-6, rtol=0)


def test_what_is_not_finite_counts_as_nothing():
    keys = torch.tensor([[[-3.0], [torch.nan], [2.0], [torch.inf]]])
    scene = decoded(torch.ones(2, 1, 1), keys)
    assert HawkStyle().select(scene, 3).indices.tolist() == [1, 2, 3]


def test_the_published_weights_are_whole():
    assert len(hawk.PUBLISHED) == 28
    assert sum(hawk.PUBLISHED) == pytest.approx(1.2616, abs=1e-9)
    assert max(hawk.PUBLISHED) == hawk.PUBLISHED[1] == 0.3 and hawk.PUBLISHED[26] == 0.0


def test_another_number_of_heads_is_refused():
    model = model_of("llava")
    with refused(MethodError, "28 heads of Qwen2.5-VL-7B", "has 4", "'hawk-style'"):
        run("hawk", model, prompt(model, "llava", 1))
    assert registry.selector("hawk").query_aware
