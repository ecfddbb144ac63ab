"""Caches, helpers and turns that the library offers, on compact prompts."""

from contextlib import contextmanager

import pytest
import torch

from tests.runtime.helpers import (
    ONE_EACH,
    ROWS,
    SOME,
    VISUAL_IDS,
    compressed,
    decoder_of,
    generate,
    logits,
    model_of,
    new_tokens,
    prompt,
    two_stages,
)
from vicoset.errors import UnsupportedError

TOLERANCE = 1e-4
CASES = pytest.mark.parametrize(("family", "attn"), ONE_EACH)
FEW = pytest.mark.parametrize(("family", "attn"), SOME)


SLIDING = {"gemma3", "aya_vision", "llama4"}  # their static caches keep windows
# The library's own generate fails on a static cache of PaliGemma 2.
STATIC = [case for case in ONE_EACH if case[0] not in SLIDING | {"paligemma2"}]


@pytest.mark.parametrize(("family", "attn"), STATIC)
@pytest.mark.parametrize("images", [[2], ROWS], ids=["single", "batch"])
def test_a_static_cache_decodes_as_a_dynamic_one(family, attn, images):
    model = model_of(family, attn)
    inputs = prompt(model, family, images)
    for plan in ("gmc-h2", "gmc@0", two_stages(keep=3)):
        with compressed(model, plan, 5) as engine:
            dynamic = generate(model, inputs)
            static = generate(model, inputs, cache_implementation="static")
        assert new_tokens(static, inputs) == new_tokens(dynamic, inputs)
        for mine, its in zip(static.logits, dynamic.logits, strict=True):
            torch.testing.assert_close(mine, its, rtol=0, atol=TOLERANCE)
        half = len(engine.records) // 2
        for mine, its in zip(engine.records[:half], engine.records[half:], strict=True):
            assert mine.kept == its.kept and mine.compact_length == its.compact_length


@FEW
@pytest.mark.parametrize("images", [1, ROWS], ids=["single", "batch"])
@pytest.mark.parametrize("tokens", [1, 2])
def test_a_static_cache_may_have_no_slot_left(family, attn, images, tokens):
    """For one token the library makes as many slots as the prompt has positions."""
    model = model_of(family, attn)
    inputs = prompt(model, family, images)
    for plan in ("gmc-h2", "gmc@4", two_stages(keep=3)):
        with compressed(model, plan, 5):
            dynamic = generate(model, inputs, tokens)
            static = generate(model, inputs, tokens, cache_implementation="static")
        torch.testing.assert_close(static.logits, dynamic.logits, rtol=0, atol=TOLERANCE)


@FEW
@pytest.mark.parametrize("prefix", ["gathered", "dense", "replay"])
def test_sampling_draws_from_the_logits_of_the_plain_run(family, attn, prefix):
    """With a seed: at every step the library's own draw from what the same text gets greedily."""
    model = model_of(family, attn)
    inputs = prompt(model, family, 1)
    options = {"do_sample": True, "temperature": 1.3, "top_k": 20}
    with compressed(model, "gmc-h2", 5, prefix=prefix):
        torch.manual_seed(11)
        sampled = generate(model, inputs, 8, **options)
        torch.manual_seed(11)
        assert torch.equal(generate(model, inputs, 8, **options).sequences, sampled.sequences)
        forced = _Force(new_tokens(sampled, inputs)[0], inputs["input_ids"].shape[1])
        plain = generate(model, inputs, 8, logits_processor=[forced])
    assert torch.equal(plain.sequences, sampled.sequences)
    torch.manual_seed(11)
    for mine, its, token in zip(sampled.logits, plain.logits, forced.tokens, strict=True):
        assert torch.equal(mine, its)
        scores = its[0].clone()
        scores[VISUAL_IDS] = -torch.inf
        best = (scores / 1.3).topk(20)
        kept = torch.full_like(scores, -torch.inf).scatter(0, best.indices, best.values)
        assert int(torch.multinomial(kept.softmax(-1)[None], 1)) == token
    greedy = [int(step[0].argmax()) for step in sampled.logits]
    assert greedy != forced.tokens  # otherwise nothing was drawn


class _Force:
    """Writes what it is told."""

    def __init__(self, tokens, start):
        self.tokens, self.start = tokens, start

    def __call__(self, ids, scores):
        forced = torch.full_like(scores, -torch.inf)
        forced[:, self.tokens[ids.shape[1] - self.start]] = 0.0
        return forced


@contextmanager
def steps_of(model):
    """Positions of every forward of the decoder."""
    found = []
    handle = decoder_of(model).register_forward_pre_hook(
        lambda module, args, kwargs: found.append(kwargs["inputs_embeds"].shape[1]),
        with_kwargs=True,
    )
    yield found
    handle.remove()


@CASES
def test_prompt_lookup_writes_what_plain_greedy_writes(family, attn):
    model = model_of(family, attn)
    inputs = prompt(model, family, 1)
    with compressed(model, "gmc-h2", 5):
        plain = generate(model, inputs, 16, output_logits=False)
        with steps_of(model) as steps:
            looked = generate(model, inputs, 16, prompt_lookup_num_tokens=3, output_logits=False)
    assert torch.equal(looked.sequences, plain.sequences)
    assert max(steps[1:]) > 1  # tokens were really proposed and several read at once


@pytest.mark.parametrize("family", sorted(SLIDING))
def test_a_static_cache_with_windows_is_refused(family):
    model = model_of(family)
    with compressed(model), pytest.raises(UnsupportedError, match="StaticSlidingWindowLayer"):
        generate(model, prompt(model, family, 1), cache_implementation="static")


# The prompt of PaliGemma is bidirectional and would natively read what is proposed behind it.
@pytest.mark.parametrize(("family", "attn"), [case for case in ONE_EACH if case[0] != "paligemma2"])
@pytest.mark.parametrize("plan", ["gmc-h2", "gmc@0", two_stages(keep=3)], ids=["h2", "0", "two"])
def test_proposals_in_the_prompt_s_own_forward_are_no_prompt(family, attn, plan):
    model = model_of(family, attn)
    inputs = prompt(model, family, 2)
    length = inputs["input_ids"].shape[1]
    inputs["input_ids"][0, -2:] = inputs["input_ids"][0, -5:-3]  # the lookup finds its end again
    with steps_of(model) as steps, compressed(model, plan, 5) as engine:
        plain = generate(model, inputs, 8, output_logits=False)
        looked = generate(model, inputs, 8, prompt_lookup_num_tokens=3, output_logits=False)
    assert steps[0] == length and length + 3 in steps
    assert torch.equal(looked.sequences, plain.sequences)
    mine, its = engine.records
    assert torch.equal(mine.stages[-1].indices, its.stages[-1].indices)
    assert (mine.length, mine.compact_length) == (its.length, its.compact_length)
    assert (mine.kv_bytes, mine.full_kv_bytes) == (its.kv_bytes, its.full_kv_bytes)


@FEW
@pytest.mark.parametrize("plan", ["gmc-h2", "gmc@0"])
def test_an_uncompressed_assistant_changes_nothing(family, attn, plan):
    model, assistant = model_of(family, attn), model_of(family, attn, torch.float64)
    inputs = prompt(model, family, 1)
    with compressed(model, plan, 5):
        plain = generate(model, inputs, 10, output_logits=False)
        helped = generate(model, inputs, 10, assistant_model=assistant, output_logits=False)
    assert torch.equal(helped.sequences, plain.sequences)


@FEW
@pytest.mark.parametrize("prefix", ["gathered", "dense"])
@torch.no_grad()
def test_a_second_turn_goes_on_with_the_new_ids_only(family, attn, prefix):
    model = model_of(family, attn)
    inputs = prompt(model, family, 2)
    with compressed(model, "gmc-h2", 5, prefix=prefix):
        first = generate(model, inputs, 4)
        # The last token is not in the cache yet; the user goes on with five of his own.
        turn = torch.tensor([[20, 21, 22, 23, 24]])
        ids = torch.cat([first.sequences[:, -1:], turn], 1)
        whole = torch.cat([first.sequences, turn], 1)
        second = generate(
            model,
            {"input_ids": ids, "attention_mask": torch.ones_like(whole)},
            6,
            past_key_values=first.past_key_values,
        )
        # The explicit run: the same prompt, then every token fed by hand, one at a time.
        out = generate(model, inputs, 1)
        cache, text = out.past_key_values, whole[0, inputs["input_ids"].shape[1] :].tolist()
        place = next_position(model, inputs)
        for step, token in enumerate(text + new_tokens(second, {"input_ids": ids})[0][:-1]):
            position = torch.full_like(place, int(place.flatten()[0]) + step)
            found = model(
                input_ids=torch.tensor([[token]]), position_ids=position, past_key_values=cache
            ).logits[:, -1]
            if step >= len(text) - 1:
                native = second.logits[step - len(text) + 1]
                torch.testing.assert_close(native, found, rtol=0, atol=TOLERANCE)


def next_position(model, inputs):
    """The rotary position of the first token behind the prompt of the untouched model."""
    seen = []
    handle = decoder_of(model).register_forward_pre_hook(
        lambda module, args, kwargs: seen.append(kwargs["position_ids"]), with_kwargs=True
    )
    held = model._vicoset_engine
    held.detach()
    generate(model, inputs, 1)
    held.attach()
    handle.remove()
    last = seen[0][..., -1:]
    return (last[-3:] if last.ndim == 3 else last) + 1


@CASES
def test_hidden_states_change_their_length_at_the_boundary(family, attn):
    model = model_of(family, attn)
    inputs = prompt(model, family, 1)
    with torch.no_grad(), compressed(model, "gmc@2", 5) as engine:
        out = model(**inputs, output_hidden_states=True)
    record = engine.last
    lengths = [states.shape[1] for states in out.hidden_states]
    # Entry n is what block n was called with, the last one what the head reads.
    assert lengths == [record.length] * 3 + [record.compact_length] * 3
    with torch.no_grad():
        plain = model(**inputs, output_hidden_states=True)
    for number in range(3):
        assert torch.equal(out.hidden_states[number], plain.hidden_states[number])


@CASES
def test_gradients_flow(family, attn):
    model = model_of(family, attn)
    inputs = prompt(model, family, 1)
    with torch.enable_grad(), compressed(model, "gmc-h2", 5):
        loss = model(**inputs).logits[:, -1].square().mean()
        loss.backward()
    grads = [weight.grad for weight in decoder_of(model).layers[0].parameters()]
    model.zero_grad(set_to_none=True)
    assert all(grad is not None and bool(grad.isfinite().all()) for grad in grads)


@CASES
def test_logits_to_keep_and_no_cache_are_passed_on(family, attn):
    model = model_of(family, attn)
    inputs = prompt(model, family, ROWS)
    with compressed(model, "gmc-h2", 5):
        whole = logits(model, inputs)
        last = logits(model, inputs, logits_to_keep=1, use_cache=False)
    assert last.shape[1] == 1
    torch.testing.assert_close(last[:, 0], whole[:, -1], rtol=0, atol=TOLERANCE)
