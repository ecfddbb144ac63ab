"""Coverage equals a recomputation from raw tensors, and its statements hold."""

import math

import numpy as np
import pytest

from tests import oracle
from tests.audit.raw import banks, raw
from tests.runtime.helpers import model_of, prompt
from vicoset.audit import audit_inputs
from vicoset.core.settings import Settings

CASES = [
    ("qwen2_5_vl", "sdpa", "gmc@2", 9, 2),
    ("qwen2_5_vl", "eager", "uniform-head+drop@3", 6, 1),
    ("llava", "sdpa", "gmc@0", 20, 1),
    ("llava", "eager", "random+uniform@1", 7, 2),
]


@pytest.mark.parametrize(("family", "attn", "plan", "keep", "images"), CASES)
def test_coverage_is_that_of_the_oracle(family, attn, plan, keep, images):
    found = raw(family, attn, plan, keep, images)
    audit = audit_inputs(found.model, found.inputs, plan, keep, level="light")
    (one,) = audit.coverage
    matrix, books = oracle.client_matrix(banks(found, one.boundary))
    assert one.ratio == pytest.approx(oracle.ratio(matrix, found.support), rel=1e-5)
    assert one.value == pytest.approx(oracle.facility(matrix, found.support), rel=1e-5)
    assert one.total == pytest.approx(sum(book["attainable"] for book in books), rel=1e-5)
    spans = [(book["start"], book["stop"]) for book in books]
    saturation = oracle.bank_ratios(matrix, found.support, spans)
    for bank, book, part in zip(one.banks, books, saturation, strict=True):
        assert (bank.name, bank.rows, bank.active) == (book["name"], book["rows"], book["active"])
        assert bank.saturation == pytest.approx(part, rel=1e-5)
        assert bank.share == pytest.approx(book["share"], rel=1e-5)
        assert bank.deployed == pytest.approx(book["deployed"], rel=1e-5)
    assert sum(bank.share * bank.saturation for bank in one.banks) == pytest.approx(one.ratio)
    assert not audit.violations and audit.messages == () and audit.decisions == ()


def test_the_certificate_and_its_rounds_are_the_oracles():
    found = raw("llava", "sdpa", "gmc@2", 20, 2)
    (one,) = audit_inputs(found.model, found.inputs, "gmc@2", 20, level="light").coverage
    matrix, _ = oracle.client_matrix(banks(found, 2))
    solved = oracle.select(matrix, 20, found.image_ids, 2)
    assert solved["support"].tolist() == found.support and len(one.rounds) == 2
    assert one.rounds == pytest.approx(solved["q"], rel=1e-4)
    assert one.certificate == pytest.approx(solved["c_B"], rel=1e-4)
    assert one.start == pytest.approx(oracle.facility(matrix, solved["anchors"]), rel=1e-5)


def test_a_selector_without_rounds_has_no_certificate():
    found = raw("llava", "eager", "random+uniform@1", 7, 2)
    (one,) = audit_inputs(found.model, found.inputs, "random+uniform@1", 7, level="light").coverage
    assert (one.certificate, one.rounds, one.start, one.objective) == (None, (), None, "gmc")


@pytest.mark.parametrize(("family", "attn", "plan", "keep", "images"), CASES[:2])
def test_what_is_left_of_appearance_and_grid(family, attn, plan, keep, images):
    found = raw(family, attn, plan, keep, images)
    (one,) = audit_inputs(found.model, found.inputs, plan, keep, level="light").coverage
    grid = oracle.spatial_bank(found.coordinates, found.image_ids, found.images)["rows"]
    left = [1.0 - max(row[i] for i in found.support) for row in grid]
    assert one.grid == pytest.approx(sum(left) / len(left), rel=1e-5)
    x = oracle.unit_states(found.states[one.boundary][found.visual])
    ids, settings = found.image_ids, Settings()
    distance, own, ratio, deficit = [], [], [], []
    for m in range(len(x)):
        mates = [i for i in range(len(x)) if ids[i] == ids[m]]
        weights = {i: math.exp(float(x[m] @ x[i]) / settings.appearance_temperature) for i in mates}
        total = sum(weights.values())
        kept = [i for i in found.support if ids[i] == ids[m]]
        distance.append(min(float(((x[m] - x[i]) ** 2).sum()) for i in kept))
        best = max(weights[i] for i in kept)
        own.append(weights[m] / total)
        ratio.append(best / weights[m])
        deficit.append(settings.appearance_mass * (weights[m] - best) / total)
    quant = one.quantisation
    assert quant.clients == len(x)
    assert quant.distance == pytest.approx(np.mean(distance), rel=1e-9)
    assert quant.deficit == pytest.approx(np.mean(deficit), rel=1e-9)
    assert quant.least_mass == pytest.approx(min(own), rel=1e-9)
    assert quant.least_ratio == pytest.approx(min(ratio), rel=1e-9)
    bound = 2 * settings.appearance_temperature / (settings.appearance_mass * min(own) * min(ratio))
    assert quant.bound == pytest.approx(bound * np.mean(deficit), rel=1e-9)
    low = min(ratio)
    curve = -math.log(low) / (1 - low) if low < 1 else 1.0
    assert quant.sharp == pytest.approx(quant.bound * low * curve, rel=1e-9)
    assert quant.distance <= quant.sharp <= quant.bound


def test_a_plan_with_switches_is_measured_by_its_own_objective():
    model = model_of("llava")
    inputs = prompt(model, "llava", 1)
    plan = "gmc[-history,-spatial,probe_rank=2]@2"
    (one,) = audit_inputs(model, inputs, plan, 6, level="light").coverage
    record = audit_inputs(model, inputs, plan, 6, level="light").record
    assert one.objective == "gmc with switches"
    assert one.bank("spatial").attainable == 0 and one.bank("spatial").saturation == 1
    assert one.ratio == pytest.approx(record.stages[-1].number("ratio"), rel=1e-6)


def test_in_pieces_the_quantisation_is_the_same(monkeypatch):
    model = model_of("qwen2_5_vl")
    inputs = prompt(model, "qwen2_5_vl", 2)
    whole = audit_inputs(model, inputs, "gmc@2", 6, level="light").coverage[0].quantisation
    monkeypatch.setattr("vicoset.audit.coverage._CLIENTS", 3)
    parts = audit_inputs(model, inputs, "gmc@2", 6, level="light").coverage[0].quantisation
    assert parts == pytest.approx(whole, rel=1e-12)
