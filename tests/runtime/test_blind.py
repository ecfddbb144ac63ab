"""Visual-null: text that never sees a visual token, against a prompt that has none."""

import pytest
import torch

from tests import zoo
from tests.runtime.helpers import (
    KERNELS,
    ROWS,
    compressed,
    decoder_of,
    generate,
    logits,
    model_of,
    new_tokens,
    prompt,
)
from tests.zoo_parts import IMAGE
from vicoset.errors import RuntimeStateError, UnsupportedError
from vicoset.runtime import reference
from vicoset.runtime.blind import Blind
from vicoset.runtime.reference import Intervention

CASES = pytest.mark.parametrize(("family", "attn"), KERNELS)
PLAIN = pytest.mark.parametrize(
    ("family", "attn"),
    [(f, a) for f in ("qwen2_5_vl", "llava") for a in ("sdpa", "eager")],
)
TOLERANCE = 1e-5


def other_pixels(inputs):
    """The same prompt with other images; what pads the tiles stays."""
    torch.manual_seed(7)
    return {
        name: torch.randn_like(value).mul(3).where(value != 0, 0)
        if name.startswith("pixel_values")
        else value
        for name, value in inputs.items()
    }


def same(family, one, other):
    """Bit for bit, but for experts, whose products round by how many tokens came to them."""
    if family in ("qwen3_vl_moe", "llama4"):
        return torch.allclose(one, other, rtol=0, atol=TOLERANCE)
    return torch.equal(one, other)


def text_rows(inputs):
    return inputs["attention_mask"].bool() & (inputs["input_ids"] != IMAGE)


@CASES
@pytest.mark.parametrize("images", [1, ROWS], ids=["single", "batch"])
def test_text_does_not_depend_on_the_pixels(family, attn, images):
    model = model_of(family, attn)
    inputs = prompt(model, family, images)
    changed = other_pixels(inputs)
    text = text_rows(inputs)
    assert not torch.equal(logits(model, inputs)[text], logits(model, changed)[text])
    with Blind(model):
        assert same(family, logits(model, inputs)[text], logits(model, changed)[text])


@CASES
def test_answers_do_not_depend_on_the_pixels(family, attn):
    model = model_of(family, attn)
    inputs = prompt(model, family, ROWS)
    with Blind(model):
        one, other = generate(model, inputs), generate(model, other_pixels(inputs))
    assert new_tokens(one, inputs) == new_tokens(other, inputs)
    assert all(same(family, a, b) for a, b in zip(one.logits, other.logits, strict=True))


@PLAIN
@torch.no_grad()
def test_it_is_the_prompt_without_its_visual_tokens_at_the_same_positions(family, attn):
    """The plain layer loop, on text alone that keeps its places."""
    model = model_of(family, attn)
    inputs = prompt(model, family, 2)
    seen = {}
    handle = decoder_of(model).register_forward_pre_hook(
        lambda module, args, kwargs: seen.update(kwargs), with_kwargs=True
    )
    logits(model, inputs)
    handle.remove()
    places = seen["position_ids"]
    if places is None:
        places = torch.arange(inputs["input_ids"].shape[1])[None]
    stays = (inputs["input_ids"][0] != IMAGE).nonzero()[:, 0]
    nothing = Intervention(0, stays, stays[:0], None)
    found = reference.prefill(
        decoder_of(model), model.lm_head, seen["inputs_embeds"], places[-3:], nothing
    )
    with Blind(model):
        torch.testing.assert_close(logits(model, inputs)[:, stays], found, rtol=0, atol=TOLERANCE)


@pytest.mark.parametrize(("family", "attn"), [k for k in KERNELS if "gemma" not in k[0]])
def test_a_step_sees_what_a_longer_prompt_sees(family, attn):
    """Decoding hides the same columns as the prompt's forward does."""
    model = model_of(family, attn)
    inputs = prompt(model, family, ROWS)
    with Blind(model):
        out = generate(model, inputs, 3)
        answer = out.sequences[:, inputs["input_ids"].shape[1] :]
        longer = dict(inputs)
        for name, value in inputs.items():
            if name == "mm_token_type_ids":
                longer[name] = torch.cat([value, torch.zeros_like(answer)], 1)
        longer["input_ids"] = torch.cat([inputs["input_ids"], answer], 1)
        more = torch.ones_like(answer)
        longer["attention_mask"] = torch.cat([inputs["attention_mask"], more], 1)
        whole = logits(model, longer)[:, -4:-1].float()
    torch.testing.assert_close(torch.stack(out.logits, 1), whole, rtol=0, atol=TOLERANCE)


@PLAIN
def test_rows_of_a_padded_batch_are_as_if_alone(family, attn):
    model = model_of(family, attn)
    inputs = prompt(model, family, ROWS)
    with Blind(model):
        batch = generate(model, inputs)
        for row in (0, 1):
            alone = generate(model, prompt(model, family, ROWS, row=row))
            for mine, its in zip(batch.logits, alone.logits, strict=True):
                torch.testing.assert_close(mine[row], its[0], rtol=0, atol=TOLERANCE)


def test_bfloat16_and_eager_agree_with_themselves():
    model = model_of("qwen2_5_vl", "eager", torch.bfloat16)
    inputs = prompt(model, "qwen2_5_vl", ROWS)
    with Blind(model):
        one, other = logits(model, inputs), logits(model, other_pixels(inputs))
    text = text_rows(inputs)
    assert torch.isfinite(one[text]).all() and torch.equal(one[text], other[text])


def test_a_model_is_itself_again_afterwards():
    model = model_of("llava")
    inputs = prompt(model, "llava", 2)
    before = generate(model, inputs)
    with Blind(model):
        blind = generate(model, inputs)
    after = generate(model, inputs)
    assert not torch.equal(before.logits[0], blind.logits[0])
    assert all(torch.equal(a, b) for a, b in zip(before.logits, after.logits, strict=True))
    assert not [name for name in model.__dict__ if "vicoset" in name]


def test_text_prompts_pass_through():
    model = model_of("qwen2_5_vl")
    inputs = prompt(model, "qwen2_5_vl", 0)
    plain = generate(model, inputs)
    with Blind(model):
        assert torch.equal(generate(model, inputs).sequences, plain.sequences)


def test_two_contexts_are_refused():
    model = model_of("llava")
    with compressed(model), pytest.raises(RuntimeStateError, match="compressed already"):
        Blind(model).attach()


def test_decoding_without_a_cache_is_refused():
    model = model_of("llava")
    inputs = prompt(model, "llava", 1)
    with Blind(model), pytest.raises(UnsupportedError, match="use_cache=False"):
        generate(model, inputs, use_cache=False)


def test_a_kernel_without_masks_is_refused(monkeypatch):
    model = zoo.tiny("llava")
    monkeypatch.setattr(
        decoder_of(model).config, "_attn_implementation_internal", "flash_attention_2"
    )
    with pytest.raises(UnsupportedError, match="cannot be blinded"):
        Blind(model)


def test_windows_are_refused():
    model = zoo.tiny("gemma3", sliding_window=16)
    inputs = prompt(model, "gemma3", 1)
    with Blind(model), pytest.raises(UnsupportedError, match="positions at a time"):
        logits(model, inputs)
