"""The model is as before: after the context, after any exception in it, after many contexts."""

import gc
import threading
from dataclasses import dataclass
from typing import ClassVar

import pytest
import torch

from tests.runtime.helpers import (
    ONE_EACH,
    ROWS,
    compressed,
    decoder_of,
    generate,
    layers_of,
    logits,
    model_of,
    prompt,
    same,
    two_stages,
)
from vicoset import compress
from vicoset.errors import RuntimeStateError
from vicoset.methods import GMC, Drop, Random
from vicoset.plan import Keep, Plan, Stage
from vicoset.runtime.engine import PREFIXES

CASES = pytest.mark.parametrize(("family", "attn"), ONE_EACH)
HOOKS = (
    "_forward_hooks",
    "_forward_pre_hooks",
    "_forward_hooks_with_kwargs",
    "_forward_pre_hooks_with_kwargs",
    "_forward_hooks_always_called",
    "_backward_hooks",
    "_backward_pre_hooks",
)
ITS_OWN = {*HOOKS, "rope_deltas"}  # the library writes the latter at every prompt


def state_of(model):
    """Hooks, configurations by identity, and everything else a module carries itself."""
    found = []
    for name, module in model.named_modules():
        hooks = [list(getattr(module, kind).items()) for kind in HOOKS]
        own = {key: id(value) for key, value in vars(module).items() if key not in ITS_OWN}
        kernel = getattr(getattr(module, "config", None), "_attn_implementation", None)
        found.append((name, hooks, own, kernel))
    return found


@dataclass(frozen=True)
class Failing:
    """A selector and realiser that raises what it is told to."""

    error: ClassVar[BaseException] = ValueError()
    name: ClassVar[str] = "failing"
    query_aware: ClassVar[bool] = False
    needs: ClassVar[frozenset[str]] = frozenset({"views"})

    def select(self, scene, keep):
        raise self.error

    def realise(self, scene, selection):
        raise self.error


PLANS = {
    "selector": Plan("failing", (Stage(2, Failing(), Drop()),)),
    "realiser": Plan("failing", (Stage(2, Random(), Failing()),)),
    "second selector": Plan(
        "late", (Stage(1, GMC(), Drop()), Stage(3, Failing(), Drop(), Keep(tokens=2)))
    ),
}


def places(model):
    """Where an exception can happen -> (module that raises, at which of its calls)."""
    layers = layers_of(model)
    tower = next(m for n, m in model.named_modules() if n.endswith(("visual", "vision_tower")))
    return {
        "vision tower": (tower, 1),
        "decoder": (decoder_of(model), 1),
        "block before": (layers[0], 1),
        "attention before": (layers[1].self_attn.o_proj, 1),
        "dry run": (layers[2].self_attn.q_proj, 1),
        "boundary block": (layers[2].self_attn.q_proj, 2),
        "block behind": (layers[4].mlp, 1),
        "decoding": (layers[0].mlp, 3),
        "head": (model.lm_head, 1),
    }


class Tripwire:
    """Raises at a module's n-th call; its own hook is gone afterwards."""

    def __init__(self, module, call, error):
        self.left, self.error = call, error
        self.handle = module.register_forward_pre_hook(self)

    def __call__(self, *_):
        self.left -= 1
        if not self.left:
            raise self.error


def assert_clean(model, before, inputs, plain):
    assert state_of(model) == before
    assert same(generate(model, inputs), plain)
    assert state_of(model) == before


@CASES
def test_after_use(family, attn):
    model = model_of(family, attn)
    inputs = prompt(model, family, ROWS)
    plain = generate(model, inputs)
    before = state_of(model)
    for prefix in PREFIXES:
        with compressed(model, "gmc-h2", 5, prefix=prefix):
            generate(model, inputs)
            logits(model, inputs)
        assert_clean(model, before, inputs, plain)


ERRORS = pytest.mark.parametrize("error", [ValueError("on purpose"), KeyboardInterrupt()], ids=repr)
MODELS = pytest.mark.parametrize("family", ["qwen2_5_vl", "llava"])


@MODELS
@ERRORS
@pytest.mark.parametrize("plan", PLANS)
def test_after_an_exception_in_a_method(family, error, plan, monkeypatch):
    model = model_of(family)
    monkeypatch.setattr(Failing, "error", error)
    inputs = prompt(model, family, ROWS)
    plain = generate(model, inputs)
    before = state_of(model)
    for call in (generate, logits):
        with pytest.raises(type(error)), compressed(model, PLANS[plan], 5):
            call(model, inputs)
        assert_clean(model, before, inputs, plain)


@MODELS
@ERRORS
@pytest.mark.parametrize("place", [*places(model_of("llava"))])
@pytest.mark.parametrize("prefix", PREFIXES)
def test_after_an_exception_in_the_model(family, error, place, prefix):
    model = model_of(family)
    inputs = prompt(model, family, ROWS)
    plain = generate(model, inputs)
    before = state_of(model)
    with compressed(model, "gmc-h2", 5, prefix=prefix):
        expected = generate(model, inputs)
        attached = state_of(model)
        wire = Tripwire(*places(model)[place], error)
        with pytest.raises(type(error)):
            generate(model, inputs)
        wire.handle.remove()
        if not isinstance(error, KeyboardInterrupt):
            assert state_of(model) == attached
        # The context goes on as if nothing had happened.
        assert same(generate(model, inputs), expected)
        wire = Tripwire(*places(model)[place], error)
        with pytest.raises(type(error)):
            generate(model, inputs)
        wire.handle.remove()
    assert_clean(model, before, inputs, plain)


def test_after_a_refused_attach():
    model = model_of("qwen2_5_vl")
    before = state_of(model)
    model.prepare_inputs_for_generation = model.prepare_inputs_for_generation
    patched = state_of(model)
    try:
        with pytest.raises(RuntimeStateError, match="replaced already"):
            compress(model, keep=3).attach()
        assert state_of(model) == patched
    finally:
        del model.prepare_inputs_for_generation
    assert state_of(model) == before


def test_detaching_twice_or_without_attaching_is_harmless():
    model = model_of("qwen2_5_vl")
    before = state_of(model)
    run = compress(model, keep=3).attach()
    attached = state_of(model)
    other = compress(model, keep=4)
    with pytest.raises(RuntimeStateError):
        other.attach()
    other.detach()
    assert state_of(model) == attached
    run.detach()
    run.detach()
    assert state_of(model) == before


@pytest.mark.parametrize("family", ["qwen2_5_vl", "qwen3_vl"])
def test_two_hundred_contexts_leak_nothing(family):
    model = model_of(family)
    inputs = prompt(model, family, 1)
    plain = logits(model, inputs)
    before = state_of(model)
    plans = ["gmc-h2", two_stages()]

    def ours():
        gc.collect()
        kinds = (str(type(thing).__module__) for thing in gc.get_objects())
        return sum(kind.startswith(("vicoset.runtime", "vicoset.models")) for kind in kinds)

    counted = ours()
    for cycle in range(200):
        with compressed(model, plans[cycle % 2], 5):
            if cycle % 20 < 2:
                logits(model, inputs)
                generate(model, inputs, 2)
    assert ours() == counted
    assert state_of(model) == before
    assert torch.equal(logits(model, inputs), plain)


def test_another_thread_may_go_on_after_an_interrupted_forward():
    """An interrupt leaves a forward without telling anybody that it has ended."""
    model = model_of("llava")
    inputs = prompt(model, "llava", 1)
    found = []
    with compressed(model, "gmc-h2", 5) as engine:
        expected = generate(model, inputs, 2)
        wire = Tripwire(layers_of(model)[3], 1, KeyboardInterrupt())
        with pytest.raises(KeyboardInterrupt):
            logits(model, inputs)
        wire.handle.remove()
        thread = threading.Thread(target=lambda: found.append(generate(model, inputs, 2)))
        thread.start()
        thread.join()
        assert len(engine.records) == 2
    assert same(found[0], expected)


def test_what_the_history_was_read_from_is_let_go_at_the_boundary():
    """Dense queries, keys and values of two blocks, which no block behind needs."""
    model = model_of("llava")
    held = {}
    with compressed(model, Plan("two", (two_stages().stages[0], Stage(4, GMC(), Drop()))), 5) as e:

        def look(number):
            return lambda *_: held.update({number: sorted(e.prompt.history)})

        handles = [
            layers_of(model)[n].register_forward_hook(look(n)) for n in range(len(layers_of(model)))
        ]
        logits(model, prompt(model, "llava", 1))
        for handle in handles:
            handle.remove()
    assert held == {0: [0], 1: [], 2: [2], 3: [2, 3], 4: []}
