"""Weights that live on the host or on disk and come to the device block by block."""

import warnings

import pytest
import torch

from tests import checkpoints, zoo
from tests.runtime.helpers import compressed, generate, layers_of, prompt, same
from vicoset import load

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


def with_disk(model, numbers):
    """A device map: these blocks of the decoder on disk, everything else on the host."""
    disk = [layers_of(model)[number] for number in numbers]
    on_disk = [name for name, own in model.named_modules() if any(own is one for one in disk)]
    owners = {name.rpartition(".")[0] for name, _ in model.named_parameters()}
    inside = tuple(f"{name}." for name in on_disk)
    rest = [name for name in sorted(owners) if not name.startswith(inside)]
    return dict.fromkeys(rest, "cpu") | dict.fromkeys(on_disk, "disk")


@pytest.mark.parametrize("family", ["qwen2_5_vl", "llava"])
def test_a_device_map_with_blocks_on_disk(family, tmp_path):
    """As users load what does not fit: the block before the boundary and the one behind it."""
    saved = checkpoints.save(family, tmp_path / "saved")
    chat = checkpoints.question("What?", checkpoints.picture())
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)  # without torchvision
        plain, processor = load(saved)
        places = with_disk(plain, (1, 2))
        model, _ = load(saved, device_map=places, offload_folder=str(tmp_path / "weights"))
    inputs = checkpoints.inputs(processor, chat)
    assert all(weight.is_meta for n in (1, 2) for weight in layers_of(model)[n].parameters())
    found = []
    for one in (plain, model):
        with compressed(one, "gmc-h2", 5) as engine:
            found.append(generate(one, inputs, 4))
        assert engine.last.kept == 5
    assert torch.equal(found[0].sequences, found[1].sequences)
    assert all(weight.is_meta for n in (1, 2) for weight in layers_of(model)[n].parameters())
