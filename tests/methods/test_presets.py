"""Plans of several stages by name: boundaries, budgets and work, by hand."""

from __future__ import annotations

import pytest

from tests.core.helpers import refused
from vicoset.errors import MethodError, PlanError
from vicoset.methods.presets import PRESETS, Recipe, Step, register_preset, rescaled
from vicoset.plan import Keep, Plan, Stage, equal_work, plan_named, work


def spent(plan: Plan, keep: int, tokens: int, depth: int) -> int:
    return work(plan.boundaries, plan.counts(Keep(tokens=keep), tokens)[0], tokens, depth)


def test_pyramiddrop_as_published():
    plan = plan_named("pyramiddrop", 32)
    assert str(plan.stages[0]).startswith("pyramiddrop+drop@8")
    assert plan.boundaries == (8, 16, 24)
    assert "layer average, 270 of 576" in plan.notes[0] and len(plan.notes) == 1
    assert plan.counts(Keep(tokens=72), 576)[0] == [288, 144, 72]
    assert spent(plan, 72, 576, 32) == 8 * (576 + 288 + 144 + 72) == 32 * 270
    assert plan.counts(Keep(fraction=0.125), 576)[0] == [288, 144, 72]


def test_pyramiddrop_at_another_depth():
    plan = plan_named("pyramiddrop+uniform", 28)
    assert plan.boundaries == (7, 14, 21)
    assert {stage.realiser.name for stage in plan.stages} == {"uniform"}
    assert "8, 16, 24 of 32 blocks; here 7, 14, 21" in plan.notes[1]
    assert plan_named("pyramiddrop@2", 28).boundaries == (2,)


def test_boundaries_keep_their_share_and_stay_apart():
    assert rescaled((8, 16, 24), 32, 28) == [7, 14, 21]
    assert rescaled((3, 7, 16), 32, 28, behind=1) == [3, 6, 14]
    assert rescaled((3, 7, 16), 32, 32, behind=1) == [3, 7, 16]
    assert rescaled((8, 16, 24), 32, 5) == [1, 3, 4]
    assert rescaled((8, 16, 24), 32, 4) == [1, 2, 3]
    assert rescaled((0, 16), 32, 3) == [0, 2]
    with refused(PlanError, "do not fit into 3", "at least 4 blocks"):
        rescaled((8, 16, 24), 32, 3)


def test_numbers_of_a_method_enter_every_stage():
    def maker(depth: int) -> Recipe:
        return Recipe((Step(0, "random"), Step(depth // 2, "random", Keep(fraction=0.5))), "drop")

    register_preset("twice-random", maker)
    try:
        plan = plan_named("twice-random[seed=3]", 8)
        assert [stage.selector.seed for stage in plan.stages] == [3, 3]
        assert plan.boundaries == (0, 4)
        with refused(MethodError, "twice-random", "registered already"):
            register_preset("twice-random", maker)
    finally:
        del PRESETS["twice-random"]


PAPER = [("gmc-h2", 128), ("gmc-h2", 256), ("gmc-l16", 128), ("gmc-l16", 256)]


def test_equal_work_has_the_budgets_of_the_paper():
    """N = 1,296 and 28 blocks: budgets at the input, and before block 2."""
    targets = [spent(plan_named(name, 28), keep, 1296, 28) for name, keep in PAPER]
    found = [
        [equal_work(plan_named(name, 28), target, 1296, 28).tokens for target in targets]
        for name in ("random+drop@0", "fastv-h2")
    ]
    assert found == [[211, 330, 795, 850], [128, 256, 757, 816]]


@pytest.mark.parametrize("name", list(PRESETS))
@pytest.mark.parametrize(("tokens", "depth"), [(60, 28), (49, 8)])
def test_equal_work_is_the_nearest_for_every_preset(name, tokens, depth):
    plan = plan_named(name, depth)
    if not plan.reads_keep:
        with refused(PlanError, "no budget of plan"):
            equal_work(plan, 1, tokens, depth)
        return
    works = [spent(plan, keep, tokens, depth) for keep in range(1, tokens + 1)]
    assert works == sorted(works) and works[-1] == depth * tokens
    for target in range(works[0], works[-1] + 1, 13):
        gaps = [abs(found - target) for found in works]
        assert equal_work(plan, target, tokens, depth).tokens == 1 + gaps.index(min(gaps))


def test_equal_work_that_no_budget_has_is_refused():
    plan = plan_named("pyramiddrop", 8)
    for target in (5, 8 * 40 + 1):
        with refused(PlanError, "pyramiddrop", str(target), "between"):
            equal_work(plan, target, 40, 8)
    own = Plan(
        "own", tuple(Stage(s.boundary, s.selector, s.realiser, Keep(tokens=4)) for s in plan.stages)
    )
    with refused(PlanError, "own"):
        equal_work(own, 200, 40, 8)
