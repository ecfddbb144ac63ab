"""Later tokens keep their original logical positions, whatever was dropped before them."""

from contextlib import contextmanager

import pytest
import torch

from tests.runtime.helpers import (
    BOUNDARIES,
    ONE_EACH,
    ROWS,
    SOME,
    Watched,
    compressed,
    decoder_of,
    generate,
    layers_of,
    logits,
    model_of,
    new_tokens,
    prompt,
    watched,
)

CASES = pytest.mark.parametrize(("family", "attn"), ONE_EACH)


@contextmanager
def rotations(model):
    """Positions that the decoder's rotary embeddings were asked for, call by call."""
    found = []

    def look(module, args, kwargs):
        found.append((kwargs.get("position_ids", args[1] if len(args) > 1 else None)).clone())

    handle = decoder_of(model).rotary_emb.register_forward_pre_hook(look, with_kwargs=True)
    yield found
    handle.remove()


@CASES
@pytest.mark.parametrize("images", [2, ROWS], ids=["single", "batch"])
@pytest.mark.parametrize("prefix", ["gathered", "dense", "replay"])
def test_positions_are_those_of_the_uncompressed_model(family, attn, images, prefix):
    model = model_of(family, attn)
    inputs = prompt(model, family, images)
    options = {"use_cache": prefix != "replay"}
    with rotations(model) as dense:
        generate(model, inputs, 5, **options)
    with rotations(model) as compact, compressed(model, "gmc-h2", 3, prefix=prefix):
        generate(model, inputs, 5, **options)
    assert len(dense) == len(compact) >= 5
    for mine, its in zip(compact, dense, strict=True):
        assert torch.equal(mine, its)


@CASES
def test_blocks_behind_the_boundary_rotate_by_the_original_positions(family, attn):
    """The tables that a block receives are the rows of the dense tables that stay."""
    model = model_of(family, attn)
    inputs = prompt(model, family, 2)
    tables = {}

    def look(name):
        def hook(block, args, kwargs, output):
            tables[name] = kwargs.get("position_embeddings")

        return hook

    handle = layers_of(model)[4].register_forward_hook(look("dense"), with_kwargs=True)
    logits(model, inputs)
    handle.remove()
    for boundary in BOUNDARIES:
        handle = layers_of(model)[4].register_forward_hook(look("compact"), with_kwargs=True)
        with compressed(model, watched("gmc", boundary), 4) as engine:
            logits(model, inputs)
        handle.remove()
        stays = torch.ones(engine.last.length, dtype=torch.bool)
        stays[Watched.places[0]] = False
        stays[Watched.places[0][engine.last.stages[0].indices]] = True
        dense, compact = (tables[name] for name in ("dense", "compact"))
        whole = [isinstance(table, torch.Tensor) for table in (dense, compact)]
        left, right = ((dense,), (compact,)) if all(whole) else (dense, compact)
        for its, mine in zip(left, right, strict=True):
            assert torch.equal(mine, its[..., stays, :])


@pytest.mark.parametrize(("family", "attn"), [case for case in SOME if case[0] == "llava"])
@pytest.mark.parametrize("prefix", ["gathered", "dense"])
@torch.no_grad()
def test_a_loop_by_hand_without_positions_is_generate(family, attn, prefix):
    model = model_of(family, attn)
    inputs = prompt(model, family, 1)
    with compressed(model, "gmc-h2", 4, prefix=prefix):
        out = generate(model, inputs, 5)
        step = model(**inputs, use_cache=True)
        written = []
        for _ in range(5):
            written.append(int(step.logits[0, -1].argmax()))
            ids = torch.tensor([written[-1:]])
            step = model(input_ids=ids, past_key_values=step.past_key_values, use_cache=True)
    assert written == new_tokens(out, inputs)[0]
