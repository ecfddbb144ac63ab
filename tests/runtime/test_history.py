"""Answers with their logits, and logits along a history that is given."""

import pytest
import torch

from tests import zoo
from tests.runtime.helpers import (
    ROWS,
    SOME,
    compressed,
    generate,
    logits,
    model_of,
    new_tokens,
    prompt,
)
from vicoset.errors import ShapeError
from vicoset.runtime.history import along, answer

CASES = pytest.mark.parametrize(("family", "attn"), SOME)
LIMIT = 5


def ending(family, attn, tokens):
    """A model whose answers end with any of some tokens."""
    model = zoo.tiny(family, attn)
    model.generation_config.eos_token_id = list(tokens)
    return model


@CASES
@pytest.mark.parametrize("prefix", ["gathered", "dense"])
def test_along_its_own_answer_a_model_repeats_itself(family, attn, prefix):
    model = model_of(family, attn)
    inputs = prompt(model, family, ROWS)
    with compressed(model, "gmc@2", 5, prefix=prefix):
        own = answer(model, inputs, LIMIT)
        again = along(model, inputs, own.tokens)
    assert own.tokens == own.chosen == again.chosen == again.tokens
    assert torch.equal(own.logits, again.logits)


@CASES
def test_the_answer_is_generates(family, attn):
    model = model_of(family, attn)
    inputs = prompt(model, family, ROWS)
    out = generate(model, inputs, LIMIT, suppress_tokens=None)
    own = answer(model, inputs, LIMIT)
    assert own.tokens == new_tokens(out, inputs)
    assert torch.equal(own.logits, torch.stack(out.logits))


@CASES
def test_along_any_history_logits_are_those_of_the_longer_prompt(family, attn):
    model = model_of(family, attn)
    inputs = prompt(model, family, ROWS)
    history = [[11, 12, 13], [21, 22, 23], [31, 32, 33]]
    found = along(model, inputs, history)
    more = torch.tensor(history)
    longer = dict(inputs)
    longer["input_ids"] = torch.cat([inputs["input_ids"], more], 1)
    longer["attention_mask"] = torch.cat([inputs["attention_mask"], torch.ones_like(more)], 1)
    if "mm_token_type_ids" in inputs:
        longer["mm_token_type_ids"] = torch.cat(
            [inputs["mm_token_type_ids"], torch.zeros_like(more)], 1
        )
    whole = logits(model, longer)[:, -4:-1].transpose(0, 1)
    torch.testing.assert_close(found.logits, whole, rtol=0, atol=1e-5)


@CASES
def test_answers_that_end_early_and_late(family, attn):
    plain = answer(model_of(family, attn), prompt(model_of(family, attn), family, ROWS), LIMIT)
    early = plain.tokens[0][1]
    model = ending(family, attn, [early, 199])
    inputs = prompt(model, family, ROWS)
    own = answer(model, inputs, LIMIT)
    for row, tokens in enumerate(plain.tokens):
        stops = [place for place, token in enumerate(tokens) if token in (early, 199)]
        assert own.tokens[row] == tokens[: stops[0] + 1 if stops else LIMIT]
        assert own.chosen[row] == own.tokens[row]
        assert own.of(row).shape[0] == len(own.tokens[row])
    assert len(own.tokens[0]) <= 2
    again = along(model, inputs, own.tokens)
    for row in range(3):
        assert torch.equal(own.of(row), again.of(row))
        assert again.chosen[row] == own.tokens[row]


def test_histories_that_nobody_can_follow():
    model = ending("llava", "sdpa", [2])
    inputs = prompt(model, "llava", ROWS)
    for wrong in ([[3], [4]], [[3], [], [4]]):
        with pytest.raises(ShapeError, match="a history of"):
            along(model, inputs, wrong)
    with pytest.raises(ShapeError, match=r"rows \[1\] go on"):
        along(model, inputs, [[3], [2, 4], [5, 2]])
