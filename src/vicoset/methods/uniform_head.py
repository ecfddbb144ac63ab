"""Uniform-head attention: the control that weighs all heads and all prompt rows alike."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from vicoset.methods.base import CURRENT, TEXT, About, Scene, Selection, column_sums
from vicoset.methods.choose import top
from vicoset.methods.registry import register_selector
from vicoset.methods.rows import behind_the_images


@register_selector
@dataclass(frozen=True)
class UniformHead:
    """s_v = mean over heads and rows behind the images of A[t, v] in block p."""

    name: ClassVar[str] = "uniform-head"
    query_aware: ClassVar[bool] = True
    needs: ClassVar[frozenset[str]] = frozenset({CURRENT})
    about: ClassVar[About] = About(
        title="Uniform-head attention",
        source="control of the paper's same-path table",
        acts="where the plan compresses",
        reads="attention of block p, every row behind the last image",
        notes=(
            "the paper does not fix the rows: we take all behind the last image, chat-template "
            "tail included; uniform-head-question takes the question's only",
        ),
        checked=("a loop over heads and rows of the native softmax",),
    )

    def select(self, scene: Scene, keep: int) -> Selection:
        """Rank by the plain mean of the native attention."""
        rows = behind_the_images(scene)
        scores = column_sums(scene, scene.current, rows) / len(rows)
        return Selection(top(scene, scores, keep), {"rows": len(rows)})


@register_selector
@dataclass(frozen=True)
class UniformHeadQuestion:
    """The same from the tokens of the question alone."""

    name: ClassVar[str] = "uniform-head-question"
    query_aware: ClassVar[bool] = True
    needs: ClassVar[frozenset[str]] = frozenset({CURRENT, TEXT})
    about: ClassVar[About] = About(
        title="Uniform-head attention (question)",
        source="control, variant of uniform-head",
        acts="where the plan compresses",
        reads="attention of block p, the question's rows",
        notes=("a question that stands before the image sees none of it: every score is 0",),
        checked=("by hand: the question alone decides",),
    )

    def select(self, scene: Scene, keep: int) -> Selection:
        """Rank by the plain mean over the question."""
        rows = scene.text.positions[scene.text.question_mask]
        scores = column_sums(scene, scene.current, rows) / len(rows)
        return Selection(top(scene, scores, keep), {"rows": len(rows)})
