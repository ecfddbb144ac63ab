"""FitPrune: the product rule by hand, and its schedule by a search that is written out."""

from __future__ import annotations

import itertools

import pytest
import torch

from tests.core.helpers import refused
from tests.methods.attended import attended, softmaxed
from vicoset.errors import PlanError
from vicoset.methods import fitprune, registry
from vicoset.methods.fitprune_search import Schedule, Statistics, search, statistics_of
from vicoset.plan import Keep, plan_named, plan_of, work

VISUAL = [1, 2, 3]  # text 0, three visual tokens, text 4 and 5


def kept(scene, keep, name="fitprune"):
    return registry.selector(name).select(scene, keep).indices.tolist()


def test_product_of_the_two_masses_and_largest_of_the_heads():
    # Rows of ten parts. Visual rows 1, 2, 3, both heads alike: token 0 gets 9 + 5 + 4, token 1
    # 3 + 1, token 2 1 parts. Text rows 4 and 5: head 0 gives token 2 eight parts each, head 1
    # token 1 five each; mean over heads would rank token 2 (8 + 0) / 2 behind nothing else.
    weights = torch.ones(2, 6, 6)
    for head in range(2):
        weights[head, 1, :2] = torch.tensor([1.0, 9])
        weights[head, 2, :3] = torch.tensor([2.0, 5, 3])
        weights[head, 3, :4] = torch.tensor([4.0, 4, 1, 1])
    weights[0, 4] = torch.tensor([0.7, 0.3, 0.4, 8, 0.6, 0])
    weights[0, 5] = torch.tensor([0.5, 0.3, 0.4, 8, 0.6, 0.2])
    weights[1, 4] = torch.tensor([4.0, 0.3, 5, 0.1, 0.6, 0])
    weights[1, 5] = torch.tensor([4.0, 0.3, 5, 0.1, 0.4, 0.2])
    scene = attended(weights, VISUAL)
    # self: 1.8, 0.4, 0.1; cross with the largest head of each row: 0.06, 1.0, 1.6.
    # Products: 0.108, 0.4, 0.16. The sum of both would put token 0 first.
    assert kept(scene, 1) == [1]
    assert kept(scene, 2) == [1, 2]


def test_a_plain_loop_agrees():
    draw = torch.Generator().manual_seed(2)
    length, visual = 15, list(range(2, 11))
    weights = torch.rand(3, length, length, generator=draw) ** 4 + 1e-3
    scene = attended(weights, visual)
    native = softmaxed(weights)
    scores = []
    for v in visual:
        within = sum(max(float(native[h, u, v]) for h in range(3)) for u in visual)
        across = sum(max(float(native[h, t, v]) for h in range(3)) for t in range(11, 15))
        scores.append(within * across)
    order = sorted(range(9), key=lambda v: -scores[v])
    for keep in range(1, 10):
        assert kept(scene, keep) == sorted(order[:keep])
    found = statistics_of(scene, [scene.previous, scene.previous])
    products = found.within * found.across * 9 * 4
    torch.testing.assert_close(products, torch.tensor([scores, scores]))


# -- plans -----------------------------------------------------------------------------------------


def test_the_plan_without_calibration_has_the_published_averages():
    plan = plan_named("fitprune", 32)
    assert plan.boundaries == tuple(range(1, 32)) and "published" in plan.notes[0]
    for final, average in fitprune.PUBLISHED:
        counts = plan.counts(Keep(tokens=final), 576)[0]
        assert counts[-1] == final
        assert abs(work(plan.boundaries, counts, 576, 32) / 32 - average) < 0.25


@pytest.mark.parametrize("depth", [2, 5, 28])
def test_counts_deleted_sum_to_what_is_gone(depth):
    plan = plan_named("fitprune", depth)
    for keep in (1, 20, 64, 100):
        counts = [100, *plan.counts(Keep(tokens=keep), 100)[0]]
        deleted = [a - b for a, b in itertools.pairwise(counts)]
        assert min(deleted) >= 0 and sum(deleted) == 100 - keep
    assert plan_named("fitprune-style", 28).boundaries == (2,)


# -- the schedule ----------------------------------------------------------------------------------


def walk_by_loops(samples, alpha, goal):
    """Deleted tokens of each sample behind each block, or None."""
    depth, tokens = samples[0].within.shape
    alive = [list(range(tokens)) for _ in samples]
    spent, gone = 0, []
    for block in range(depth):
        left = sum(map(len, alive))
        if spent + (depth - block) * left <= goal * depth * tokens * len(samples) + 1e-9:
            return gone + [[0] * len(samples)] * (depth - 1 - block)
        spent += left
        gone.append([])
        for number, one in enumerate(samples):
            sets = []
            for mass in (one.within[block].tolist(), one.across[block].tolist()):
                order = sorted(alive[number], key=lambda v: mass[v])
                best = 0
                for count in range(len(order)):
                    if sum(mass[v] for v in order[count:]) >= (1 - alpha) * sum(mass):
                        best = count
                sets.append(set(order[:best]))
            out = sets[0] & sets[1]
            alive[number] = [v for v in alive[number] if v not in out]
            gone[-1].append(len(out))
    return None


def drawn(count, depth=6, tokens=24, seed=0):
    draw = torch.Generator().manual_seed(seed)
    return [
        Statistics(*(torch.rand(2, depth, tokens, generator=draw, dtype=torch.float64) ** 3))
        for _ in range(count)
    ]


@pytest.mark.parametrize("goal", [0.3, 0.5, 0.8])
def test_the_search_is_the_loops(goal):
    samples = drawn(3)
    found = search(samples, goal)
    # Halving from [0, 1] down to a hundredth, by hand.
    low, high = 0.0, 1.0
    while high - low > 0.01 + 1e-6:
        middle = (low + high) / 2
        if walk_by_loops(samples, middle, goal) is None:
            low = middle
        else:
            high = middle
    assert found.alpha == high
    gone = walk_by_loops(samples, high, goal)
    assert found.deleted == pytest.approx([sum(row) / 3 / 24 for row in gone])
    assert found.counts(24) == [sum(row) // 3 for row in gone]
    assert walk_by_loops(samples, low, goal) is None
    assert sum(found.kept()[:-1]) + found.kept()[-1] <= goal * 6 + 1e-9


def test_counts_round_down_and_a_plan_keeps_them():
    schedule = Schedule((0.5, 0.0, 0.26), 0.1)
    assert schedule.counts(100) == [50, 0, 26] and schedule.counts(10) == [5, 0, 2]
    plan = plan_of("mine", fitprune.through([schedule.kept()]))
    assert plan.boundaries == (1, 2, 3)
    assert plan.counts(Keep(tokens=24), 100)[0] == [50, 50, 24]
    other = Schedule((0.9, 0.05, 0.0), 0.4)
    both = plan_of("both", fitprune.through([schedule.kept(), other.kept()]))
    assert both.counts(Keep(tokens=5), 100)[0] == [10, 5, 5]
    assert both.counts(Keep(tokens=24), 100)[0] == [50, 50, 24]


def test_what_no_search_can_reach():
    with refused(PlanError, "0.1 of the work", "larger share"):
        search(drawn(1), 0.1)  # the first of six blocks alone is a sixth
    for wrong in (0.0, 1.0):
        with refused(PlanError, "between 0 and 1"):
            search(drawn(1), wrong)
    with refused(PlanError, "0 samples"):
        search([], 0.5)
