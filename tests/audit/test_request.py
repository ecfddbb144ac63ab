"""The whole audit: what it refuses, what it says, and that it changes nothing."""

import json
import math

import pytest
import torch

from tests.core.helpers import refused
from tests.runtime.helpers import generate, model_of, prompt, same
from vicoset.audit import audit_inputs, look, refer
from vicoset.audit.checks import check
from vicoset.audit.messages import worst
from vicoset.core.bounds import Identity, Inequality
from vicoset.errors import PlanError, SettingError, ShapeError
from vicoset.plan import Keep, plan_named
from vicoset.runtime.engine import Engine


@pytest.fixture(scope="module")
def one():
    model = model_of("qwen2_5_vl")
    inputs = prompt(model, "qwen2_5_vl", 2, seed=3)
    return model, inputs, audit_inputs(model, inputs, "gmc@2", 6, limit=4, decode=str)


def test_it_leaves_the_model_as_it_was(one):
    model, inputs, _ = one
    before = generate(model, inputs)
    audit_inputs(model, inputs, "gmc@2", 6, limit=2)
    assert same(generate(model, inputs), before) and "_vicoset_engine" not in model.__dict__


def test_the_compressed_run_is_the_plain_one(one):
    model, inputs, _ = one
    for name in ("gmc@2", "random+drop@1"):  # the second one gets views it does not read
        plan = plan_named(name, 5)
        engine = Engine(model, plan, Keep(tokens=6))
        engine.attach()
        plain = generate(model, inputs, suppress_tokens=None)
        engine.detach()
        seen = look(model, inputs, plan, Keep(tokens=6), limit=6)
        assert torch.equal(seen.answer.logits, torch.stack(plain.logits).float())
        assert seen.record.digest == engine.digest
        assert seen.record.request == engine.request
        assert seen.record.stages[0].indices.tolist() == engine.last.stages[0].indices.tolist()


def test_text_and_json_say_everything(one):
    audit = one[2]
    text = str(audit)
    for word in ("F(S)/F(V)", "c_B", "e_M", "VIE", "no-flip", "violated: 0", "softmax bound"):
        assert word in text
    found = json.loads(json.dumps(audit.to_json(), allow_nan=False))
    assert found["coverage"][0]["ratio"] == audit.coverage[0].ratio
    assert found["messages"][0]["error"] == audit.messages[0].error
    assert found["decisions"][0]["prior"]["vie"] == audit.decisions[0].prior.vie
    assert found["full"]["text"] == str(audit.full_tokens) and found["violations"] == []
    assert found["record"]["digest"] == audit.digest


def test_the_compact_answer_is_its_own(one):
    model, inputs, _ = one
    for keep in (3, 9, 15):
        audit = audit_inputs(model, inputs, "gmc@1", keep, limit=4)
        own = look(model, inputs, plan_named("gmc@1", 5), Keep(tokens=keep), limit=4)
        assert list(audit.compact_tokens) == own.answer.tokens[0]
        assert audit.changed == (audit.full_tokens != audit.compact_tokens)


def test_reference_keeps_the_prompts_own_forward(one):
    model, inputs, _ = one
    reference = refer(model, inputs, blocks=(2,), limit=3)
    assert reference.seen[2].queries.shape[2] == inputs["input_ids"].shape[1]
    assert len(reference.null) == len(reference.answer.tokens[0]) == 3


def test_what_is_refused(one):
    model, inputs, _ = one
    with refused(SettingError, "level='heavy'"):
        audit_inputs(model, inputs, level="heavy")
    with refused(SettingError, "null='dark'"):
        audit_inputs(model, inputs, "gmc@2", 6, null="dark")
    with refused(PlanError, "blocks [1]", "first boundary"):
        audit_inputs(model, inputs, "gmc@2", 6, blocks=[1, 3])
    rows = prompt(model, "qwen2_5_vl", [1, 2])
    with refused(ShapeError, "2 rows with padding"):
        audit_inputs(model, rows, "gmc@2", 6)


def test_a_statement_that_fails_is_named(one):
    audit = one[2]
    good = check("right", Inequality(torch.tensor([1.0, 2.0]), torch.tensor([2.0, 2.5])))
    bad = check("wrong", Identity(torch.tensor(1.0), torch.tensor(2.0)))
    assert good.holds and (good.left, good.right, good.slack) == (2.0, 2.5, 0.5)
    assert not bad.holds and worst([good, bad]) is bad
    nan = check("undefined", Inequality(torch.tensor([math.nan, 1.0]), torch.tensor(2.0)))
    assert not nan.holds and math.isnan(nan.left)
    broken = audit.__class__(**{**vars(audit), "states": (_with(audit.states[0], bad),)})
    assert broken.violations == ("stage at 2: states: wrong (1 against 2)",)
    assert "VIOLATED stage at 2: states: wrong" in str(broken)


def _with(part, bad):
    return part.__class__(**{**vars(part), "checks": (bad,)})


@pytest.mark.parametrize("family", ["qwen2_5_vl", "llava", "qwen3_vl", "gemma3", "internvl"])
@pytest.mark.parametrize("plan", ["gmc@2", "uniform-head+drop@1", "norm-diversity+uniform@3"])
def test_no_statement_is_violated(family, plan):
    model = model_of(family, "eager")
    for seed in range(2):
        inputs = prompt(model, family, 1 + seed, seed=seed)
        audit = audit_inputs(model, inputs, plan, 0.4, limit=2, blocks=(3, 4))
        assert audit.violations == () and len(audit.messages) == 2


def test_half_precision_violates_nothing():
    model = model_of("llava", "sdpa", torch.bfloat16)
    inputs = prompt(model, "llava", 2)
    assert audit_inputs(model, inputs, "gmc@2", 11, limit=2).violations == ()
