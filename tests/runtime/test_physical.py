"""What is dropped is gone: from the blocks behind the boundary and from the cache."""

from contextlib import contextmanager

import pytest
import torch

from tests.runtime.helpers import (
    BOUNDARIES,
    ONE_EACH,
    ROWS,
    compressed,
    generate,
    layers_of,
    logits,
    model_of,
    prompt,
    two_stages,
)
from vicoset.plan import Keep, work_share

CASES = pytest.mark.parametrize(("family", "attn"), ONE_EACH)


@contextmanager
def entering(model):
    """The states that each block ran on; its hook sees them as its pre-hooks left them."""
    seen = {}

    def look(number, module, args, kwargs, output):
        seen.setdefault(number, []).append((args[0] if args else kwargs["hidden_states"]).clone())

    handles = [
        block.register_forward_hook(lambda *given, n=n: look(n, *given), with_kwargs=True)
        for n, block in enumerate(layers_of(model))
    ]
    yield seen
    for handle in handles:
        handle.remove()


def bytes_of(cache):
    """Bytes that are really allocated for keys and values."""
    return sum(
        tensor.untyped_storage().nbytes()
        for layer in cache.layers
        for tensor in (layer.keys, layer.values)
    )


@CASES
@torch.no_grad()
def test_exactly_the_kept_states_enter_the_blocks(family, attn):
    model = model_of(family, attn)
    inputs = prompt(model, family, 1)
    length = inputs["input_ids"].shape[1]
    with entering(model) as dense:
        logits(model, inputs)
    for boundary in BOUNDARIES:
        with entering(model) as seen, compressed(model, f"gmc+drop@{boundary}", 5) as engine:
            logits(model, inputs)
        record = engine.last
        lengths = [states.shape[1] for number in sorted(seen) for states in seen[number]]
        assert lengths == [length] * boundary + [length - record.tokens + 5] * (5 - boundary)
        assert record.kept == 5 and record.compact_length == lengths[-1]
        # Every state that enters the boundary block is one of the dense ones: the text's, which
        # are all there, and exactly K of the visual ones.
        whole, left = dense[boundary][0][0], seen[boundary][0][0]
        stays = torch.tensor([bool((left == state).all(1).any()) for state in whole])
        if boundary:  # at block 0 equal tokens have equal states
            visual = inputs["input_ids"][0] == model.config.image_token_id
            structural = int(visual.sum()) - record.tokens
            assert bool(stays[~visual].all())
            assert int(stays[visual].sum()) == 5 + structural


@CASES
def test_rows_of_a_batch_lose_what_their_budgets_say(family, attn):
    model = model_of(family, attn)
    inputs = prompt(model, family, ROWS)
    texts = inputs["attention_mask"].sum(1).tolist()
    with entering(model) as seen, compressed(model, "gmc-h2", Keep(fraction=0.3)) as engine:
        logits(model, inputs)
    kept = [Keep(fraction=0.3).of(r.tokens, r.images) if r.tokens else 0 for r in engine.last]
    assert kept == [record.kept for record in engine.last]
    left = [n - record.tokens + k for n, record, k in zip(texts, engine.last, kept, strict=True)]
    assert left == [record.compact_length for record in engine.last]
    assert {states.shape[1] for number in (2, 3, 4) for states in seen[number]} == {max(left)}
    assert {states.shape[1] for number in (0, 1) for states in seen[number]} == {max(texts)}


@CASES
def test_two_boundaries_drop_twice(family, attn):
    model = model_of(family, attn)
    inputs = prompt(model, family, [3])
    with entering(model) as seen, compressed(model, two_stages(keep=4), 9) as engine:
        logits(model, inputs)
    record = engine.last
    text = record.length - record.tokens
    lengths = [seen[number][0].shape[1] - text for number in range(5)]
    assert lengths == [record.tokens, 9, 9, 4, 4]
    assert [stage.kept for stage in record.stages] == [9, 4]
    first, second = (stage.indices.tolist() for stage in record.stages)
    assert set(second) <= set(first) <= set(range(record.tokens))
    kept = [stage.kept for stage in record.stages]
    assert record.work_share == work_share([1, 3], kept, record.tokens, 5)


@CASES
@pytest.mark.parametrize("prefix", ["gathered", "dense"])
@torch.no_grad()
def test_cache_bytes_drop_as_recorded(family, attn, prefix):
    model = model_of(family, attn)
    for images in (1, ROWS):
        inputs = prompt(model, family, images)
        plain = model(**inputs, use_cache=True).past_key_values
        for boundary in BOUNDARIES:
            with compressed(model, f"gmc@{boundary}", 5, prefix=prefix) as engine:
                cache = model(**inputs, use_cache=True).past_key_values
            rows = len(inputs["input_ids"])
            record = engine.records[0]
            assert record.kv_bytes == bytes_of(cache) // rows
            assert record.full_kv_bytes == bytes_of(plain) // rows
            lengths = [layer.keys.shape[2] for layer in cache.layers]
            left = max(row.compact_length for row in engine.records)
            before = left if prefix == "gathered" else inputs["input_ids"].shape[1]
            assert lengths == [before] * boundary + [left] * (5 - boundary)
            assert record.kv_bytes < record.full_kv_bytes


def test_nothing_dense_is_computed_while_decoding():
    model = model_of("qwen2_5_vl")
    inputs = prompt(model, "qwen2_5_vl", 1)
    with entering(model) as seen, compressed(model, "gmc-h2", 3):
        out = generate(model, inputs, 4)
    assert [[states.shape[1] for states in seen[n]][1:] for n in range(5)] == [[1, 1, 1]] * 5
    left = seen[4][0].shape[1]
    assert {layer.keys.shape[2] for layer in out.past_key_values.layers} == {left + 3}
