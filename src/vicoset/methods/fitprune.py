"""FitPrune: behind every block, the tokens that little reads, by what vision and text both give."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar

from vicoset.core.derived import FINAL, Derived
from vicoset.methods.base import PREVIOUS, About, Scene, Selection, column_sums
from vicoset.methods.choose import top
from vicoset.methods.presets import Recipe, Step, register_preset, single
from vicoset.methods.registry import register_selector
from vicoset.methods.rows import behind_the_images

# Tokens of 576 that the shipped schedules of LLaVA-1.5-7B end with, and their average over the
# tokens entering its 32 blocks, for 90, 80, 70, 60 and 50% fewer operations.
PUBLISHED = ((37, 72.8), (62, 130.6), (88, 187.9), (127, 245.0), (173, 301.8))
PUBLISHED_TOKENS = 576


@register_selector
@dataclass(frozen=True)
class FitPrune:
    """s_v = (visual to v) * (text to v) in block p - 1, summed over rows, largest of the heads."""

    name: ClassVar[str] = "fitprune"
    query_aware: ClassVar[bool] = True
    needs: ClassVar[frozenset[str]] = frozenset({PREVIOUS})
    about: ClassVar[About] = About(
        title="FitPrune",
        source="Ye et al., Fit and Prune, AAAI 2025",
        acts="behind every block (plan fitprune); fitprune@p is one stage, fitprune-style the one "
        "before block 2",
        reads="attention of block p - 1: rows of all visual tokens, and of the text behind them; "
        "largest over heads, streamed",
        code="ywh187/FitPrune",
        licence="none stated",
        budget="a share of operations, in other papers' tables a layer average",
        notes=(
            "the released code deletes between a block's attention and its feed-forward part; here "
            "the block ends first",
            "the plan without a calibration of its own goes through the (final, average) pairs of "
            "the shipped LLaVA-1.5-7B schedules along an exponential curve: a style, no schedule "
            "of the paper. vicoset.evaluate.calibrate fits schedules to a model",
            "128 and 64 in other papers' tables are about its 80% and 90% schedules, which end "
            "with 62 and 37 tokens",
        ),
        checked=(
            "by hand: product of both masses, largest of the heads",
            "averages of the shipped schedules; deletions that add up",
            "the search of a schedule against loops",
        ),
    )

    def select(self, scene: Scene, keep: int) -> Selection:
        """Rank by the product."""
        view = scene.previous
        within = column_sums(scene, view, scene.visual, heads="max")
        across = column_sums(scene, view, behind_the_images(scene), heads="max")
        return Selection(top(scene, within * across, keep), {})


def curve(final: float, average: float, depth: int) -> list[float]:
    """K_l / N entering each block, l = 0..L-1: exponentially from 1 to ``final``.

    The rate is the one whose average is as asked for, or the nearest there is.

    Args:
        final: K/N.
        average: over the blocks.
        depth: L.
    """
    ends = depth - 1

    def at(rate: float) -> list[float]:
        low = math.exp(-rate * ends)
        fall = [(math.exp(-rate * block) - low) / (1 - low) for block in range(depth)]
        return [final + (1 - final) * share for share in fall]

    slow, fast = 1e-3, 30.0
    for _ in range(60):
        middle = math.sqrt(slow * fast)
        if sum(at(middle)) / depth > average:
            slow = middle
        else:
            fast = middle
    return at(fast)


def through(kept: list[list[float]]) -> Recipe:
    """The plan of several schedules: a budget between two of them is met between them.

    Args:
        kept: of each schedule, K_l / N entering each block, the first 1.
    """
    ordered = sorted({shares[-1]: shares for shares in kept if shares[-1] < 1}.items())
    steps = []
    for block in range(1, len(kept[0]) - 1):
        points = tuple((final, max(final, shares[block])) for final, shares in ordered)
        steps.append(Step(block, "fitprune", Derived(through=points)))
    return Recipe((*steps, Step(len(kept[0]) - 1, "fitprune", FINAL)), "drop")


def recipe(depth: int) -> Recipe:
    """A stage behind every block but the last.

    Args:
        depth: L.
    """
    pairs = [(k / PUBLISHED_TOKENS, mean / PUBLISHED_TOKENS) for k, mean in PUBLISHED]
    note = (
        "fitprune without a calibration of this model: an exponential curve through the published "
        "final counts and averages",
        "fitprune's published names are shares of operations, and layer averages in other papers' "
        "tables: '128' and '64' end with about 62 and 37 tokens; here K is behind the last stage",
    )
    return through([curve(*pair, depth) for pair in pairs])._replace(notes=note)


register_preset("fitprune", recipe)
single("fitprune-style", "fitprune", 2, "drop")
