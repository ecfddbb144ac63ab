"""Budgets, stages, plans and the work they leave."""

from dataclasses import dataclass, replace
from typing import ClassVar

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.core.helpers import refused
from vicoset.core.budget import realised_keep
from vicoset.errors import BudgetError, PlanError, UnknownNameError
from vicoset.methods import GMC, Drop, Random, Transport, registry
from vicoset.plan import Keep, Plan, Stage, keep_for_work, plan_named, work, work_share

# -- Keep ------------------------------------------------------------------------------------------


@given(st.integers(1, 500), st.integers(1, 400), st.integers(1, 9))
def test_keep_follows_the_budget_rule(asked, tokens, images):
    images = min(images, tokens)
    kept = Keep(tokens=asked).of(tokens, images)
    assert kept == realised_keep(asked, tokens, images) == min(tokens, max(asked, images))
    share = Keep(fraction=asked / 500)
    assert share.of(tokens, images) == realised_keep(asked / 500, tokens, images)


def test_an_int_is_a_count_and_a_float_a_fraction():
    assert Keep.parse(1) == Keep(tokens=1) != Keep.parse(1.0) == Keep(fraction=1.0)
    assert Keep.parse(0.1) == Keep(fraction=0.1)
    assert Keep(fraction=1) == Keep(fraction=1.0) and Keep(fraction=1).of(50) == 50
    keep = Keep(tokens=3)
    assert Keep.parse(keep) is keep


def test_keep_as_text():
    keeps = [Keep(tokens=128), Keep(fraction=0.1), Keep(fraction=0.07), Keep(fraction=0.125)]
    assert [str(keep) for keep in keeps] == ["128", "10%", "7%", "12.5%"]
    assert all(eval(repr(keep)) == keep for keep in keeps)


def test_a_note_says_when_the_realised_k_is_another():
    assert Keep(tokens=3).note(100, 3) is None
    assert Keep(tokens=100).note(100, 3) is None
    assert Keep(fraction=1.0).note(100, 3) is None
    assert Keep(tokens=2).note(100, 3) == (
        "Keep(tokens=2) is below the 3 images of this prompt; realised K = 3"
    )
    assert Keep(fraction=0.01).note(100, 3) == (
        "Keep(fraction=0.01), 1 of 100 tokens, is below the 3 images of this prompt; realised K = 3"
    )
    assert Keep(tokens=128).note(100) == (
        "Keep(tokens=128) is above the 100 visual tokens of this prompt; realised K = 100"
    )


@pytest.mark.parametrize(
    ("given", "fragment"),
    [
        ({}, "none of them"),
        ({"tokens": 2, "fraction": 0.1}, "2 of them"),
        ({"tokens": 0}, "tokens=0"),
        ({"tokens": -4}, "tokens=-4"),
        ({"tokens": 0.5}, "Keep(fraction=0.1)"),
        ({"tokens": True}, "bool"),
        ({"tokens": "9"}, "tokens='9'"),
        ({"fraction": 0.0}, "(0, 1]"),
        ({"fraction": 2}, "int keep=2"),
        ({"fraction": float("nan")}, "(0, 1]"),
        ({"fraction": True}, "bool"),
        ({"fraction": "a"}, "str"),
    ],
    ids=str,
)
def test_keep_refuses_what_names_no_number(given, fragment):
    with refused(BudgetError, fragment):
        Keep(**given)


@pytest.mark.parametrize("value", [None, "10%", True, 0, -1, 0.0, 1.5, [3]], ids=str)
def test_parse_refuses_what_is_no_budget(value):
    with pytest.raises(BudgetError):
        Keep.parse(value)


# -- Stage and Plan --------------------------------------------------------------------------------


def one(boundary=2, **changes):
    return Stage(**{"boundary": boundary, "selector": GMC(), "realiser": Transport(), **changes})


def test_a_stage_says_what_it_does():
    assert str(one()) == "gmc+transport@2"
    assert str(one(7, realiser=Drop(), keep=Keep(fraction=0.1))) == "gmc+drop@7 keep 10%"


@pytest.mark.parametrize(
    ("changes", "fragment"),
    [
        ({"boundary": -1}, "boundary=-1"),
        ({"boundary": 2.0}, "boundary=2.0"),
        ({"boundary": True}, "boundary=True"),
        ({"selector": GMC}, "no selector"),
        ({"selector": "gmc"}, "select()"),
        ({"realiser": Random()}, "no realiser"),
        ({"keep": 64}, "Keep.parse(64)"),
    ],
    ids=str,
)
def test_a_stage_that_cannot_run_is_refused(changes, fragment):
    with refused(PlanError, fragment):
        one(**changes)


def test_boundaries_ascend():
    plan = Plan("two", (one(2, keep=Keep(tokens=256)), one(9)))
    assert plan.boundaries == (2, 9)
    assert Plan("listed", [one(0), one(1)]).stages == (one(0), one(1))
    for boundaries in [(2, 2), (9, 2)]:
        with refused(PlanError, str(list(boundaries)), "strictly ascending"):
            Plan("two", tuple(map(one, boundaries)))
    with refused(PlanError, "0 stages"):
        Plan("none", ())
    with refused(PlanError, "a name"):
        Plan("", (one(),))


def test_a_plan_fits_the_model_or_names_the_range():
    plan = Plan("two", (one(2), one(9)))
    plan.check_depth(10)
    with refused(PlanError, "p = 9", "9 blocks", "0 to 8"):
        plan.check_depth(9)


def test_the_digest_changes_with_everything_that_the_plan_is():
    plans = [
        Plan("a", (one(),)),
        Plan("b", (one(),)),
        Plan("a", (one(3),)),
        Plan("a", (one(realiser=Drop()),)),
        Plan("a", (one(selector=Random()),)),
        Plan("a", (one(selector=Random(seed=1)),)),
        Plan("a", (one(keep=Keep(tokens=1)),)),
        Plan("a", (one(keep=Keep(fraction=1.0)),)),
        Plan("a", (one(), one(3))),
    ]
    digests = [plan.digest() for plan in plans]
    assert len(set(digests)) == len(plans)
    assert all(len(digest) == 16 and int(digest, 16) >= 0 for digest in digests)
    again = replace(plans[0], notes=("said",))
    assert again.digest() == digests[0] and again == plans[0]


def test_a_digest_is_the_same_in_every_process():
    assert plan_named("gmc-h2", 28).digest() == "90e475271f2c4f55"


def test_a_method_without_plain_numbers_has_no_digest():
    @dataclass(frozen=True)
    class Odd:
        what: object
        name: ClassVar[str] = "odd"

        def select(self, scene, keep):
            raise NotImplementedError

    assert Plan("a", (one(selector=Odd((1, "x", None))),)).digest()
    with refused(PlanError, "object", "flat scalar fields"):
        Plan("a", (one(selector=Odd(object())),)).digest()


# -- plan_named ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "stage"),
    [
        ("gmc-h1", one(1)),
        ("gmc-h2", one(2)),
        ("gmc-l16", one(16)),
        ("fastv-h2", one(2, selector=registry.selector("fastv"), realiser=Drop())),
        ("gmc@7", one(7)),
        ("gmc@0", one(0)),
        (" gmc@27 ", one(27)),
        ("random@2", one(2, selector=Random())),
        ("random+drop@2", one(2, selector=Random(), realiser=Drop())),
        ("gmc+drop@2", one(2, realiser=Drop())),
    ],
)
def test_names_of_plans(text, stage):
    assert plan_named(text, 28) == Plan(text.strip(), (stage,))
    notes = plan_named(text, 28).notes
    assert notes == () if text != "fastv-h2" else "layer average" in notes[0]


def test_every_registered_pair_has_a_name():
    known = registry.names()
    for selector in known.selectors:
        for realiser in known.realisers:
            (stage,) = plan_named(f"{selector}+{realiser}@3", 28).stages
            assert (stage.selector.name, stage.realiser.name) == (selector, realiser)


@pytest.mark.parametrize(("depth", "p"), [(24, 14), (36, 21), (32, 18), (4, 2), (2, 1), (28, 16)])
def test_the_deep_preset_keeps_its_share_of_the_depth(depth, p):
    plan = plan_named("gmc-l16", depth)
    assert plan.boundaries == (p,)
    note = f"gmc-l16 is p = 16 of 28 blocks; this model has {depth}, so p = {p}"
    assert plan.notes == (() if depth == 28 else (note,))


def test_the_early_presets_stay_where_they_are():
    assert plan_named("gmc-h2", 80).boundaries == (2,) and plan_named("gmc-h2", 80).notes == ()


@pytest.mark.parametrize(
    ("text", "depth", "error", "fragments"),
    [
        ("gmc@28", 28, PlanError, ["p = 28", "28 blocks", "0 to 27"]),
        ("gmc-h2", 2, PlanError, ["p = 2", "0 to 1"]),
        ("gmc", 28, PlanError, ["no boundary", "gmc@2"]),
        ("gmc@x", 28, PlanError, ["no boundary"]),
        ("gmc@-1", 28, PlanError, ["no boundary"]),
        ("gmc@2+drop", 28, PlanError, ["<selector>+<realiser>@p"]),
        ("gmc+@2", 28, PlanError, ["no boundary"]),
        ("gmc-h3", 28, UnknownNameError, ["no plan", "mean 'gmc-h2'?", "<selector>+<realiser>@p"]),
        ("GMC-L16", 28, UnknownNameError, ["Did you mean 'gmc-l16'?"]),
        ("", 28, UnknownNameError, ["no plan"]),
        ("gcm@2", 28, UnknownNameError, ["no selector", "Did you mean 'gmc'?"]),
        ("gmc+dorp@2", 28, UnknownNameError, ["no realiser", "Did you mean 'drop'?"]),
    ],
)
def test_names_that_mean_no_plan(text, depth, error, fragments):
    with refused(error, *fragments):
        plan_named(text, depth)


# -- work ------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("boundary", "kept", "percent"),
    [(2, 128, 16.31), (2, 256, 25.49), (16, 128, 61.38), (16, 256, 65.61)],
)
def test_work_has_the_numbers_of_the_paper(boundary, kept, percent):
    share = work_share([boundary], [kept], 1296, 28)
    assert round(100 * share, 2) == percent
    assert work([boundary], [kept], 1296, 28) == boundary * 1296 + (28 - boundary) * kept


@given(st.data())
def test_work_is_the_tokens_counted_block_by_block(data):
    depth, tokens = data.draw(st.integers(1, 40)), data.draw(st.integers(0, 300))
    boundaries = sorted(data.draw(st.sets(st.integers(0, depth - 1), max_size=4)))
    counts = st.lists(st.integers(0, tokens), min_size=len(boundaries), max_size=len(boundaries))
    kept = data.draw(counts)
    total = 0
    for block in range(depth):
        passed = [k for p, k in zip(boundaries, kept, strict=True) if p <= block]
        total += passed[-1] if passed else tokens
    assert work(boundaries, kept, tokens, depth) == total
    share = work_share(boundaries, kept, tokens, depth)
    assert share == (total / (depth * tokens) if tokens else 1.0)


@pytest.mark.parametrize(
    ("boundaries", "kept"),
    [
        ([2, 2], [9, 9]),
        ([3, 2], [9, 9]),
        ([4], [9]),
        ([1], []),
        ([], [9]),
        ([-1], [9]),
        ([1], [-9]),
    ],
)
def test_work_refuses_what_is_no_plan(boundaries, kept):
    with refused(PlanError, str(boundaries), str(kept), "0 to 3"):
        work(boundaries, kept, 10, 4)


@given(st.data())
def test_equal_work_is_the_nearest_that_a_budget_can_come(data):
    depth, tokens = data.draw(st.integers(1, 30)), data.draw(st.integers(1, 200))
    boundary = data.draw(st.integers(0, depth - 1))
    target = data.draw(st.integers(boundary * tokens + 1, depth * tokens))
    keep = keep_for_work(target, boundary, tokens, depth)
    gaps = [abs(work([boundary], [k], tokens, depth) - target) for k in range(1, tokens + 1)]
    assert keep == 1 + gaps.index(min(gaps))


def test_equal_work_that_no_budget_has_is_refused():
    for target in (20, 41):
        with refused(PlanError, str(target), "more than 20 and at most 40", "earlier boundary"):
            keep_for_work(target, 2, 10, 4)
