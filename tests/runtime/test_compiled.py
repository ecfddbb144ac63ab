"""Compiled models: steps that the library compiles, and hooks that a trace never had."""

import pytest
import torch
from transformers import CompileConfig

from tests import zoo
from tests.runtime.helpers import compressed, generate, layers_of, model_of, new_tokens, prompt
from vicoset import compress
from vicoset.errors import RuntimeStateError, UnsupportedError
from vicoset.runtime import compiled

LLAVA = "llava"


@pytest.fixture(autouse=True)
def fresh_traces():
    """Traces belong to one test."""
    yield
    torch.compiler.reset()


def steps_compiled(model, inputs, backend):
    """A generation whose steps are compiled as one graph, as the library does on accelerators."""
    config = CompileConfig(backend=backend, fullgraph=True, mode=None, dynamic=None)
    config._compile_all_devices = True
    options = {"cache_implementation": "static", "compile_config": config}
    return generate(model, inputs, 4, **options)


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
@pytest.mark.parametrize(
    ("family", "backend"),
    [(LLAVA, "eager"), pytest.param("qwen2_5_vl", "aot_eager", marks=pytest.mark.slow)],
)
def test_steps_on_a_static_cache_compile_as_one_graph(family, backend):
    model = zoo.tiny(family)
    inputs = prompt(model, family, [2, 1])
    with compressed(model, "gmc-h2", 5):
        plain = generate(model, inputs, 4, cache_implementation="static")
        # Traced inside of a context, and used again in the next one.
        first = steps_compiled(model, inputs, backend)
    with compressed(model, "gmc-h2", 5):
        again = steps_compiled(model, inputs, backend)
    assert "_compiled_call" in vars(model)  # otherwise nothing was compiled
    for found in (first, again):
        assert new_tokens(found, inputs) == new_tokens(plain, inputs)
        for mine, its in zip(found.logits, plain.logits, strict=True):
            torch.testing.assert_close(mine, its, rtol=0, atol=1e-4)


def test_steps_at_packed_positions_are_not_compiled():
    """Hooks of each step make those positions, and a trace would not call them again."""
    model = zoo.tiny(LLAVA)
    inputs = prompt(model, LLAVA, 1)
    with compressed(model, "gmc-h2", 5, positions="packed"):
        plain = generate(model, inputs, 4)
        found = steps_compiled(model, inputs, "eager")
    assert "_compiled_call" not in vars(model)
    assert new_tokens(found, inputs) == new_tokens(plain, inputs)


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_a_forward_that_was_traced_before_is_no_silent_full_model():
    model = zoo.tiny(LLAVA)
    inputs = prompt(model, LLAVA, 1)
    model.forward = torch.compile(model.forward, backend="eager")
    generate(model, inputs, 1)
    with (
        compress(model, "gmc-h2", 5) as run,
        pytest.raises(UnsupportedError, match=r"the decoder ran without.*torch\.compiler\.reset"),
    ):
        generate(model, inputs, 1)
    assert run.records == []


def test_a_model_that_is_compiled_in_place():
    model = zoo.tiny(LLAVA)
    model.compile(backend="eager")
    with pytest.raises(UnsupportedError, match=r"compiled in place.*cache_implementation='static'"):
        compress(model)


def test_a_block_without_its_hook_is_named():
    compiled.check_reached({-1, 2, 3, 4}, {-1, 2, 3, 4})
    with pytest.raises(UnsupportedError, match="block 3 ran without the hooks"):
        compiled.check_reached({-1, 2, 4}, {-1, 2, 3, 4})


def test_a_block_that_gets_another_length_is_named():
    """Something between the blocks that brings a position back."""
    model = model_of(LLAVA)
    inputs = prompt(model, LLAVA, 1)

    def longer(block, args, output):
        states = output[0] if isinstance(output, tuple) else output
        return torch.cat([states, states[:, -1:]], 1)

    with compressed(model, "gmc-h2", 5) as engine:
        handle = layers_of(model)[2].register_forward_hook(longer)
        with pytest.raises(RuntimeStateError, match=r"block 3 got \d+ positions where"):
            generate(model, inputs, 1)
        handle.remove()
        generate(model, inputs, 1)
    assert len(engine.records) == 1
