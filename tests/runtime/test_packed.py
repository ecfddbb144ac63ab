"""Packed positions: the model's own run on a shorter sequence, and a loop behind a boundary."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor

from tests.core.helpers import refused
from tests.runtime.helpers import (
    VISUAL_IDS,
    compressed,
    decoder_of,
    generate,
    logits,
    model_of,
    new_tokens,
    prompt,
)
from vicoset import compress
from vicoset.errors import PlanError, UnsupportedError
from vicoset.plan import plan_named

FAMILIES = ("qwen2_5_vl", "llava")
SEED = 2  # of the zoo: images of 9 and more tokens
KEEP = 5
PACKED: dict[str, Any] = {"positions": "packed"}


def embedded(model: Any, inputs: dict[str, Any]) -> Tensor:
    """What enters the decoder, [B, L, d]."""
    seen: list[Tensor] = []
    hook = decoder_of(model).register_forward_pre_hook(
        lambda module, args, kwargs: seen.append(kwargs["inputs_embeds"]), with_kwargs=True
    )
    logits(model, inputs)
    hook.remove()
    return seen[0]


def kept_of(record: Any, inputs: dict[str, Any], row: int = 0) -> Tensor:
    """[L'] positions of a row of the prompt that stay, padding among them."""
    ids = inputs["input_ids"][row]
    stays = torch.ones_like(ids, dtype=torch.bool)
    visual = torch.isin(ids, torch.tensor(VISUAL_IDS)).nonzero()[:, 0]
    stays[visual] = False
    stays[visual[record.stages[0].indices]] = True
    return stays.nonzero()[:, 0]


def plainly(model: Any, states: Tensor, start: int = 0) -> Tensor:
    """The blocks from ``start`` on, on positions 0, 1, 2, ..., then the head."""
    decoder = decoder_of(model)
    length = states.shape[1]
    ids = torch.arange(length)[None]
    axes = 3 if "qwen" in model.config.model_type else 0
    with torch.no_grad():
        factors = decoder.rotary_emb(states, ids.expand(axes, -1, -1) if axes else ids)
        mask = torch.full((length, length), torch.finfo(states.dtype).min).triu(1)[None, None]
        for block in decoder.layers[start:]:
            states = block(states, attention_mask=mask, position_embeddings=factors)
            states = states[0] if isinstance(states, tuple) else states
        return model.lm_head(decoder.norm(states))


@pytest.mark.parametrize("family", FAMILIES)
def test_at_the_input_the_model_sees_a_shorter_prompt(family: str) -> None:
    model = model_of(family)
    inputs = prompt(model, family, [1], SEED)
    whole = embedded(model, inputs)
    with compressed(model, "random+drop@0", KEEP, **PACKED) as engine:
        found = generate(model, inputs, 6)
        first = logits(model, inputs)
        kept = kept_of(engine.last, inputs)
        assert engine.last.positions == "packed"
    short = whole[:, kept]
    torch.testing.assert_close(first, plainly(model, short), atol=1e-5, rtol=1e-4)
    # The answer: greedy, the sequence written anew at every step.
    table = model.get_input_embeddings()
    written: list[int] = []
    for _ in range(6):
        scores = plainly(model, short)[0, -1]
        scores[VISUAL_IDS] = -torch.inf
        written.append(int(scores.argmax()))
        short = torch.cat([short, table(torch.tensor([[written[-1]]])).detach()], 1)
    assert new_tokens(found, inputs) == [written]
    with compressed(model, "random+drop@0", KEEP):
        assert not torch.allclose(logits(model, inputs), first, atol=1e-3)


@pytest.mark.parametrize("family", FAMILIES)
def test_blocks_before_a_boundary_keep_their_positions(family: str) -> None:
    model = model_of(family)
    inputs = prompt(model, family, [1], SEED)
    inside: list[Tensor] = []
    hook = (
        decoder_of(model)
        .layers[2]
        .register_forward_pre_hook(
            lambda module, args, kwargs: inside.append(
                args[0] if args else kwargs["hidden_states"]
            ),
            with_kwargs=True,
        )
    )
    logits(model, inputs)
    hook.remove()
    with compressed(model, "random+drop@2", KEEP, **PACKED) as engine:
        first = logits(model, inputs)
        kept = kept_of(engine.last, inputs)
    wanted = plainly(model, inside[0][:, kept], start=2)
    torch.testing.assert_close(first, wanted, atol=1e-5, rtol=1e-4)


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("plan", ["random+drop@0", "random+drop@2", "pyramiddrop"])
def test_steps_with_a_cache_are_the_replay(family: str, plan: str) -> None:
    model = model_of(family)
    inputs = prompt(model, family, [1, 2], SEED)
    found = {}
    for prefix in ("dense", "replay"):
        with compressed(model, plan, KEEP, prefix=prefix, **PACKED):
            found[prefix] = generate(model, inputs, 5)
    for step, other in zip(found["dense"].logits, found["replay"].logits, strict=True):
        torch.testing.assert_close(step, other, atol=1e-4, rtol=1e-3)
    assert torch.equal(found["dense"].sequences, found["replay"].sequences)


@pytest.mark.parametrize("family", FAMILIES)
def test_rows_of_a_padded_batch_are_numbered_alone(family: str) -> None:
    model = model_of(family)
    inputs = prompt(model, family, [1, 2], SEED)
    assert not bool(inputs["attention_mask"].all())
    whole = embedded(model, inputs)
    with compressed(model, "random+drop@0", KEEP, **PACKED) as engine:
        first = generate(model, inputs, 2).logits
    for row, record in enumerate(engine.records):
        own = kept_of(record, inputs, row)
        short = whole[row : row + 1, own[inputs["attention_mask"][row, own].bool()]]
        wanted = plainly(model, short)[0, -1]
        torch.testing.assert_close(first[0][row], wanted, atol=1e-4, rtol=1e-3)


def test_what_has_no_packed_positions_is_refused() -> None:
    with refused(PlanError, "positions='new'", "'original', 'packed'"):
        compress(model_of("llava"), positions="new")
    with refused(UnsupportedError, "positions='packed'", "Leave out positions"):
        compress(model_of("gemma3"), positions="packed")
    assert compress(model_of("llava"), plan_named("gmc-h1", 5), **PACKED).plan.name == "gmc-h1"
