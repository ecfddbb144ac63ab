"""Plans that have a name: a method file registers them next to its selector.

A recipe says which selector acts before which block, and how its budget follows from the plan's;
``vicoset.plan.plan_named`` makes the plan. A preset may bear the name of a selector:
``pyramiddrop`` is the plan, ``pyramiddrop@2`` one stage.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import NamedTuple

from vicoset.core.derived import Derived
from vicoset.core.keep import Keep
from vicoset.errors import MethodError, PlanError
from vicoset.methods.registry import NAME

PAPER_BLOCKS = 28  # depth of the decoder on which the paper names its points H1, H2 and L16


class Step(NamedTuple):
    """One stage of a recipe.

    Attributes:
        boundary: p.
        selector: its name, with numbers in brackets where the recipe sets some.
        keep: the stage's budget; None for the run's.
    """

    boundary: int
    selector: str
    keep: Keep | Derived | None = None


class Recipe(NamedTuple):
    """What a plan is made of.

    Attributes:
        steps: boundaries strictly ascending.
        realiser: the usual one; a plan's name may ask for another.
        notes: what a reader should know.
    """

    steps: tuple[Step, ...]
    realiser: str
    notes: tuple[str, ...] = ()


Maker = Callable[[int], Recipe]
PRESETS: dict[str, Maker] = {}


def register_preset(name: str, maker: Maker) -> None:
    """A name for plans.

    Args:
        name: unique among presets.
        maker: depth L -> the recipe.
    """
    if not NAME.fullmatch(name) or name in PRESETS:
        raise MethodError(
            f"preset {name!r} is registered already or no name; allowed are new names of "
            "lower-case letters, digits, - and _, a letter first. Choose another name."
        )
    PRESETS[name] = maker


def single(
    name: str,
    selector: str,
    boundary: int,
    realiser: str,
    rescaled: bool = False,
    notes: tuple[str, ...] = (),
) -> None:
    """Register a plan of one stage.

    Args:
        name: of the preset.
        selector: its selector.
        boundary: p.
        realiser: the usual one.
        rescaled: keep the share of the depth that p has in a decoder of 28 blocks.
        notes: what a reader should know, such as what published tables call its K.
    """

    def maker(depth: int) -> Recipe:
        p, moved_here = boundary, tuple[str, ...]()
        if rescaled and depth != PAPER_BLOCKS:
            p = round(boundary / PAPER_BLOCKS * depth)
            moved_here = (
                f"{name} is p = {boundary} of {PAPER_BLOCKS} blocks; "
                f"this model has {depth}, so p = {p}",
            )
        return Recipe((Step(p, selector),), realiser, (*notes, *moved_here))

    register_preset(name, maker)


def rescaled(boundaries: Sequence[int], of: int, depth: int, behind: int = 0) -> list[int]:
    """Published boundaries at the same shares of another depth, still strictly ascending.

    Args:
        boundaries: as published.
        of: depth of the decoder that they were published for.
        depth: L of this one.
        behind: 1 where a boundary is named by the block it follows: that block is rescaled.
    """
    found = [math.floor((p - behind) * depth / of + 0.5) + behind for p in boundaries]
    # From the end, so that none lies behind the last block.
    for place in reversed(range(len(found))):
        room = depth if place + 1 == len(found) else found[place + 1]
        found[place] = min(found[place], room - 1)
    least = min(1, *boundaries)
    if found[0] < least:
        raise PlanError(
            f"boundaries {list(boundaries)} of {of} blocks do not fit into {depth}; allowed are "
            f"decoders of at least {len(found) + least} blocks. Choose a plan with fewer stages."
        )
    return found


def moved(name: str, boundaries: Sequence[int], of: int, here: Sequence[int]) -> tuple[str, ...]:
    """The note on a plan whose boundaries were rescaled; none where they were not.

    Args:
        name: of the preset.
        boundaries: as published.
        of: depth of the decoder that they were published for.
        here: the plan's own.
    """
    if list(boundaries) == list(here):
        return ()
    was, now = (", ".join(map(str, found)) for found in (boundaries, here))
    return (f"{name} has the boundaries {was} of {of} blocks; here {now}",)
