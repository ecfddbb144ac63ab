"""Sharing the tower and dense blocks among contexts changes nothing but how often they run."""

from __future__ import annotations

from contextlib import nullcontext
from typing import Any

import pytest
import torch

from tests import zoo
from tests.methods.lent import Words
from tests.runtime.helpers import ROWS, compressed, generate, model_of, prompt, same
from vicoset.methods.base import TOWER
from vicoset.models.families import layers_of
from vicoset.runtime.scenes import needs_of_plan
from vicoset.runtime.shared import Shared

PLANS = ("random+drop@4", "gmc-h2", "gmc@3", "fastv-mean+drop@2", "pyramiddrop", "sparsevlm")
WINDOWED = ("aya_vision", "gemma3", "llama4", "paligemma2")
KEEP = 4
TOWERS = ("visionzip", "mmtok+drop@0", "holov+drop@1", "divprune-vit+drop@0")


def answers(model: Any, inputs: dict[str, Any], plans: Any, shared: Shared | None = None) -> list:
    found = []
    for plan in plans:
        sharing = nullcontext() if shared is None else shared.of(inputs)
        with sharing, compressed(model, plan, KEEP, processor=Words()) as engine:
            out = generate(model, inputs, 3)
        found.append((out, [[stage.indices for stage in one.stages] for one in engine.records]))
    return found


def check(model: Any, inputs: dict[str, Any], plans: Any, shared: Shared) -> None:
    pairs = zip(answers(model, inputs, plans), answers(model, inputs, plans, shared), strict=True)
    for plan, (alone, together) in zip(plans, pairs, strict=True):
        assert same(alone[0], together[0]), plan
        for left, right in zip(alone[1], together[1], strict=True):
            assert all(map(torch.equal, left, right)), plan


@pytest.mark.parametrize("family", zoo.FAMILIES)
@pytest.mark.parametrize("rows", [[1], ROWS], ids=["one", "padded"])
def test_every_family_answers_the_same(family: str, rows: list[int]) -> None:
    model = model_of(family)
    shared = Shared(model, 4)
    check(model, prompt(model, family, rows), PLANS[:3], shared)
    # Blocks 0 and 1 of gmc-h2, three of gmc@3; caches of sliding windows are left alone.
    assert shared.reused >= 5 or family in WINDOWED


@pytest.mark.parametrize("family", ["qwen2_5_vl", "llava"])
@pytest.mark.parametrize("rows", [[2], [1, 2]], ids=["two", "padded"])
def test_methods_that_read_the_tower_too(family: str, rows: list[int]) -> None:
    model = model_of(family)
    inputs = prompt(model, family, rows)
    shared = Shared(model)
    check(model, inputs, (*PLANS, *TOWERS, *PLANS), shared)


def test_what_is_shared_does_not_run_again() -> None:
    model = model_of("qwen2_5_vl")
    inputs = prompt(model, "qwen2_5_vl", [1])
    ran: list[str] = []
    watched = {"tower": model.model.visual.blocks[0].attn.qkv}
    watched |= {f"block {n}": layers_of(model)[n].self_attn.q_proj for n in range(5)}
    hooks = [
        module.register_forward_hook(lambda *_, name=name: ran.append(name))
        for name, module in watched.items()
    ]
    shared = Shared(model, 4)
    try:
        with shared.of(inputs), compressed(model, "random+drop@4", KEEP):
            model(**inputs, use_cache=True)
        assert ran == ["tower", *(f"block {n}" for n in range(5))]
        ran.clear()
        with shared.of(inputs), compressed(model, "random+drop@2", KEEP):
            model(**inputs, use_cache=True)
        assert ran == ["block 2", "block 3", "block 4"]
        assert shared.reused == 3
    finally:
        for hook in hooks:
            hook.remove()


def test_other_pixels_and_other_words_are_others() -> None:
    model = model_of("llava")
    first, second = (prompt(model, "llava", [1], seed) for seed in (0, 1))
    reworded = {**first, "input_ids": first["input_ids"].clone()}
    reworded["input_ids"][0, -1] += 1
    shared = Shared(model)
    plans = ("fastv-h2", "visionzip")
    for inputs, towers in ((first, 1), (reworded, 2), (second, 1)):
        before = shared.reused
        check(model, inputs, plans, shared)
        assert shared.reused - before == towers
    # Whoever is wrong about the prompt pays with time, not with an answer.
    with shared.of(second):
        wrong = answers(model, first, ("fastv-h2",))[0][0]
    assert same(wrong, answers(model, first, ("fastv-h2",))[0][0])


def state(module: Any) -> Any:
    hooks = {name: tuple(found) for name, found in vars(module).items() if name.endswith("_hooks")}
    return set(vars(module)), hooks


def test_nothing_stays_on_the_model() -> None:
    model = model_of("qwen2_5_vl")
    modules = [model, *model.modules()]
    before = [state(module) for module in modules]
    inputs = prompt(model, "qwen2_5_vl", [1])
    shared = Shared(model)
    with pytest.raises(RuntimeError, match="stop"), shared.of(inputs):
        generate(model, inputs, 1)
        raise RuntimeError("stop")
    assert [state(module) for module in modules] == before


def test_a_plan_without_the_tower_leaves_its_features_for_one_with() -> None:
    model = model_of("llava")
    inputs = prompt(model, "llava", [1])
    shared = Shared(model)
    plans = ("random+drop@0", "visionzip")
    with compressed(model, plans[0], KEEP) as engine:
        assert TOWER not in needs_of_plan(engine.plan)
    check(model, inputs, plans, shared)
    assert shared.reused == 1
