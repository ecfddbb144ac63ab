"""What carriers hold, and how far that is from what they stand for."""

import math

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
    wanted = bound(h, m, carrier, found.support, found.image_ids, gaps)
    assert one.bound == pytest.approx(wanted / energy, rel=1e-5)
    opened = 0.0 if "drop" in plan else oracle.separability(gaps, found.support)
    assert one.gate == pytest.approx(opened, rel=1e-5)


def bound(h, m, carrier, support, ids, gaps):
    """varrho^2 (m_max N dbar^2 + Xi_I + 2 Lambda) + E_scale, token by token."""
    gates = oracle.local_gates(gaps)
    s_x = oracle.separability(gaps, support)
    radii = [math.sqrt(float((x**2).sum())) for x in h]
    unit = oracle.unit_states(h)
    anywhere = exclusion = bonus = radial = 0.0
    for i in range(len(h)):
        chords = {j: float(((unit[i] - unit[j]) ** 2).sum()) for j in support}
        near = min(chords.values())
        inside = min(chord for j, chord in chords.items() if ids[j] == ids[i])
        anywhere += near
        exclusion += m[i] * (inside - near)
        bonus += m[i] * 0.5 * s_x * gates[i]
        radial += m[i] * (radii[i] - radii[carrier[i]]) ** 2
    return max(radii) ** 2 * (max(m) * anywhere + exclusion + 2 * bonus) + radial


def test_a_merge_of_its_own_has_no_bound_of_the_methods_assignment():
    found = raw("llava", "sdpa", "gmc@0", 20, 1)
    audit = audit_inputs(found.model, found.inputs, "random+drop@1", 12, limit=1)
    assert audit.states[0].bound is not None  # deleted tokens get the method's own assignment
