"""The evidence of a request: what was kept, what it costs, and one line for people."""

import pytest
import torch

from tests import zoo
from tests.runtime.helpers import (
    ONE_EACH,
    ROWS,
    compressed,
    generate,
    logits,
    model_of,
    prompt,
    two_stages,
)
from vicoset import compress
from vicoset.core.settings import Settings
from vicoset.errors import PlanError
from vicoset.methods import Drop
from vicoset.plan import Keep, Plan, Stage
from vicoset.runtime.record import Record, Records

LLAVA = "llava"
CASES = pytest.mark.parametrize(("family", "attn"), ONE_EACH)


@CASES
def test_a_run_keeps_the_record_of_each_prompt(family, attn):
    model = model_of(family, attn)
    run = compress(model, "gmc-h2", keep=4)
    assert run.last is None and run.records == []
    with run:
        generate(model, prompt(model, family, 1), 3)
        first = run.last
        logits(model, prompt(model, family, 2))
    assert isinstance(first, Record) and first is run.records[0] and run.last is run.records[1]
    assert [record.images for record in run.records] == [1, 2]
    for record in run.records:
        (stage,) = record.stages
        assert (record.plan, record.prefix, record.depth) == ("gmc-h2", "gathered", 5)
        assert (stage.boundary, stage.selector, stage.realiser) == (2, "gmc", "transport")
        assert (stage.requested, stage.kept, record.kept) == ("4", 4, 4)
        assert record.length - record.compact_length == record.tokens - 4 == stage.tokens - 4
        # W = p N + (L - p) K
        assert record.work == 2 * record.tokens + 3 * 4
        assert record.work_share == record.work / (5 * record.tokens)
        assert 0 < stage.number("ratio") <= 1 and 0 <= stage.number("certificate") <= 1
        assert (record.attention, record.dtype) == (attn, "float32")


@pytest.mark.parametrize("keep", [4, 1.0])
@pytest.mark.parametrize("prefix", ["gathered", "replay"])
def test_a_prompt_without_cache_has_one_record(keep, prefix):
    """Every step of it is a forward of the whole text."""
    model = model_of(LLAVA)
    inputs = prompt(model, LLAVA, ROWS)
    with compressed(model, keep=keep, prefix=prefix) as engine:
        for _ in range(2):
            generate(model, inputs, 4, use_cache=False)
    assert [record.images for record in engine.records] == ROWS * 2
    assert {record.length for record in engine.records[:3]} == {
        int(n) for n in inputs["attention_mask"].sum(1)
    }


def test_the_line_of_a_record():
    model = model_of(LLAVA)
    with compressed(model, keep=9) as engine:
        logits(model, prompt(model, LLAVA, 1))
    record = engine.last
    text = str(record)
    assert "\n" not in text
    start = "gmc-h2: visual 36 -> 9 (25.0% kept), work 55.0%, prompt KV 60.0 KiB -> 26.2 KiB"
    assert record.length == 48 and text.startswith(start)
    stage = record.stages[0]
    assert f"coverage {stage.number('ratio'):.3f}" in text
    assert f"certificate {stage.number('certificate'):.3f}" in text


def test_a_batch_has_a_line_a_row():
    model = model_of(LLAVA)
    with compressed(model, keep=Keep(fraction=0.25)) as engine:
        logits(model, prompt(model, LLAVA, ROWS))
    assert isinstance(engine.last, Records) and list(engine.last) == engine.records
    assert [(r.tokens, r.kept, r.images) for r in engine.last] == [
        (36, 9, 1),
        (72, 18, 2),
        (0,) * 3,
    ]
    lines = str(engine.last).splitlines()
    assert len(lines) == 3 and lines[2] == "gmc-h2: no image, nothing to compress"
    assert engine.last[2].work_share == 1.0


def test_indices_of_every_stage_name_tokens_of_the_prompt():
    model = model_of(LLAVA)
    with compressed(model, two_stages(keep=4), 9) as engine:
        logits(model, prompt(model, LLAVA, 1))
    first, second = (stage.indices for stage in engine.last.stages)
    assert len(first) == 9 and len(second) == 4
    assert set(second.tolist()) <= set(first.tolist())
    assert bool((second[1:] > second[:-1]).all())


def test_what_a_reader_should_know_is_noted():
    model = model_of(LLAVA)
    inputs = prompt(model, LLAVA, 2)
    with compressed(model, "gmc-l16", 1) as engine:
        logits(model, inputs)
    rescaled, raised = engine.last.notes
    assert rescaled == "gmc-l16 is p = 16 of 28 blocks; this model has 5, so p = 3"
    assert "below the 2 images" in raised and engine.last.kept == 2
    assert str(engine.last).endswith(f"; {rescaled}; {raised}")
    with compressed(model, "gmc-h2", 500) as engine:
        logits(model, inputs)
    assert "above the 72 visual tokens" in engine.last.notes[0]
    assert engine.last.kept == engine.last.tokens == 72 and not engine.last.stages
    assert "identity" in str(engine.last)
    with compressed(model, "gmc-h2", 12) as engine:
        logits(model, inputs)
    assert engine.last.notes == ()


def test_a_preset_is_not_rescaled_on_the_paper_s_depth():
    model = zoo.tiny(LLAVA, num_hidden_layers=28)
    with compressed(model, "gmc-l16", 4) as engine:
        logits(model, prompt(model, LLAVA, 1))
    assert engine.last.notes == () and engine.last.stages[0].boundary == 16


def test_the_digest_tells_plans_and_numbers_apart():
    model = model_of(LLAVA)

    def digest(plan, settings=None):
        with compressed(model, plan, 4, settings=settings) as engine:
            logits(model, prompt(model, LLAVA, 1))
        return engine.last.digest

    plain = digest("gmc-h2")
    assert digest("gmc-h2") == plain
    assert len({plain, digest("gmc-h1"), digest("gmc-h2", Settings(terminal_weight=3.0))}) == 3


def test_a_plan_without_a_digest_is_refused_at_once():
    plan = Plan("odd", (Stage(2, _Holding(torch.zeros(1)), Drop()),))
    with pytest.raises(PlanError, match="no digest"):
        compress(model_of(LLAVA), plan)


class _Holding:
    name, query_aware, needs = "holding", False, frozenset()

    def __init__(self, weight):
        self.weight = weight

    def select(self, scene, keep):
        raise NotImplementedError


def test_evidence_counts_the_queries():
    model = model_of(LLAVA)
    with compressed(model, "gmc-h2", 4, settings=Settings(max_queries=2)) as engine:
        logits(model, prompt(model, LLAVA, 1))
    evidence = engine.last.stages[0].evidence
    assert evidence["queries_read"] == 2 < evidence["queries_potential"]
    assert evidence["queries_bounded"] and evidence["blocks"] == [2, 0, 1]
