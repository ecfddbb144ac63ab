"""Observers see the model's own calls and change nothing."""

import pytest
import torch

from tests.runtime.helpers import (
    SOME,
    compressed,
    generate,
    layers_of,
    logits,
    model_of,
    prompt,
    same,
    two_stages,
)
from vicoset.errors import PlanError, RuntimeStateError
from vicoset.runtime.observe import Observer
from vicoset.runtime.prompt import attention_of_block
from vicoset.runtime.tap import Tap

CASES = pytest.mark.parametrize(("family", "attn"), SOME)


def attention_outputs(model, block, run):
    """What a block's attention module gives to the residual stream."""
    found = []
    module = attention_of_block(layers_of(model)[block])
    handle = module.register_forward_hook(lambda *given: found.append(given[-1][0]))
    run()
    handle.remove()
    return found[0]


def rebuilt(module, seen):
    """The block's attention from what was seen, written out."""
    group = seen.queries.shape[1] // seen.keys.shape[1]
    keys, values = (x.repeat_interleave(group, 1) for x in (seen.keys, seen.values))
    scores = seen.queries @ keys.mT * seen.scaling
    length = scores.shape[-1]
    if seen.mask is None:
        scores = scores.masked_fill(~torch.ones(length, length).tril().bool(), -torch.inf)
    elif seen.mask.dtype == torch.bool:
        scores = scores.masked_fill(~seen.mask, -torch.inf)
    else:
        scores = scores + seen.mask
    mixed = scores.softmax(-1) @ values
    return module.o_proj(mixed.transpose(1, 2).flatten(2))


@CASES
@torch.no_grad()
def test_what_is_seen_makes_the_blocks_output(family, attn):
    model = model_of(family, attn)
    inputs = prompt(model, family, 2)
    for block in (0, 2, 4):
        with Observer(model, [block]) as observer:
            out = attention_outputs(model, block, lambda: logits(model, inputs))
        module = attention_of_block(layers_of(model)[block])
        torch.testing.assert_close(rebuilt(module, observer.seen[block]), out)
        with Observer(model, [block]) as observer, compressed(model, "gmc@2", 5):
            out = attention_outputs(model, block, lambda: logits(model, inputs))
        torch.testing.assert_close(rebuilt(module, observer.seen[block]), out)


@CASES
def test_observing_changes_nothing_and_keeps_the_prompt(family, attn):
    model = model_of(family, attn)
    inputs = prompt(model, family, [1, 2, 0])
    length = inputs["input_ids"].shape[1]
    plain = generate(model, inputs)
    with compressed(model, "gmc@2", 5):
        small = generate(model, inputs)
    with Observer(model, range(5)) as observer:
        assert same(generate(model, inputs), plain)
    assert {seen.queries.shape[2] for seen in observer.seen.values()} == {length}
    with Observer(model, range(5)) as observer, compressed(model, "gmc@2", 5):
        assert same(generate(model, inputs), small)
    sizes = [observer.seen[block].queries.shape[2] for block in range(5)]
    assert sizes[:2] == [length] * 2 and max(sizes[2:]) < length
    assert not [m for m in model.modules() if "_vicoset_tap" in m.__dict__]


def test_it_goes_together_with_the_history_of_a_second_stage():
    model = model_of("qwen2_5_vl")
    inputs = prompt(model, "qwen2_5_vl", 1)
    plan = two_stages("gmc-h1", "gmc@4")  # the second reads blocks 2 and 3
    with compressed(model, plan, 8):
        plain = generate(model, inputs)
    with Observer(model, range(5)) as observer, compressed(model, plan, 8):
        assert same(generate(model, inputs), plain)
    assert sorted(observer.seen) == [0, 1, 2, 3, 4]


def test_two_observers_see_the_same():
    model = model_of("llava")
    inputs = prompt(model, "llava", 1)
    with Observer(model, [1]) as outer, Observer(model, [1]) as inner:
        logits(model, inputs)
    assert torch.equal(outer.seen[1].keys, inner.seen[1].keys)


def test_a_block_that_is_not_there():
    with pytest.raises(PlanError, match=r"blocks \[5\] of a decoder with 5"):
        Observer(model_of("llava"), [1, 5])


def test_a_tap_of_its_own_is_still_refused():
    model = model_of("llava")
    module = attention_of_block(layers_of(model)[0])
    tap = Tap(module, lambda seen: None)
    with pytest.raises(RuntimeStateError, match="tapped already"), Observer(model, [0]):
        pass
    tap.close()
    assert "_vicoset_tap" not in module.__dict__
