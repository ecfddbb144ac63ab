"""A second run shows what a record alone cannot."""

import json

import pytest
import torch

from tests.audit.verify.tamper import line_of, put
from tests.runtime.helpers import compressed, generate, model_of, prompt, two_stages
from vicoset.audit.verify import rerun, verify_line
from vicoset.audit.verify.rerun import plan_of_record
from vicoset.plan import Keep, plan_named

PLANS = ["gmc@2", "two", "uniform-head+drop@1", "random[seed=3]+uniform@2", "gmc[-history]+drop@3"]


def asked(family="qwen2_5_vl", plan="gmc@2", keep=6, images=1, dtype=torch.float32, **options):
    model = model_of(family, "sdpa", dtype)
    inputs = prompt(model, family, images)
    made = two_stages() if plan == "two" else plan
    with compressed(model, made, keep, **{"audit": "full", **options}) as engine:
        generate(model, inputs, 2)
    return json.loads(json.dumps(engine.records[0].to_json())), model, inputs


@pytest.mark.parametrize("family", ["qwen2_5_vl", "llava"])
@pytest.mark.parametrize("plan", PLANS)
def test_a_record_that_was_written_stands(family, plan):
    assert rerun(*asked(family, plan, 9)) == []


@pytest.mark.parametrize("prefix", ["dense", "replay"])
@pytest.mark.parametrize("keep", [Keep(coverage=0.8), Keep(fraction=0.3), Keep(tokens=500)])
def test_so_does_one_of_another_mode_or_budget(prefix, keep):
    assert rerun(*asked("llava", "gmc@1", keep, 2, prefix=prefix, audit="light")) == []


def test_packed_positions_are_run_again():
    body, model, inputs = asked("llava", "two", 9, positions="packed")
    assert rerun(body, model, inputs) == []
    # Positions matter behind the first boundary, so the second stage sees other states.
    other = {**body, "positions": "original"}
    assert any(problem.where.startswith("stages[1]") for problem in rerun(other, model, inputs))


def test_half_precision_stands():
    assert rerun(*asked("llava", "gmc@2", 9, dtype=torch.bfloat16)) == []


def test_what_agrees_with_itself_and_is_not_true_is_named():
    body, model, inputs = asked("llava", keep=6)
    stage = body["stages"][0]
    free = next(i for i in range(36) if i not in stage["indices"] and i - 1 in stage["indices"])
    where = stage["indices"].index(free - 1)
    shift = {"indices": 1, "places": 1}
    wrong = body
    for name, step in shift.items():
        own = wrong["stages"][0][name][where]
        wrong = put(wrong, ("stages", 0, name, where), own + step)
    spot = wrong["stages"][0]["positions"][0][where]
    wrong = put(wrong, ("stages", 0, "positions", 0, where), spot + 1)
    wrong["stages"][0].pop("realised")
    assert verify_line(line_of(wrong)).stands  # a token that was not kept, consistently
    found = [str(problem) for problem in rerun(wrong, model, inputs)]
    given = f"{free}, a second run gives {free - 1}"
    assert f"stages[0].indices[{where}]: {given}" in found
    assert any(f"stages[0].places[{where}]" in text for text in found)


@pytest.mark.parametrize(
    ("path", "change"),
    [
        (("stages", 0, "realised", "carrier", 0), 1),
        (("stages", 0, "realised", "mass", 3), 0.125),
        (("stages", 0, "realised", "gate"), 0.3),
        (("stages", 0, "evidence", "bank_active", 0), -1),
        (("model", "class"), "x"),
        (("attention",), "x"),
        (("dtype",), "x"),
    ],
)
def test_everything_else_is_named(path, change):
    body, model, inputs = asked("llava", keep=6)
    own = body
    for part in path:
        own = own[part]
    if "carrier" in path:
        free = next(i for i in range(36) if i not in body["stages"][0]["indices"])
        path = (*path[:-1], free)
        own = body["stages"][0]["realised"]["carrier"][free]
        change = 1 if own < 5 else -1
    wrong = put(body, path, own + change)
    text = [str(problem) for problem in rerun(wrong, model, inputs)]
    name = "".join(f"[{p}]" if isinstance(p, int) else f".{p}" for p in path)[1:]
    assert any(one.startswith(f"{name}: ") for one in text), text


def test_another_prompt_is_named_and_nothing_else():
    body, model, inputs = asked("llava", keep=6)
    other = {**inputs, "input_ids": inputs["input_ids"].clone()}
    other["input_ids"][0, -1] = 9
    assert [problem.where for problem in rerun(body, model, other)] == ["prompt"]


def test_plans_come_back_from_their_names_and_numbers():
    for name in (
        "gmc-h2",
        "gmc-l16",
        "pyramiddrop",
        "sparsevlm",
        "fastv-h2",
        "gmc[probe_rank=8]@3",
    ):
        plan = plan_named(name, 28)
        content = json.loads(json.dumps(plan.to_json()))
        assert plan_of_record(content).digest() == plan.digest()


def test_a_plan_that_nobody_knows_is_a_problem():
    body, model, inputs = asked("llava", keep=6)
    wrong = put(body, ("plan", "stages", 0, "selector", "name"), "gmx")
    (problem,) = rerun(wrong, model, inputs)
    assert problem.where == "plan" and "'gmx' is no selector" in problem.what
