"""Signed messages equal plain loops over raw tensors; their statements hold on every request."""

import math

import numpy as np
import pytest

from tests import oracle
from tests.audit.raw import grounding, raw
from tests.runtime.helpers import two_stages
from vicoset.audit import audit_inputs

CASES = [
    ("qwen2_5_vl", "sdpa", "gmc@2", 6, 2, (2, 4)),
    ("qwen2_5_vl", "eager", "uniform-head+drop@1", 6, 1, (1, 3)),
    ("llava", "sdpa", "gmc+drop@0", 9, 1, (0, 2)),
    ("llava", "eager", "k-center+uniform@3", 7, 2, (3,)),
]


def clusters(found, boundary):
    """Which kept token stands for each token, by the oracle."""
    states = found.states[boundary][found.visual]
    gaps = oracle.cosine_gaps(states, found.support, found.image_ids)
    given = states, found.coordinates, found.support, found.image_ids
    carrier, _ = oracle.assign(*given, gaps, oracle.separability(gaps, found.support))
    return [found.support.index(token) for token in carrier]


@pytest.mark.parametrize(("family", "attn", "plan", "keep", "images", "blocks"), CASES)
def test_messages_are_plain_sums(family, attn, plan, keep, images, blocks):
    found = raw(family, attn, plan, keep, images)
    audit = audit_inputs(found.model, found.inputs, plan, keep, blocks=blocks, limit=1)
    boundary = audit.coverage[0].boundary
    carrier = clusters(found, boundary)
    omega, nu, _ = grounding(found, boundary)
    assert [one.block for one in audit.messages] == list(blocks)
    for one in audit.messages:
        full, compact = found.full[one.block], found.compact[one.block]
        y, z, rep, mass, grouped, softmax, share, small = ([] for _ in range(8))
        sharp, budgets = [], []
        for h in range(len(full.q)):
            for t, row in enumerate(found.queries):
                weight = omega[h] * nu[t]
                a, b = full.attention(h, row), compact.attention(h, found.place(row))
                slots = [found.place(found.visual[i]) for i in found.support]
                M = [0.0] * len(slots)
                Y, Z, R, D = (np.zeros(full.v.shape[2]) for _ in range(4))
                for i, position in enumerate(found.visual):
                    Y += a[position] * full.value(h, position)
                    M[carrier[i]] += a[position]
                    gap = full.value(h, position) - compact.value(h, slots[carrier[i]])
                    R += a[position] * gap
                for j, slot in enumerate(slots):
                    Z += b[slot] * compact.value(h, slot)
                    D += (M[j] - b[slot]) * compact.value(h, slot)
                for stack, vector in ((y, Y), (z, Z), (rep, R), (mass, D)):
                    stack.append(math.sqrt(weight) * vector)
                grouped.append(weight * sum(abs(M[j] - b[s]) for j, s in enumerate(slots)))
                shifts = logit_shifts(found, one.block, h, row, carrier, slots)
                softmax.append(weight * max(map(abs, shifts)))
                sharp.append(weight * 2 * math.tanh((max(shifts) - min(shifts)) / 4))
                kept = [compact.value(h, slot) for slot in slots]
                gaps = [full.value(h, p) - kept[carrier[i]] for i, p in enumerate(found.visual)]
                moved = sum(
                    a[p] * np.linalg.norm(g) for p, g in zip(found.visual, gaps, strict=True)
                )
                tall = max(np.linalg.norm(value) for value in kept)
                moved += tall * sum(abs(M[j] - b[s]) for j, s in enumerate(slots))
                budgets.append(weight * moved**2)
                share.append(weight * sum(a[p] for p in found.visual))
                small.append(weight * sum(b[s] for s in slots))
        y, z, rep, mass = (np.stack(stack) for stack in (y, z, rep, mass))
        np.testing.assert_allclose(y - z, rep + mass, atol=1e-12)
        size = np.sqrt((y**2).sum())
        gap = np.sqrt(((y - z) ** 2).sum())
        near = {"rel": 2e-5}  # the weights come from float32, everything behind them does not
        assert one.norm == pytest.approx(size, **near)
        assert one.error == pytest.approx(gap / (size + 1e-8), **near)
        assert one.direction == pytest.approx((y * z).sum() / size / np.linalg.norm(z), **near)
        assert one.amplitude == pytest.approx(np.linalg.norm(z) / size, **near)
        assert one.representation == pytest.approx(np.linalg.norm(rep) / size, **near)
        assert one.mass == pytest.approx(np.linalg.norm(mass) / size, **near)
        assert one.grouped == pytest.approx(sum(grouped), **near)
        assert one.grouped_bound == pytest.approx(sum(softmax), **near)
        assert one.grouped_sharp == pytest.approx(sum(sharp), **near)
        assert one.budget == pytest.approx(math.sqrt(sum(budgets)) / size, **near)
        assert one.attention == pytest.approx(sum(share), **near)
        assert one.compact_attention == pytest.approx(sum(small), **near)
        squared = 1 + one.amplitude**2 - 2 * one.amplitude * one.direction
        assert one.error**2 == pytest.approx(squared, rel=1e-6)
        assert one.error <= one.budget and one.grouped <= one.grouped_sharp <= one.grouped_bound
    assert not audit.violations


def logit_shifts(found, block, h, row, carrier, slots):
    """u^F - u^S of every cluster and of every key that is not visual."""
    s = found.full[block].scores(h, row)
    c = found.compact[block].scores(h, found.place(row))
    shifts = []
    for j, slot in enumerate(slots):
        own = [s[found.visual[i]] for i in range(len(carrier)) if carrier[i] == j]
        top = max(own)
        if top == -math.inf and c[slot] == -math.inf:
            continue
        shifts.append(top + math.log(sum(math.exp(x - top) for x in own)) - c[slot])
    for position in range(len(s)):
        if position not in found.visual and s[position] > -math.inf:
            shifts.append(s[position] - c[found.place(position)])
    return shifts


def test_two_stages_compose_their_assignments():
    plan = two_stages("gmc-h1", "gmc@3")
    found = raw("qwen2_5_vl", "sdpa", plan, 9, 1)
    audit = audit_inputs(found.model, found.inputs, plan, 9, blocks=(1, 2, 4), limit=2)
    assert [one.boundary for one in audit.coverage] == [1, 3]
    assert [one.block for one in audit.messages] == [1, 2, 4] and not audit.violations
    full, compact, last = found.full[4], found.compact[4], audit.messages[-1]
    first, second = found.compactions
    carrier = second.realisation.carrier[first.realisation.carrier].tolist()
    total = 0.0
    omega = audit_weights(audit, found)
    for h in range(len(full.q)):
        for weight, row in zip(omega[h], found.queries, strict=True):
            a, b = full.attention(h, row), compact.attention(h, found.place(row))
            for j, token in enumerate(found.support):
                mine = [found.visual[i] for i in range(len(carrier)) if carrier[i] == j]
                total += weight * abs(sum(a[mine]) - b[found.place(found.visual[token])])
    assert last.grouped == pytest.approx(total, rel=1e-4)


def audit_weights(audit, found):
    """omega_h nu_t of the last stage, as its selector found them."""
    grounding = found.compactions[-1].selection.grounding
    return (grounding.head_weights[:, None] * grounding.query_weights).double().numpy()


def test_nothing_compressed_leaves_no_messages_and_equal_decisions():
    found = raw("llava", "sdpa", "gmc+drop@0", 9, 1)
    audit = audit_inputs(found.model, found.inputs, "gmc@2", 1.0, limit=2)
    assert audit.coverage == audit.messages == () and not audit.violations
    assert [one.distortion for one in audit.decisions] == [0.0, 0.0] and not audit.changed
    assert all(one.certified and one.prior.vie == 0 for one in audit.decisions)
