"""Which plans a complete comparison runs: the registry says, so that a new method is a new row."""

from __future__ import annotations

import re
from collections.abc import Iterable
from contextlib import suppress
from typing import NamedTuple

from vicoset.errors import PlanError, VicosetError
from vicoset.evaluate.entry import FULL
from vicoset.methods import registry
from vicoset.methods.base import About
from vicoset.plan import PRESETS, Plan, plan_named
from vicoset.runtime import downsample

CONTROL_BOUNDARY = 2  # where controls compress: GMC-H2's place, so that they cost the same
GMC = ("gmc-h2", "gmc-l16")
ALWAYS = ("random+drop@2", "grid+drop@2", downsample.NAME)  # rows that no table leaves out


class Member(NamedTuple):
    """A plan of the comparison.

    Attributes:
        plan: its name, as ``plan_named`` reads it.
        title: for readers.
        query_aware: whether a stage reads the question.
        boundaries: p of every stage.
        control: whether it is a control and no published method.
    """

    plan: str
    title: str
    query_aware: bool
    boundaries: tuple[int, ...]
    control: bool


WITHOUT_PLAN = {
    FULL: Member(FULL, "Full", False, (), False),
    downsample.NAME: Member(downsample.NAME, downsample.ABOUT.title, False, (0,), True),
}


def costed(name: str) -> str:
    """The plan that costs what a row costs: smaller images cost what a stage at the input does.

    Args:
        name: of a row.
    """
    return "random+drop@0" if name == downsample.NAME else name


def member(name: str, depth: int) -> Member:
    """What is known of a plan by its name.

    Args:
        name: of a plan, "full" or "downsample".
        depth: L.
    """
    if name in WITHOUT_PLAN:
        return WITHOUT_PLAN[name]
    plan = plan_named(name, depth)
    selectors = [stage.selector for stage in plan.stages]
    abouts = [about for one in selectors if (about := getattr(one, "about", None)) is not None]
    return Member(
        plan=name,
        title=_title(name, plan),
        query_aware=any(one.query_aware for one in selectors),
        boundaries=plan.boundaries,
        control=bool(abouts) and all(_anywhere(about) for about in abouts),
    )


def lineup(depth: int) -> list[Member]:
    """All presets, every selector that no preset names, each where its method acts; downsample.

    Controls compress before block 2 and delete, as GMC-H2's place asks; other selectors act where
    the released method does, and merge where it merges.

    Args:
        depth: L; plans that a decoder of this depth cannot hold are left out.
    """
    names = [name for name in PRESETS if _fits(name, depth)]
    named = {s.selector.name for name in names for s in plan_named(name, depth).stages}
    for name in registry.names().selectors:
        if name not in named:
            written = f"{name}+{_realiser(name)}@{min(_place(name), depth - 1)}"
            names.append(written)
    members = [member(name, depth) for name in dict.fromkeys([*names, downsample.NAME])]
    return sorted(members, key=lambda one: (one.plan not in GMC, one.control))


def noted(names: Iterable[str], depth: int) -> list[str]:
    """What a reader should know of some plans, such as names that are layer averages.

    Args:
        names: of rows.
        depth: L.
    """
    found: dict[str, None] = {}
    for name in names:
        with suppress(VicosetError):  # rows of other programs bear names of their own
            found |= {f"{note}.": None for note in plan_named(name, depth).notes}
    return list(found)


def _title(name: str, plan: Plan) -> str:
    head = re.split(r"[\[+@]", name)[0]
    if head in PRESETS and head.startswith("gmc"):
        return head.upper()
    about = getattr(plan.stages[0].selector, "about", None)
    return head if about is None else str(about.title)


def _fits(name: str, depth: int) -> bool:
    try:
        plan_named(name, depth)
    except PlanError:
        return False
    return True


def _place(name: str) -> int:
    """p of a selector: where its method acts, else GMC-H2's."""
    about = getattr(registry.selector(name), "about", None)
    acts = "" if about is None else str(about.acts)
    written = re.search(r"before block (\d+)", acts)
    if written:
        return int(written[1])
    return CONTROL_BOUNDARY if about is None or _anywhere(about) else 0


def _anywhere(about: About) -> bool:
    """Whether a method has no place of its own: controls, and supports that any plan may use."""
    return about.source == "control" or about.acts.startswith("where the plan")


def _realiser(name: str) -> str:
    about = getattr(registry.selector(name), "about", None)
    return "merge" if about is not None and about.merges else "drop"
