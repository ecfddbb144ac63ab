"""Weights that live on the host or on disk and come to the device block by block."""

import pytest
import torch

from tests import zoo
from tests.runtime.helpers import compressed, generate, layers_of, prompt, same

accelerate = pytest.importorskip("accelerate")

FAMILIES = pytest.mark.parametrize("family", ["qwen2_5_vl", "llava", "gemma3"])


def offloaded(family, kind, folder):
    model = zoo.tiny(family)
    if kind == "cpu":
        return accelerate.cpu_offload(model, execution_device=torch.device("cpu"))
    return accelerate.disk_offload(model, str(folder), execution_device=torch.device("cpu"))


@FAMILIES
@pytest.mark.parametrize("kind", ["cpu", "disk"])
@pytest.mark.parametrize("prefix", ["gathered", "dense", "replay"])
def test_offloaded_weights_write_the_same_tokens(family, kind, prefix, tmp_path):
    plain = zoo.tiny(family)
    inputs = prompt(plain, family, [1, 2, 0])
    with compressed(plain, "gmc-h2", 5, prefix=prefix):
        expected = generate(plain, inputs, 4)
    model = offloaded(family, kind, tmp_path)
    assert layers_of(model)[2].self_attn.o_proj.weight.is_meta
    untouched = generate(model, inputs, 4)
    with compressed(model, "gmc-h2", 5, prefix=prefix) as engine:
        found = generate(model, inputs, 4)
    assert torch.equal(found.sequences, expected.sequences)
    for mine, its in zip(found.logits, expected.logits, strict=True):
        torch.testing.assert_close(mine, its, rtol=0, atol=1e-4)
    assert engine.last[0].kept == 5
    # The aborted dry run leaves no weight behind.
    assert all(weight.is_meta for block in layers_of(model) for weight in block.parameters())
    assert same(generate(model, inputs, 4), untouched)
