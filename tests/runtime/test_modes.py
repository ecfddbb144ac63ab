"""Gathered, dense and replayed prefixes: what each is, and how they relate."""

import pytest
import torch

from tests.runtime.helpers import (
    BOUNDARIES,
    KERNELS,
    ONE_EACH,
    ROWS,
    SOME,
    compressed,
    generate,
    model_of,
    new_tokens,
    prompt,
    same,
    two_stages,
)

TOKENS = 12
TOLERANCE = 1e-4


def three(model, inputs, plan, keep=5, tokens=TOKENS):
    """The generations of the three modes."""
    found = []
    for prefix in ("gathered", "dense", "replay"):
        with compressed(model, plan, keep, prefix=prefix):
            found.append(generate(model, inputs, tokens))
    return found


def assert_alike(left, right, inputs, tolerance=TOLERANCE):
    """The same tokens, and logits that agree up to rounding."""
    assert new_tokens(left, inputs) == new_tokens(right, inputs)
    for mine, its in zip(left.logits, right.logits, strict=True):
        torch.testing.assert_close(mine, its, rtol=0, atol=tolerance)


@pytest.mark.parametrize(("family", "attn"), KERNELS)
@pytest.mark.parametrize("images", [1, ROWS], ids=["single", "batch"])
def test_dense_is_replay(family, attn, images):
    model = model_of(family, attn)
    inputs = prompt(model, family, images)
    gathered, dense, replay = three(model, inputs, "gmc-h2")
    assert_alike(dense, replay, inputs)
    # The first token comes from the prompt's forward, which is one and the same.
    assert torch.equal(gathered.logits[0], dense.logits[0])
    torch.testing.assert_close(gathered.logits[0], replay.logits[0], rtol=0, atol=TOLERANCE)


@pytest.mark.parametrize(("family", "attn"), SOME)
@pytest.mark.parametrize("boundary", BOUNDARIES)
def test_dense_is_replay_at_every_boundary(family, attn, boundary):
    model = model_of(family, attn)
    for images in (2, ROWS):
        inputs = prompt(model, family, images)
        _, dense, replay = three(model, inputs, f"gmc@{boundary}")
        assert_alike(dense, replay, inputs)


@pytest.mark.parametrize(("family", "attn"), ONE_EACH)
@pytest.mark.parametrize("images", [[3], [3, 1, 0]], ids=["single", "batch"])
def test_dense_is_replay_with_two_boundaries(family, attn, images):
    model = model_of(family, attn)
    inputs = prompt(model, family, images)
    for plan in (two_stages("gmc-h1", "gmc@3"), two_stages("gmc@0", "gmc+drop@3")):
        _, dense, replay = three(model, inputs, plan, keep=9)
        assert_alike(dense, replay, inputs)


@pytest.mark.parametrize(("family", "attn"), SOME)
@pytest.mark.parametrize("images", [1, ROWS], ids=["single", "batch"])
def test_all_modes_are_one_at_the_input(family, attn, images):
    """Before block 0 there is no prefix, so gathered and dense hold the same entries."""
    model = model_of(family, attn)
    inputs = prompt(model, family, images)
    gathered, dense, replay = three(model, inputs, "gmc@0")
    assert_alike(gathered, dense, inputs)
    assert_alike(gathered, replay, inputs)


@pytest.mark.parametrize(("family", "attn"), SOME)
def test_modes_differ_behind_the_first_token(family, attn):
    """Otherwise the prefix modes would be one, and the tests above would prove nothing."""
    model = model_of(family, attn)
    inputs = prompt(model, family, 2)
    gathered, dense, replay = three(model, inputs, "gmc@4", keep=2)
    assert torch.equal(gathered.logits[0], dense.logits[0])
    assert (gathered.logits[1] - dense.logits[1]).abs().max() > 10 * TOLERANCE
    assert not same(gathered, replay)


def test_agreement_of_gathered_with_replay(record_property):
    """A rate that is reported; gathered is a deployment, not an approximation of replay."""
    agreed = total = 0
    for family in ("qwen2_5_vl", "llava"):
        model = model_of(family)
        for seed in range(6):
            inputs = prompt(model, family, 1, seed=seed)
            gathered, _, replay = three(model, inputs, "gmc-h2", keep=4, tokens=8)
            mine, its = (new_tokens(out, inputs)[0] for out in (gathered, replay))
            assert mine[0] == its[0]
            agreed += sum(a == b for a, b in zip(mine, its, strict=True))
            total += len(mine)
    record_property("agreement_of_gathered_with_replay", round(agreed / total, 4))
    print(f"gathered agrees with replay on {agreed} of {total} tokens ({agreed / total:.1%})")
    assert 0 < agreed <= total
