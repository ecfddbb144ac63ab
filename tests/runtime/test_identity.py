"""K = N leaves logits and tokens bit-identical, through the bypass and through the whole path."""

import pytest
import torch

from tests.runtime.helpers import (
    BOUNDARIES,
    DTYPES,
    KERNELS,
    ONE_EACH,
    ROWS,
    compressed,
    generate,
    logits,
    model_of,
    prompt,
    same,
    two_stages,
)
from vicoset.plan import Keep
from vicoset.runtime.engine import PREFIXES

ALL = Keep(fraction=1.0)
CASES = pytest.mark.parametrize(("family", "attn"), KERNELS)
KINDS = pytest.mark.parametrize("dtype", DTYPES, ids=["fp32", "bf16"])


@CASES
@KINDS
@pytest.mark.parametrize("images", [1, ROWS], ids=["single", "batch"])
def test_forward_is_bit_identical_at_every_boundary(family, attn, dtype, images):
    model = model_of(family, attn, dtype)
    inputs = prompt(model, family, images)
    plain = logits(model, inputs)
    for boundary in BOUNDARIES:
        for force in (False, True):
            with compressed(model, f"gmc@{boundary}", ALL, force=force) as engine:
                assert torch.equal(logits(model, inputs), plain), (boundary, force)
            found = [stages for record in engine.records for stages in record.stages]
            pictured = [record for record in engine.records if record.tokens]
            assert len(found) == (len(pictured) if force else 0)


@CASES
@KINDS
@pytest.mark.parametrize("force", [False, True], ids=["bypass", "forced"])
def test_generation_of_a_padded_batch_is_bit_identical(family, attn, dtype, force):
    model = model_of(family, attn, dtype)
    inputs = prompt(model, family, ROWS)
    plain = generate(model, inputs)
    with compressed(model, "gmc-h2", ALL, force=force):
        assert same(generate(model, inputs), plain)


@pytest.mark.parametrize(("family", "attn"), ONE_EACH)
@pytest.mark.parametrize("prefix", PREFIXES)
def test_every_prefix_mode_is_bit_identical(family, attn, prefix):
    model = model_of(family, attn)
    for images in (1, ROWS):
        inputs = prompt(model, family, images)
        plain = generate(model, inputs, use_cache=prefix != "replay")
        with compressed(model, "gmc-h2", ALL, force=True, prefix=prefix):
            assert same(generate(model, inputs), plain)


@pytest.mark.parametrize(("family", "attn"), ONE_EACH)
def test_two_boundaries_are_bit_identical(family, attn):
    model = model_of(family, attn)
    inputs = prompt(model, family, ROWS)
    plain = generate(model, inputs)
    with compressed(model, two_stages(keep=10_000), ALL, force=True):
        assert same(generate(model, inputs), plain)


@pytest.mark.parametrize(("family", "attn"), ONE_EACH)
def test_a_request_without_images_is_untouched(family, attn):
    model = model_of(family, attn)
    inputs = prompt(model, family, [0, 0])
    plain = generate(model, inputs)
    with compressed(model, "gmc-h2", 4, force=True) as engine:
        assert same(generate(model, inputs), plain)
    assert engine.last is None


@pytest.mark.slow
@CASES
@KINDS
@pytest.mark.parametrize("prefix", PREFIXES)
@pytest.mark.parametrize("boundary", BOUNDARIES)
def test_the_full_product_is_bit_identical(family, attn, dtype, prefix, boundary):
    model = model_of(family, attn, dtype)
    for images in (1, ROWS):
        inputs = prompt(model, family, images)
        plain = generate(model, inputs, use_cache=prefix != "replay")
        for force in (False, True):
            with compressed(model, f"gmc@{boundary}", ALL, force=force, prefix=prefix):
                assert same(generate(model, inputs), plain)
