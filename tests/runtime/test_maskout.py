"""Compaction without transport is the dense model that does not see the dropped tokens.

The oracle masks the columns of the dropped visual tokens in every block from the boundary on, and
in all blocks while decoding. It shares no code with the gather.
"""

from contextlib import contextmanager

import pytest
import torch

from tests import zoo
from tests.runtime.helpers import (
    BOUNDARIES,
    KERNELS,
    ONE_EACH,
    ROWS,
    Watched,
    compressed,
    generate,
    layers_of,
    logits,
    model_of,
    new_tokens,
    prompt,
    watched,
)

TOLERANCE = 1e-5
CASES = pytest.mark.parametrize(("family", "attn"), KERNELS)


def dropped_of(model, inputs, engine):
    """[B, L] bool: the visual tokens that the records do not name."""
    ids = inputs["input_ids"]
    gone = torch.zeros_like(ids, dtype=torch.bool)
    for row, places in Watched.places.items():
        assert bool((ids[row, places] == model.config.image_token_id).all())
        (stage,) = engine.records[row].stages
        gone[row, places] = True
        gone[row, places[stage.indices]] = False
    assert gone.sum(1).tolist() == [record.tokens - record.kept for record in engine.records]
    assert bool(gone.any())
    return gone


def blind(mask, states, gone, held):
    """A block's 4-D mask without the dropped columns; a causal one where it got none."""
    batch, rows = states.shape[:2]
    if mask is None:
        past = torch.arange(held + rows)[None] <= torch.arange(held, held + rows)[:, None]
        mask = past.expand(batch, 1, -1, -1)
    hidden = torch.zeros(batch, 1, 1, mask.shape[-1], dtype=torch.bool)
    hidden[:, 0, 0, : gone.shape[1]] = gone
    return mask.expand(batch, -1, -1, -1).masked_fill(
        hidden, False if mask.dtype == torch.bool else torch.finfo(mask.dtype).min
    )


@contextmanager
def masked_out(model, gone, boundary):
    """The untouched model with dropped columns masked behind a boundary."""

    def hook(number, module, args, kwargs):
        states = args[0] if args else kwargs["hidden_states"]
        prefill = states.shape[1] == gone.shape[1]
        if prefill and number < boundary:
            return None
        cache = kwargs.get("past_key_values")
        held = 0 if prefill else cache.layers[number].get_seq_length()
        mask = blind(kwargs.get("attention_mask"), states, gone, held)
        return args, {**kwargs, "attention_mask": mask}

    handles = [
        block.register_forward_pre_hook(lambda *given, n=n: hook(n, *given), with_kwargs=True)
        for n, block in enumerate(layers_of(model))
    ]
    try:
        yield
    finally:
        for handle in handles:
            handle.remove()


def assert_retained(found, dense, inputs, gone):
    """The compact logits are the dense ones at the positions that stay."""
    stays = inputs["attention_mask"].bool() & ~gone
    for row, kept in enumerate(stays):
        own = dense[row][kept]
        torch.testing.assert_close(found[row, -len(own) :], own, rtol=0, atol=TOLERANCE)


@CASES
@pytest.mark.parametrize("images", [1, ROWS], ids=["single", "batch"])
@pytest.mark.parametrize("selector", ["gmc", "random"])
def test_logits_of_a_prompt(family, attn, images, selector):
    model = model_of(family, attn)
    inputs = prompt(model, family, images)
    for boundary in BOUNDARIES:
        with compressed(model, watched(selector, boundary), 5) as engine:
            found = logits(model, inputs)
        gone = dropped_of(model, inputs, engine)
        with masked_out(model, gone, boundary):
            dense = logits(model, inputs)
        assert_retained(found, dense, inputs, gone)


@CASES
def test_logits_and_tokens_of_a_padded_batch_while_decoding(family, attn):
    model = model_of(family, attn)
    inputs = prompt(model, family, ROWS)
    with compressed(model, watched("gmc", 2), 5) as engine:
        out = generate(model, inputs)
    with masked_out(model, dropped_of(model, inputs, engine), 2):
        dense = generate(model, inputs)
    assert new_tokens(out, inputs) == new_tokens(dense, inputs)
    for mine, its in zip(out.logits, dense.logits, strict=True):
        torch.testing.assert_close(mine, its, rtol=0, atol=TOLERANCE)


@pytest.mark.parametrize(("family", "attn"), ONE_EACH)
def test_a_dropped_token_matters(family, attn):
    """Otherwise nothing above would prove anything."""
    model = model_of(family, attn)
    inputs = prompt(model, family, 1)
    plain = logits(model, inputs)[:, -1]
    with compressed(model, "random+drop@2", 5):
        assert (logits(model, inputs)[:, -1] - plain).abs().max() > 100 * TOLERANCE


@pytest.mark.parametrize("attn", ["sdpa", "eager"])
@pytest.mark.parametrize("family", ["qwen3_vl", "qwen3_vl_moe"])
@pytest.mark.parametrize("images", [1, ROWS], ids=["single", "batch"])
def test_carriers_receive_the_deepstack_feature_of_their_own_position(family, attn, images):
    model = zoo.tiny(family, attn)
    with torch.no_grad():  # loud enough that a wrong row shows
        for merger in model.model.visual.deepstack_merger_list:
            merger.linear_fc2.weight.mul_(100)
    inputs = prompt(model, family, images)
    for boundary in BOUNDARIES:
        with compressed(model, watched("gmc", boundary), 5) as engine:
            found = logits(model, inputs)
        gone = dropped_of(model, inputs, engine)
        with masked_out(model, gone, boundary):
            assert_retained(found, logits(model, inputs), inputs, gone)


@pytest.mark.slow
@CASES
@pytest.mark.parametrize("selector", ["gmc", "random"])
@pytest.mark.parametrize("boundary", BOUNDARIES)
def test_the_full_product_while_decoding(family, attn, selector, boundary):
    model = model_of(family, attn)
    for images in (1, 2, ROWS):
        inputs = prompt(model, family, images)
        with compressed(model, watched(selector, boundary), 5) as engine:
            out = generate(model, inputs)
        with masked_out(model, dropped_of(model, inputs, engine), boundary):
            dense = generate(model, inputs)
        assert new_tokens(out, inputs) == new_tokens(dense, inputs)
        for mine, its in zip(out.logits, dense.logits, strict=True):
            torch.testing.assert_close(mine, its, rtol=0, atol=5 * TOLERANCE)
