"""What carriers hold, and how far that is from what they stand for."""

import numpy as np
import pytest

from tests import oracle
from tests.audit.raw import raw
from vicoset.audit import audit_inputs

CASES = [
    ("qwen2_5_vl", "sdpa", "gmc@2", 6, 2),
    ("llava", "sdpa", "gmc@0", 20, 1),
    ("llava", "eager", "random+uniform@1", 7, 2),
    ("qwen2_5_vl", "eager", "gmc+drop@3", 6, 1),
]


@pytest.mark.parametrize(("family", "attn", "plan", "keep", "images"), CASES)
def test_distortion_is_plain_sums(family, attn, plan, keep, images):
    found = raw(family, attn, plan, keep, images)
    audit = audit_inputs(found.model, found.inputs, plan, keep, limit=1)
    (one,) = audit.states
    h = found.states[one.boundary][found.visual]
    gaps = oracle.cosine_gaps(h, found.support, found.image_ids)
    given = h, found.coordinates, found.support, found.image_ids
    carrier, _ = oracle.assign(*given, gaps, oracle.separability(gaps, found.support))
    done = found.compactions[0]
    after = done.realisation.states.double().numpy()
    m = done.realisation.mass.double().numpy()
    m = np.where(done.realisation.carrier.numpy() < 0, 1.0, m)
    _, centre = oracle.centroids(h, m, carrier, found.support)
    before = behind = energy = 0.0
    for i in range(len(h)):
        j = found.support.index(carrier[i])
        before += m[i] * ((h[i] - centre[j]) ** 2).sum()
        behind += m[i] * ((h[i] - after[j]) ** 2).sum()
        energy += m[i] * (h[i] ** 2).sum()
    assert one.before == pytest.approx(before / energy, rel=1e-9)
    assert one.behind == pytest.approx(behind / energy, rel=1e-9)
    assert one.correction == pytest.approx((behind - before) / energy, rel=1e-9)
    assert one.before <= min(one.behind, one.bound) and not audit.violations


def test_a_merge_of_its_own_has_no_bound_of_the_methods_assignment():
    found = raw("llava", "sdpa", "gmc@0", 20, 1)
    audit = audit_inputs(found.model, found.inputs, "random+drop@1", 12, limit=1)
    assert audit.states[0].bound is not None  # deleted tokens get the method's own assignment
