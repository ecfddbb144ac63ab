"""A batch of n is n single runs, whatever decodes it."""

import pytest
import torch

from tests.runtime.helpers import (
    KERNELS,
    ONE_EACH,
    SOME,
    Watched,
    compressed,
    generate,
    model_of,
    new_tokens,
    prompt,
    same,
    watched,
)
from tests.zoo_parts import IMAGE
from vicoset.plan import Keep

MIXED = [1, 2, 0, 3]
NO_BEAMS = {"llama4"}  # the library does not repeat its images for beams
SHARE = Keep(fraction=0.4)
TOLERANCE = 1e-4


@pytest.mark.parametrize(("family", "attn"), KERNELS)
@pytest.mark.parametrize("keep", [SHARE, Keep(tokens=5)], ids=str)
def test_rows_are_single_runs(family, attn, keep):
    model = model_of(family, attn)
    inputs = prompt(model, family, MIXED)
    with compressed(model, "gmc-h2", keep) as engine:
        out = generate(model, inputs, 5)
        records = engine.last
        for row in range(len(MIXED)):
            alone = prompt(model, family, MIXED, row=row)
            single = generate(model, alone, 5)
            assert new_tokens(single, alone)[0] == new_tokens(out, inputs)[row], row
            for mine, its in zip(single.logits, out.logits, strict=True):
                torch.testing.assert_close(mine[0], its[row], rtol=0, atol=TOLERANCE)
            if MIXED[row]:
                own, (stage,) = engine.last, records[row].stages
                assert torch.equal(own.stages[0].indices, stage.indices)
                assert (own.tokens, own.images) == (records[row].tokens, MIXED[row])
                assert own.length == records[row].length
                assert own.compact_length == records[row].compact_length
            else:
                assert records[row].tokens == 0 and not records[row].stages
    assert len({record.kept for record in records}) >= (3 if keep is SHARE else 2)


@pytest.mark.parametrize("attn", ["sdpa", "eager"])
@pytest.mark.parametrize("options", [{}, {"cache_implementation": "static"}], ids=str)
def test_rows_of_one_length_that_keep_different_numbers(attn, options):
    """Nothing is padded before the compaction, so there is no mask; behind it a row is."""
    model = model_of("llava", attn)
    pixels = prompt(model, "llava", [1, 2])["pixel_values"]
    image, text = torch.full((36,), IMAGE), torch.arange(20, 60)
    rows = torch.stack([torch.cat([image, text]), torch.cat([image, image, text[:4]])])
    parts = [slice(None), slice(0, 1), slice(1, None)]
    batch, *alone = (
        {
            "input_ids": rows[part],
            "attention_mask": torch.ones_like(rows[part]),
            "pixel_values": pixels[part],
        }
        for part in parts
    )
    with compressed(model, "gmc-h2", SHARE) as engine:
        out = generate(model, batch, 4, **options)
        assert len({record.compact_length for record in engine.last}) == 2
        for row, inputs in enumerate(alone):
            single = generate(model, inputs, 4)
            assert new_tokens(single, inputs)[0] == new_tokens(out, batch)[row]
            for mine, its in zip(single.logits, out.logits, strict=True):
                torch.testing.assert_close(mine[0], its[row], rtol=0, atol=TOLERANCE)


@pytest.mark.parametrize(("family", "attn"), ONE_EACH)
def test_adjacent_images_are_told_apart(family, attn):
    model = model_of(family, attn)
    inputs = prompt(model, family, [2, 1], adjacent=True)
    with compressed(model, "gmc-h2", 5) as engine:
        generate(model, inputs, 2)
    assert [record.images for record in engine.last] == [2, 1]
    assert [record.kept for record in engine.last] == [5, 5]


@pytest.mark.parametrize(("family", "attn"), SOME)
@pytest.mark.parametrize("prefix", ["gathered", "dense", "replay"])
def test_beams_are_those_of_the_single_run(family, attn, prefix):
    model = model_of(family, attn)
    inputs = prompt(model, family, [1, 2])
    options = {"num_beams": 3, "num_return_sequences": 2, "output_logits": False}
    with compressed(model, "gmc-h2", 5, prefix=prefix):
        out = new_tokens(generate(model, inputs, 5, **options), inputs)
        for row in range(2):
            alone = prompt(model, family, [1, 2], row=row)
            single = new_tokens(generate(model, alone, 5, **options), alone)
            assert single == out[2 * row : 2 * row + 2]


@pytest.mark.parametrize(("family", "attn"), [case for case in ONE_EACH if case[0] not in NO_BEAMS])
def test_beams_at_full_budget_are_the_model_s_own(family, attn):
    model = model_of(family, attn)
    # GLM's own expansion mixes up the images of a row that has several, and is refused.
    inputs = prompt(model, family, [1, 1, 0] if family == "glm4v" else [1, 2, 0])
    options = {"num_beams": 3, "num_return_sequences": 3, "output_logits": False}
    plain = generate(model, inputs, 5, **options)
    with compressed(model, "gmc-h2", Keep(fraction=1.0), force=True):
        assert torch.equal(generate(model, inputs, 5, **options).sequences, plain.sequences)


@pytest.mark.parametrize(("family", "attn"), SOME)
def test_every_beam_keeps_the_same_tokens(family, attn):
    model = model_of(family, attn)
    inputs = prompt(model, family, 1)
    drawn = watched("random", 2)
    with compressed(model, drawn, 4) as engine:
        generate(model, inputs, 3)
        single = engine.last.stages[0].indices
        generate(model, inputs, 3, num_beams=3, output_logits=False)
    assert torch.equal(engine.last.stages[0].indices, single)
    assert [seed for seed, _ in Watched.drawn] == [0] * 4
    assert all(torch.equal(indices, single) for _, indices in Watched.drawn)


def test_a_record_is_one_sample_s():
    model = model_of("qwen2_5_vl")
    with compressed(model, "gmc-h2", 4) as engine:
        generate(model, prompt(model, "qwen2_5_vl", [1, 2]), 3, num_beams=3, output_logits=False)
    assert [record.images for record in engine.last] == [1, 2]


@pytest.mark.parametrize(("family", "attn"), ONE_EACH)
def test_seeded_sampling_at_full_budget_is_the_model_s_own(family, attn):
    model = model_of(family, attn)
    inputs = prompt(model, family, [1, 2, 0])

    def sample():
        torch.manual_seed(7)
        return generate(model, inputs, 6, do_sample=True, temperature=1.3)

    plain = sample()
    with compressed(model, "gmc-h2", Keep(fraction=1.0), force=True):
        assert same(sample(), plain)


@pytest.mark.parametrize(("family", "attn"), SOME)
def test_neighbours_do_not_change_a_row(family, attn):
    """Every row has its own seed, also for a selector that draws."""
    model = model_of(family, attn)
    for selector in ("gmc", "random"):
        with compressed(model, f"{selector}@2", 5) as engine:
            generate(model, prompt(model, family, [1, 2, 0]), 2)
            generate(model, prompt(model, family, [1, 2]), 2)
        first, second = engine.records[:2], engine.records[3:]
        for mine, its in zip(first, second, strict=True):
            assert torch.equal(mine.stages[0].indices, its.stages[0].indices)
