"""What the core contract allows on some versions and refuses on others, and what it always refuses.

The versions are written down here by number; the runtime finds out by looking at the library.
"""

from __future__ import annotations

import inspect
from typing import Any

import pytest
import torch
from transformers import StaticCache

from tests.matrix.oracle import dropped_positions, hidden_columns
from tests.matrix.scenes import (
    BATCH,
    FAMILIES,
    VERSION,
    generate,
    logits,
    model_once,
    prompt,
    same_run,
)
from vicoset import compress
from vicoset.errors import PositionError, UnsupportedError

each_family = pytest.mark.parametrize("family", FAMILIES)


@each_family
def test_static_caches_from_5_4_on(family):
    model = model_once(family, "sdpa")
    inputs = prompt(model, *BATCH)
    with compress(model, "gmc@2", 4) as run:
        wanted = generate(model, inputs)
        if VERSION < (5, 4):
            before = len(run.records)
            with pytest.raises(UnsupportedError, match="static"):
                generate(model, inputs, cache_implementation="static")
            assert len(run.records) == before
        else:
            same_run(generate(model, inputs, cache_implementation="static"), wanted, 5e-5)


@each_family
@pytest.mark.parametrize("prefix", ["gathered", "dense"])
def test_a_static_cache_is_refused_before_anything_is_written(family, prefix):
    model = model_once(family, "sdpa")
    inputs = prompt(model)
    cache = StaticCache(config=model.config.get_text_config(), max_cache_len=64)
    with compress(model, "gmc@2", 4, prefix=prefix) as run:
        if prefix == "dense" or VERSION < (5, 4):
            with pytest.raises(UnsupportedError, match="static"):
                logits(model, {**inputs, "past_key_values": cache})
            assert int(cache.get_seq_length()) == 0
            assert run.records == []
        else:
            found = logits(model, {**inputs, "past_key_values": cache})
            assert float((found - logits(model, inputs)).abs().max()) <= 5e-5


@each_family
def test_a_second_turn_on_a_compact_cache_from_5_4_on(family):
    model = model_once(family, "sdpa")
    inputs = prompt(model)

    def turns() -> tuple[Any, Any]:
        first = generate(model, inputs)
        text = torch.cat([first.sequences, torch.tensor([[11, 12, 13]])], 1)
        new = {
            "input_ids": text[:, first.sequences.shape[1] - 1 :],
            "attention_mask": torch.ones_like(text),
            "past_key_values": first.past_key_values,
        }
        return first, generate(model, new)

    with compress(model, "gmc+drop@2", 4) as run:
        if VERSION < (5, 4):
            with pytest.raises(UnsupportedError, match="whole chat"):
                turns()
            return
        found = turns()
    assert run.last is not None
    attended = inputs["attention_mask"].bool()
    with hidden_columns(model, attended, dropped_positions(inputs, run.records), 2):
        for mine, theirs in zip(found, turns(), strict=True):
            same_run(mine, theirs, 1e-5)


@each_family
def test_steps_by_hand_are_those_of_generate(family):
    model = model_once(family, "sdpa")
    inputs = prompt(model)
    read: list[torch.Tensor] = []
    rotary = model.model.language_model.rotary_emb

    def steps(places: list[torch.Tensor | None]) -> list[int]:
        with torch.no_grad():
            out = model(**inputs, use_cache=True)
            mask, tokens = inputs["attention_mask"], [out.logits[:, -1].argmax(-1, keepdim=True)]
            for place in places:
                mask = torch.cat([mask, mask.new_ones(1, 1)], 1)
                given = {} if place is None else {"position_ids": place}
                out = model(
                    input_ids=tokens[-1],
                    attention_mask=mask,
                    past_key_values=out.past_key_values,
                    use_cache=True,
                    **given,
                )
                tokens.append(out.logits[:, -1].argmax(-1, keepdim=True))
        return [int(token) for token in tokens]

    with compress(model, "gmc@2", 4):
        handle = rotary.register_forward_pre_hook(
            lambda module, args, kwargs: read.append(kwargs.get("position_ids", args[-1])),
            with_kwargs=True,
        )
        wanted = generate(model, inputs).sequences[0, -5:].tolist()
        handle.remove()
        assert steps(read[1:]) == wanted
        if family == "llava":
            assert steps([None] * 4) == wanted
        else:
            with pytest.raises(UnsupportedError, match="position_ids"):
                steps([None] * 4)


@each_family
def test_calls_that_would_go_silently_wrong_are_refused(family):
    model = model_once(family, "sdpa")
    inputs = prompt(model, 1, 1)
    embeds = model.get_input_embeddings()(inputs["input_ids"])
    right = {**inputs, "attention_mask": inputs["attention_mask"].flip(1)}
    with compress(model, "gmc@2", 4) as run:
        with pytest.raises(UnsupportedError, match="prefill_chunk_size"):
            generate(model, inputs, prefill_chunk_size=8)
        with pytest.raises(UnsupportedError, match="inputs_embeds"):
            logits(model, {"inputs_embeds": embeds, "attention_mask": inputs["attention_mask"]})
        with pytest.raises(UnsupportedError, match="padded on the right"):
            logits(model, right)
        with pytest.raises(UnsupportedError, match="quantized"):
            generate(model, inputs, cache_implementation="quantized")
    assert run.records == []


@each_family
def test_assisted_decoding_from_5_14_on(family):
    model = model_once(family, "sdpa")
    inputs = prompt(model)
    with compress(model, "gmc@2", 4):
        wanted = generate(model, inputs, steps=8)
        if VERSION < (5, 14):
            with pytest.raises(UnsupportedError, match="assisted"):
                generate(model, inputs, steps=8, prompt_lookup_num_tokens=3)
        else:
            found = generate(model, inputs, steps=8, prompt_lookup_num_tokens=3)
            assert found.sequences.tolist() == wanted.sequences.tolist()


@pytest.mark.skipif(VERSION < (5, 3), reason="token types are asked for from 5.3 on")
def test_qwen_without_token_types_has_no_grid():
    model = model_once("qwen2_5_vl", "sdpa")
    inputs = prompt(model)
    del inputs["mm_token_type_ids"]
    with compress(model, "gmc@2", 4), pytest.raises(PositionError, match="mm_token_type_ids"):
        generate(model, inputs)


@pytest.mark.skipif(VERSION >= (5, 3), reason="before 5.3 positions come from the ids")
def test_qwen_before_token_types_has_none():
    model = model_once("qwen2_5_vl", "sdpa")
    assert "mm_token_type_ids" not in inspect.signature(type(model).forward).parameters
    assert "mm_token_type_ids" not in prompt(model)
