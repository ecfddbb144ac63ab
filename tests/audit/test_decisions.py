"""Decisions equal plain loops over logits; what is certified never flips."""

import math

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from tests.audit.raw import raw
from tests.runtime.helpers import model_of, prompt
from vicoset.audit import audit_inputs, decision, harmful, innovation_error
from vicoset.audit.decisions import anti_prior_candidates, anti_prior_weights
from vicoset.audit.population import auroc, correlation
from vicoset.runtime.blind import Blind


def best(logits, top):
    """Indices of the largest entries."""
    return sorted(range(len(logits)), key=lambda j: (-logits[j], j))[:top]


def innovation(full, compact, null, top=32):
    """VIE, its denominator, d_C and the candidates, entry by entry."""
    chosen = sorted({*best(full, top), *best(null, top)})
    sides = {"f": full, "s": compact, "n": null}
    mean = {name: sum(z[j] for j in chosen) / len(chosen) for name, z in sides.items()}
    above = below = distortion = 0.0
    for j in chosen:
        f, s, n = full[j] - mean["f"], compact[j] - mean["s"], null[j] - mean["n"]
        weight = 1.0 + abs(f - n) / (1.0 + math.exp(f * n))
        above += weight * (f - s) ** 2
        below += weight * (f - n) ** 2
        distortion += (f - s) ** 2
    image = math.sqrt(below)
    return math.sqrt(above) / max(image, 1e-8), image, math.sqrt(distortion), chosen


def certificate(full, compact, top=32):
    """rho, Gamma and D."""
    winners = sorted({*best(full, top), *best(compact, top)})
    gaps = [full[j] - compact[j] for j in winners]
    mean = sum(gaps) / len(gaps)
    D = math.sqrt(sum((gap - mean) ** 2 for gap in gaps))
    first, second = sorted(full, reverse=True)[:2]
    return math.sqrt(2) * D / (first - second), first - second, D


def logits(seed, size=80, scale=2.0):
    rng = np.random.default_rng(seed)
    full = rng.normal(size=size) * 3
    return full, full + scale * rng.normal(size=size), full + rng.normal(size=size) * 3


@pytest.mark.parametrize("scale", [0.01, 0.3, 3.0])
@pytest.mark.parametrize("seed", range(4))
def test_one_decision_is_the_loops(seed, scale):
    full, compact, null = logits(seed, scale=scale)
    one = decision(0, *(torch.tensor(z) for z in (full, compact, null)))
    vie, image, distortion, chosen = innovation(full, compact, null)
    assert one.prior.vie == pytest.approx(vie) and one.prior.innovation == pytest.approx(image)
    assert one.prior.distortion == pytest.approx(distortion)
    assert one.prior.candidates == len(chosen)
    assert one.prior.escape == (int(compact.argmax()) not in chosen)
    rho, gamma, D = certificate(full, compact)
    assert (one.ratio, one.margin, one.distortion) == pytest.approx((rho, gamma, D))
    assert one.certified == (rho < 1) and one.flip == (full.argmax() != compact.argmax())
    assert all(check.holds for check in one.checks)


def test_the_null_fixes_the_geometry_and_cancels_from_the_difference():
    full, compact, null = (torch.tensor(z) for z in logits(1))
    candidates = anti_prior_candidates(full, null)
    weights = anti_prior_weights(full, null, candidates)
    assert (weights[candidates] >= 1).all() and (weights[~candidates] == 0).all()
    before = innovation_error(full, compact, null)
    assert torch.allclose(innovation_error(full + 5.0, compact - 2.0, null + 1.0)[0], before[0])
    assert float(innovation_error(full, full, null)[0]) == 0
    assert float(innovation_error(full, null, null)[0]) == pytest.approx(1)


def test_no_image_no_innovation_is_no_division_by_zero():
    full, compact, _ = (torch.tensor(z) for z in logits(2))
    error, image = innovation_error(full, compact, full)
    assert float(image) == 0 and math.isfinite(float(error)) and float(error) > 1


def test_a_tie_at_fulls_top_certifies_nothing():
    full = torch.tensor([3.0, 3.0, 1.0, 0.0])
    one = decision(0, full, full.clone())
    assert one.ratio == math.inf and not one.certified and one.prior is None


@given(st.integers(0, 10_000), st.floats(0.0, 4.0))
def test_certified_winners_stay(seed, scale):
    full, compact, null = logits(seed, 40, scale)
    one = decision(0, *(torch.tensor(z) for z in (full, compact, null)))
    assert not (one.certified and one.flip)
    assert all(check.holds for check in one.checks)


@pytest.mark.parametrize(
    ("family", "attn", "plan", "keep"),
    [("qwen2_5_vl", "sdpa", "gmc@2", 6), ("llava", "eager", "random+drop@1", 5)],
)
def test_a_requests_decision_is_the_loops(family, attn, plan, keep):
    found = raw(family, attn, plan, keep)
    audit = audit_inputs(found.model, found.inputs, plan, keep, limit=4)
    with torch.no_grad(), Blind(found.model):
        null = found.model(**found.inputs).logits[0, -1].double().numpy()
    first = audit.decisions[0]
    vie, image, distortion, _ = innovation(found.full_logits, found.compact_logits, null)
    assert first.prior.vie == pytest.approx(vie, rel=1e-4)
    assert first.prior.innovation == pytest.approx(image, rel=1e-4)
    assert first.prior.distortion == pytest.approx(distortion, rel=1e-4)
    rho, gamma, D = certificate(found.full_logits, found.compact_logits)
    assert (first.ratio, first.margin, first.distortion) == pytest.approx((rho, gamma, D), rel=1e-3)
    assert first.token == found.full_logits.argmax()
    assert first.compact_token == found.compact_logits.argmax()
    assert first.prior.token == null.argmax()
    assert not audit.violations


def test_a_blank_image_is_another_null():
    model = model_of("qwen2_5_vl")
    inputs = prompt(model, "qwen2_5_vl", 1, seed=3)
    masked, blank = (
        audit_inputs(model, inputs, "gmc@2", 6, limit=1, null=null) for null in ("masked", "blank")
    )
    black = {**inputs, "pixel_values": torch.zeros_like(inputs["pixel_values"])}
    with torch.no_grad():
        null = model(**black).logits[0, -1]
    assert blank.decisions[0].prior.token == int(null.argmax())
    assert blank.decisions[0].prior.vie != masked.decisions[0].prior.vie
    assert blank.decisions[0].ratio == masked.decisions[0].ratio
    bare = audit_inputs(model, inputs, "gmc@2", 6, limit=1, null=None)
    assert bare.decisions[0].prior is None and "null" not in bare.seconds


def test_harmful_changes_need_a_right_answer_that_changes():
    assert harmful(True, "7", "9") and not harmful(True, "7", "7") and not harmful(False, "7", "9")


def test_auroc_counts_pairs():
    scores, events = [0.1, 0.4, 0.4, 0.8, 0.3], [False, True, False, True, False]
    marked = list(zip(scores, events, strict=True))
    pairs = [(a > b) + (a == b) / 2 for a, e in marked if e for b, f in marked if not f]
    assert auroc(scores, events) == pytest.approx(sum(pairs) / 6)
    assert auroc(scores, [False] * 5) is None and auroc([], []) is None


def test_correlation_counts_a_question_once():
    x, y, groups = [1.0, 3.0, 4.0, 9.0], [2.0, 1.0, 5.0, 7.0], ["a", "a", "b", "c"]
    assert correlation(x, y) == pytest.approx(np.corrcoef(x, y)[0, 1])
    assert correlation(x, y, groups) == pytest.approx(np.corrcoef([2, 4, 9], [1.5, 5, 7])[0, 1])
    assert correlation([1.0, 1.0], [2.0, 3.0]) is None and correlation([1.0], [2.0]) is None
