"""What holds on every supported transformers: `make test-matrix` runs this room on each of them.

Two families (M-RoPE and 1-D positions), two kernels, tiny random models.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
import torch

from tests.matrix.oracle import dropped_positions, hidden_columns
from tests.matrix.scenes import (
    BATCH,
    DEPTH,
    FAMILIES,
    IMAGE,
    generate,
    logits,
    model_once,
    prompt,
    prompt_of,
    rows_of,
    same_run,
)
from vicoset import compress
from vicoset.plan import Keep, plan_named
from vicoset.runtime import reference
from vicoset.runtime.engine import Engine

KERNELS = ("sdpa", "eager")
everywhere = pytest.mark.parametrize(
    ("family", "attn"), [(family, attn) for family in FAMILIES for attn in KERNELS]
)
each_family = pytest.mark.parametrize("family", FAMILIES)


@contextmanager
def forced(model: Any, plan: str, keep: Keep, prefix: str = "gathered") -> Iterator[Engine]:
    """An engine that takes the whole path also where K = N."""
    engine = Engine(model, plan_named(plan, DEPTH), keep, prefix=prefix, force=True)
    engine.attach()
    try:
        yield engine
    finally:
        engine.detach()


# -- identity --------------------------------------------------------------------------------


@everywhere
@pytest.mark.parametrize("p", [0, 1, 2, DEPTH - 1])
@pytest.mark.parametrize("images", [(1,), BATCH], ids=["single", "batch"])
def test_keeping_everything_is_the_untouched_model_bit_for_bit(family, attn, p, images):
    model = model_once(family, attn)
    inputs = prompt(model, *images)
    bare, wanted = logits(model, inputs), generate(model, inputs)
    with forced(model, f"gmc@{p}", Keep(fraction=1.0)):
        full = logits(model, inputs)
        same_run(generate(model, inputs), wanted)
    real = inputs["attention_mask"].bool()
    assert torch.equal(full[real], bare[real])
    with compress(model, f"gmc@{p}", 1.0):
        same_run(generate(model, inputs), wanted)


@everywhere
def test_keeping_everything_in_half_precision_is_the_untouched_model(family, attn):
    model = model_once(family, attn, torch.bfloat16)
    inputs = prompt(model, *BATCH)
    wanted = generate(model, inputs)
    with forced(model, "gmc@2", Keep(fraction=1.0)):
        same_run(generate(model, inputs), wanted)


# -- deletion and transport ------------------------------------------------------------------


@everywhere
@pytest.mark.parametrize("p", [0, 1, 2, DEPTH - 1])
@pytest.mark.parametrize("images", [(1,), BATCH], ids=["single", "batch"])
def test_deletion_is_the_dense_model_with_hidden_columns(family, attn, p, images):
    model = model_once(family, attn)
    inputs = prompt(model, *images)
    with compress(model, f"gmc+drop@{p}", 3) as run:
        compact = logits(model, inputs)
        found = generate(model, inputs)
    dropped = dropped_positions(inputs, run.records[: len(images)])
    attended = inputs["attention_mask"].bool()
    assert int(dropped.sum())
    with hidden_columns(model, attended, dropped, p):
        dense = logits(model, inputs)
        same_run(found, generate(model, inputs), 1e-5)
    for row, stays in enumerate(attended & ~dropped):
        own = dense[row, stays]
        assert float((compact[row, -len(own) :] - own).abs().max()) <= 1e-5
    assert float((dense - logits(model, inputs))[attended].abs().max()) > 1e-3  # it does matter


@everywhere
@pytest.mark.parametrize("p", [0, 1, 2])
def test_a_transported_run_is_the_plain_loop_bit_for_bit(family, attn, p):
    model = model_once(family, attn)
    inputs = prompt(model, 2)
    seen: dict[str, Any] = {}

    def read(module: Any, args: Any, kwargs: dict[str, Any]) -> None:
        seen.update(kwargs)

    decoder = model.model.language_model
    with forced(model, f"gmc@{p}", Keep(tokens=4)) as engine:
        handle = decoder.register_forward_pre_hook(read, with_kwargs=True)
        caught = engine._remember
        engine._remember = lambda state: (seen.update(done=state.done[0]), caught(state))  # type: ignore[method-assign]
        found = logits(model, inputs)
        handle.remove()
    done = seen["done"]
    places = seen["position_ids"]
    if places is None:
        places = torch.arange(inputs["input_ids"].shape[1])[None]
    places = places[-3:] if places.ndim == 3 else places
    step = reference.Intervention(p, done.kept.index[0], done.slots[0], done.carriers[0])
    with torch.no_grad():
        wanted = reference.prefill(decoder, model.lm_head, seen["inputs_embeds"], places, step)
    assert done.carriers[0] is not None
    assert torch.equal(found, wanted)


# -- modes, batches, sampling ----------------------------------------------------------------


@everywhere
@pytest.mark.parametrize("images", [(1,), BATCH], ids=["single", "batch"])
@pytest.mark.parametrize("p", [0, 2])
def test_dense_decodes_the_tokens_of_replay(family, attn, images, p):
    model = model_once(family, attn)
    inputs = prompt(model, *images)
    runs = []
    for prefix in ("dense", "replay"):
        with compress(model, f"gmc@{p}", 4, prefix=prefix) as run:
            runs.append(generate(model, inputs, steps=6))
        assert run.last is not None
    same_run(*runs, 5e-5)


@everywhere
@pytest.mark.parametrize("prefix", ["gathered", "dense"])
def test_a_row_of_a_batch_is_its_single_run(family, attn, prefix):
    model = model_once(family, attn)
    rows = rows_of(model, BATCH)
    with compress(model, "gmc@2", 5, prefix=prefix):
        batch = generate(model, prompt_of(model, rows), steps=6)
        singles = [generate(model, prompt_of(model, [row]), steps=6) for row in rows]
    for row, single in enumerate(singles):
        assert batch.sequences[row, -6:].tolist() == single.sequences[0, -6:].tolist()
        for mine, theirs in zip(batch.logits, single.logits, strict=True):
            assert float((mine[row] - theirs[0]).abs().max()) <= 5e-5


@each_family
def test_beams_of_a_batch_are_those_of_single_runs(family):
    model = model_once(family, "sdpa")
    rows = rows_of(model, (2, 1))
    with compress(model, "gmc@2", 5):
        batch = generate(model, prompt_of(model, rows), num_beams=3)
        singles = [generate(model, prompt_of(model, [row]), num_beams=3) for row in rows]
    for row, single in enumerate(singles):
        assert batch.sequences[row, -5:].tolist() == single.sequences[0, -5:].tolist()


@each_family
def test_sampling_while_keeping_everything_draws_the_same_tokens(family):
    model = model_once(family, "sdpa")
    inputs = prompt(model, *BATCH)
    torch.manual_seed(5)
    wanted = generate(model, inputs, do_sample=True)
    with forced(model, "gmc@2", Keep(fraction=1.0)):
        torch.manual_seed(5)
        same_run(generate(model, inputs, do_sample=True), wanted)


# -- what the blocks see ---------------------------------------------------------------------


@each_family
@pytest.mark.parametrize("images", [(1,), BATCH], ids=["single", "batch"])
@pytest.mark.parametrize("prefix", ["gathered", "dense"])
def test_later_tokens_stay_at_their_original_positions(family, images, prefix):
    model = model_once(family, "sdpa")
    inputs = prompt(model, *images)
    seen: list[torch.Tensor] = []

    def read(module: Any, args: Any, kwargs: dict[str, Any]) -> None:
        seen.append(args[1] if len(args) > 1 else kwargs["position_ids"])

    handle = model.model.language_model.rotary_emb.register_forward_pre_hook(read, with_kwargs=True)
    try:
        generate(model, inputs)
        bare, seen = seen, []
        with compress(model, "gmc@1", 3, prefix=prefix):
            generate(model, inputs)
    finally:
        handle.remove()
    assert len(bare) == len(seen) == 5
    for mine, theirs in zip(seen[1:], bare[1:], strict=True):
        assert torch.equal(mine.expand_as(theirs), theirs)


@everywhere
def test_blocks_behind_the_boundary_get_k_visual_states_and_cache_as_many(family, attn):
    model = model_once(family, attn)
    inputs = prompt(model, 2)
    length = inputs["input_ids"].shape[1]
    compact = length - int((inputs["input_ids"] == IMAGE).sum()) + 4
    entered: dict[int, int] = {}
    handles = []
    with compress(model, "gmc@2", 4):
        for number, block in enumerate(model.model.language_model.layers):

            def read(module: Any, args: Any, kwargs: dict[str, Any], n: int = number) -> None:
                entered[n] = (args[0] if args else kwargs["hidden_states"]).shape[1]
                places = kwargs.get("cache_position")  # given to blocks before 5.4
                assert places is None or len(places) == entered[n]

            handles.append(block.self_attn.register_forward_pre_hook(read, with_kwargs=True))
        with torch.no_grad():
            cache = model(**inputs, use_cache=True).past_key_values
    for handle in handles:
        handle.remove()
    assert entered == {0: length, 1: length, 2: compact, 3: compact}
    assert [layer.keys.shape[2] for layer in cache.layers] == [compact] * DEPTH


# -- attaching -------------------------------------------------------------------------------


def traces(model: Any) -> Any:
    hooks = {
        name: (len(m._forward_pre_hooks), len(m._forward_hooks), sorted(vars(m)))
        for name, m in model.named_modules()
    }
    kernels = {
        name: (id(m.config), m.config._attn_implementation)
        for name, m in model.named_modules()
        if hasattr(m, "config")
    }
    return hooks, kernels


@everywhere
@pytest.mark.parametrize("prefix", ["gathered", "dense", "replay"])
def test_nothing_stays_behind(family, attn, prefix):
    model = model_once(family, attn)
    inputs = prompt(model, *BATCH)
    wanted = generate(model, inputs)
    before = traces(model)
    with compress(model, "gmc@2", 3, prefix=prefix):
        generate(model, inputs)
    assert traces(model) == before
    same_run(generate(model, inputs), wanted)


@each_family
@pytest.mark.parametrize("stage", ["block", "selector", "decode"])
def test_nothing_stays_behind_after_an_exception(family, stage, monkeypatch):
    model = model_once(family, "sdpa")
    inputs = prompt(model)
    wanted = generate(model, inputs)
    before = traces(model)
    steps = 0

    def burst(*args: Any, **kwargs: Any) -> None:
        nonlocal steps
        steps += 1
        if stage != "decode" or steps == 2:
            raise RuntimeError("burst")

    with compress(model, "gmc@2", 3) as run, monkeypatch.context() as patch:
        if stage == "selector":
            patch.setattr("vicoset.methods.gmc.GMC.select", burst)
            handle = None
        else:
            last = model.model.language_model.layers[-1].mlp
            handle = last.register_forward_pre_hook(lambda *_: burst())
        with pytest.raises(RuntimeError, match="burst"):
            generate(model, inputs)
        if handle is not None:
            handle.remove()
        assert len(run.records) == (stage == "decode")
    assert traces(model) == before
    same_run(generate(model, inputs), wanted)
