"""The facility objective and what certifies it against the oracle."""

from collections import Counter

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from tests import oracle
from tests.core.helpers import AGREE, FEW, HOW_MANY, TINY, close, tensor
from tests.instances import client_cases
from vicoset.core import coverage
from vicoset.core.clients import Bank, Clients


@st.composite
def supports(draw, max_tokens=64, max_clients=120):
    """A client case and any support of it, the empty and the whole one among them."""
    case = draw(client_cases(max_tokens, max_clients))
    tokens = case.C.shape[1]
    size = draw(st.sampled_from([0, 1, min(2, tokens), min(case.kept, tokens), tokens]))
    order = draw(st.permutations(range(tokens))) if tokens < 30 else range(0, tokens)
    return case, sorted(order[:size]) if size < tokens else list(range(tokens))


def test_objective_equals_the_oracle():
    seen = Counter()

    @AGREE
    @given(supports())
    def check(drawn):
        agree(*drawn, seen)

    check()
    assert min(seen["empty"], seen["partial"], seen["nothing attainable"]) > 50, seen


@HOW_MANY
def test_objective_of_every_size_equals_the_oracle(many):
    @many
    @given(supports(400, 900))
    def check(drawn):
        agree(*drawn, Counter())

    check()


def agree(case, support, seen):
    chosen = torch.tensor(support, dtype=torch.long)
    expected = oracle.cover(case.C, support)
    for dtype, rtol, floor in [(torch.float64, 1e-9, 0), (torch.float32, 1e-4, 1e-6)]:
        C = tensor(case.C, dtype)
        for matrix in (C, C.t().contiguous().t()):
            covered = coverage.cover(matrix, chosen)
            assert covered.dtype == dtype
            close(covered, expected, rtol, floor)
            gains = coverage.marginals(matrix, covered)
            # Differences: what is lost is a share of the offers, however little is gained.
            right = oracle.marginals(case.C, expected)
            lost = floor * case.C.sum(0).max(initial=0.0) + TINY
            np.testing.assert_allclose(gains.double().numpy(), right, rtol=rtol, atol=lost)
            assert not gains[chosen].any()
        left = coverage.deficits(C, covered)
        close(left, oracle.deficits(case.C, expected), rtol, floor)
        value = coverage.facility(C, chosen)
        close(value, oracle.facility(case.C, support), rtol, floor=0)
        share = coverage.ratio(value, C.amax(1).sum())
        assert abs(float(share) - oracle.ratio(case.C, support)) < min(rtol, 1e-4)
    seen["empty"] += not support
    seen["partial"] += 0 < len(support) < case.C.shape[1]
    seen["nothing attainable"] += not case.C.any()


def bank_clients(case):
    C = tensor(case.C)
    names = ("grounded", "appearance", "spatial")
    return Clients(
        matrix=C,
        row_mass=C.sum(1),
        banks=tuple(Bank(n, *span, 1.0) for n, span in zip(names, case.spans, strict=True)),
    )


@given(client_cases(max_tokens=40, max_clients=120))
@AGREE
def test_bank_ratios_equal_the_oracle_and_mix_to_the_whole(case):
    support = list(range(0, case.C.shape[1], 3))[: case.kept]
    clients = bank_clients(case)
    report = coverage.bank_report(clients, coverage.cover(clients.matrix, torch.tensor(support)))
    close(report.saturation, oracle.bank_ratios(case.C, support, case.spans), floor=0)
    close(report.covered, [oracle.facility(case.C[a:b], support) for a, b in case.spans], floor=0)
    if case.C.any():
        mixture = float((report.share * report.saturation).sum())
        assert mixture == pytest.approx(oracle.ratio(case.C, support), rel=1e-9)
        assert float(report.share.sum()) == pytest.approx(1)
    else:
        assert report.share.tolist() == [0, 0, 0] and report.saturation.tolist() == [1, 1, 1]


@given(st.lists(st.floats(0, 1), max_size=12))
@AGREE
def test_certificate_equals_the_oracle(q):
    found = coverage.batch_certificate(torch.tensor(q, dtype=torch.float64))
    assert float(found) == pytest.approx(oracle.certificate(q), rel=1e-9, abs=1e-12)
    if not q:
        assert float(found) == 0


@given(supports(), st.integers(1, 5000))
@FEW
def test_chunks_give_the_same_values(drawn, chunk):
    case, support = drawn
    C, chosen = tensor(case.C), torch.tensor(support, dtype=torch.long)
    covered = coverage.cover(C, chosen)
    gains = coverage.marginals(C, covered)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(coverage, "CHUNK", chunk)
        assert torch.equal(coverage.cover(C, chosen), covered)
        close(coverage.marginals(C, covered), gains.numpy(), floor=0)


@given(client_cases(max_tokens=40, max_clients=60), st.integers(-10, 10))
@FEW
def test_the_objective_is_homogeneous_and_its_ratio_is_not_changed(case, power):
    C, chosen = tensor(case.C), torch.arange(min(3, case.C.shape[1]))
    scaled = C * 2.0**power
    assert torch.equal(coverage.facility(scaled, chosen), coverage.facility(C, chosen) * 2.0**power)
    ratios = [coverage.ratio(coverage.facility(m, chosen), m.amax(1).sum()) for m in (C, scaled)]
    assert torch.equal(*ratios)


def test_coverage_by_hand():
    C = torch.tensor([[1.0, 3, 2], [4, 0, 1]])
    covered = coverage.cover(C, torch.tensor([2]))
    assert covered.tolist() == [2, 1]
    assert coverage.facility(C, torch.tensor([0, 2])).item() == 6
    assert coverage.marginals(C, covered).tolist() == [3, 1, 0]
    assert coverage.deficits(C, covered).tolist() == [1, 3]
    assert coverage.ratio(covered.sum(), C.amax(1).sum()).item() == pytest.approx(3 / 7)
    assert coverage.batch_certificate(torch.tensor([0.5, 0.5])).item() == 0.75
    assert coverage.cover(C, torch.tensor([], dtype=torch.long)).tolist() == [0, 0]
