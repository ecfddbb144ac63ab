"""PyramidDrop: stage by stage, what the prompt's last row attends to in the block that follows."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from vicoset.core.derived import FINAL, Derived
from vicoset.methods.base import CURRENT, About, Scene, Selection, attention_of
from vicoset.methods.choose import top
from vicoset.methods.presets import Recipe, Step, moved, register_preset, rescaled
from vicoset.methods.registry import register_selector

BLOCKS, BOUNDARIES = 32, (8, 16, 24)  # as released, for decoders of 32 blocks


@register_selector
@dataclass(frozen=True)
class PyramidDrop:
    """s_v = mean over heads of A[last, v] in block p, the block behind the boundary."""

    name: ClassVar[str] = "pyramiddrop"
    query_aware: ClassVar[bool] = True
    needs: ClassVar[frozenset[str]] = frozenset({CURRENT})
    about: ClassVar[About] = About(
        title="PyramidDrop",
        source="Xing et al., PyramidDrop, CVPR 2025",
        acts="before blocks 8, 16 and 24 of 32, keeping 50, 25 and 12.5% (plan pyramiddrop); "
        "pyramiddrop@p is one stage",
        reads="attention of block p, the prompt's last row, mean over heads",
        positions="packed",
        code="Cooperx521/PyramidDrop",
        licence="MIT",
        budget="a layer average: final 72, average 270 of 576",
        notes=(
            "the plan keeps N (K/N)^(1/3), N (K/N)^(2/3) and K tokens, rounded down: the released "
            "288, 144 and 72 of 576 at K = 72, a layer average of 270",
            "other depths keep the shares of the depth at which the stages stand",
            "the released code numbers what it keeps anew at every stage; so do we with "
            "positions='packed', and not otherwise",
        ),
        checked=(
            "by hand: the last row of the next block ranks",
            "released counts 288, 144 and 72 of 576 and their average of 270",
        ),
    )

    def select(self, scene: Scene, keep: int) -> Selection:
        """Rank by one row of block p."""
        attention = attention_of(scene, scene.current, scene.queries[-1:])
        return Selection(top(scene, attention[:, 0].mean(0), keep), {})


def recipe(depth: int) -> Recipe:
    """Three stages at a quarter, a half and three quarters of the depth, each by the same factor.

    Args:
        depth: L.
    """
    here = rescaled(BOUNDARIES, BLOCKS, depth)
    budgets = (Derived(power=1 / 3), Derived(power=2 / 3), FINAL)
    steps = [Step(p, "pyramiddrop", keep) for p, keep in zip(here, budgets, strict=True)]
    note = (
        "pyramiddrop's published number is a layer average, 270 of 576, and it ends with 72; here "
        "K is behind the last stage"
    )
    return Recipe(tuple(steps), "drop", (note, *moved("pyramiddrop", BOUNDARIES, BLOCKS, here)))


register_preset("pyramiddrop", recipe)
