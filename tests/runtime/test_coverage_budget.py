"""A budget by coverage inside a model."""

import pytest
import torch

from tests.runtime.helpers import (
    ONE_EACH,
    ROWS,
    compressed,
    generate,
    logits,
    model_of,
    new_tokens,
    prompt,
    same,
)
from vicoset import compress
from vicoset.errors import PlanError
from vicoset.plan import Keep

TARGET = 0.8
CASES = pytest.mark.parametrize(("family", "attn"), ONE_EACH)


@CASES
def test_every_row_keeps_the_fewest_tokens_that_cover_enough(family, attn):
    model = model_of(family, attn)
    inputs = prompt(model, family, ROWS)
    with compressed(model, keep=Keep(coverage=TARGET)) as engine:
        found = logits(model, inputs)
    first, second, none = engine.last
    assert none.stages == () and none.tokens == 0
    for record in (first, second):
        (stage,) = record.stages
        kept = stage.kept
        assert len(stage.indices) == kept == record.kept and record.images <= kept < record.tokens
        assert stage.requested == "coverage 80%" and stage.evidence["reached"] is True
        assert stage.number("ratio") >= TARGET and record.notes == ()
        # the support is the one of a plain budget of that K, and one token less does not reach
        for keep in (kept, kept - 1):
            if keep < record.images:
                continue
            with compressed(model, keep=keep) as plain:
                again = logits(model, inputs)
            own = plain.last[record is second].stages[0]
            if keep == kept:
                assert torch.equal(own.indices, stage.indices)
                assert own.number("certificate") == stage.number("certificate")
            else:
                assert own.number("ratio") < TARGET
    if first.kept == second.kept:
        assert torch.equal(found, again)


def test_limits_bind_and_say_so():
    model = model_of("llava")
    inputs = prompt(model, "llava", 1)
    with compressed(model, keep=Keep(coverage=1.0, max=5)) as engine:
        logits(model, inputs)
    (note,) = engine.last.notes
    assert engine.last.kept == 5 and not engine.last.stages[0].evidence["reached"]
    assert note.startswith("coverage 100% (1 to 5) asks for F(S)/F(V) >= 1, and its largest K = 5")
    with compressed(model, keep=Keep(coverage=0.01, min=7)) as engine:
        logits(model, inputs)
    assert engine.last.kept == 7 and engine.last.notes == ()


@pytest.mark.parametrize("family", ["llava", "qwen2_5_vl"])
@pytest.mark.parametrize("keep", [Keep(coverage=0.5, min=1.0), Keep(coverage=0.5, min=500)])
def test_everything_is_the_identity(family, keep):
    model = model_of(family)
    inputs = prompt(model, family, [1, 2])
    plain = generate(model, inputs)
    with compressed(model, keep=keep) as engine:
        assert same(generate(model, inputs), plain)
    assert all(record.stages == () for record in engine.last)


def test_a_target_that_only_everything_reaches_is_the_identity_too(monkeypatch):
    """K = N is found at the boundary here, after hooks and taps have been installed."""
    from vicoset.methods.gmc import GMC

    def everything(self, scene, target):
        found = self.select(scene, target.high - 1)
        full = torch.arange(target.high)
        return found._replace(indices=full, evidence={**found.evidence, "reached": True})

    model = model_of("llava")
    inputs = prompt(model, "llava", [1, 2])
    plain = generate(model, inputs)
    monkeypatch.setattr(GMC, "select_covering", everything)
    with compressed(model, keep=Keep(coverage=1.0)) as engine:
        assert same(generate(model, inputs), plain)
    assert all(record.kept == record.tokens for record in engine.last)


@pytest.mark.parametrize("prefix", ["gathered", "dense", "replay"])
def test_it_decodes_as_the_plain_budget_of_its_k(prefix):
    model = model_of("qwen2_5_vl")
    inputs = prompt(model, "qwen2_5_vl", 1)
    with compressed(model, keep=Keep(coverage=TARGET), prefix=prefix) as engine:
        found = generate(model, inputs)
    with compressed(model, keep=engine.last.kept, prefix=prefix):
        plain = generate(model, inputs)
    assert same(found, plain) and new_tokens(found, inputs) == new_tokens(plain, inputs)


def test_a_selector_that_measures_nothing_is_refused():
    with pytest.raises(PlanError, match="selector 'random', which measures no coverage"):
        compress(model_of("llava"), "random@2", Keep(coverage=0.9))
