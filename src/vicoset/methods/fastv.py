"""FastV: the tokens that the last query of the block before the boundary attends to most."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from vicoset.methods.base import PREVIOUS, About, Scene, Selection, attention_of, column_sums
from vicoset.methods.choose import top
from vicoset.methods.presets import single
from vicoset.methods.registry import register_selector
from vicoset.methods.rows import from_the_image_on

_SOURCE = "Chen et al., An Image is Worth 1/2 Tokens After Layer 2 (FastV), ECCV 2024"
_CODE = "pkunlp-icler/FastV"
_LICENCE = "none stated"


@register_selector
@dataclass(frozen=True)
class FastV:
    """s_v = mean over heads of A[last, v] in block p - 1, as the released code ranks."""

    name: ClassVar[str] = "fastv"
    query_aware: ClassVar[bool] = True
    needs: ClassVar[frozenset[str]] = frozenset({PREVIOUS})
    about: ClassVar[About] = About(
        title="FastV",
        source=_SOURCE,
        acts="before block 2",
        reads="attention of block p - 1, its last query row",
        code=_CODE,
        licence=_LICENCE,
        budget="in other papers' tables a layer average, which counts the dense blocks before it",
        notes=(
            "the paper describes the average attention received from all tokens; the released code "
            "ranks by the last query, and so do we (the other reading is fastv-mean)",
            "chosen once in the prompt's forward and kept while decoding, as in the released "
            "version with a cache",
            "tables of other papers print layer-average tokens for it; ours print the final K",
        ),
        checked=(
            "by hand: attention whose last row and column mean disagree",
            "loops over heads and rows of the native softmax; heads in any order",
            "padded batches in tiny models: the models' own attention",
        ),
    )

    def select(self, scene: Scene, keep: int) -> Selection:
        """Rank by one row of block p - 1."""
        attention = attention_of(scene, scene.previous, scene.queries[-1:])
        return Selection(top(scene, attention[:, 0].mean(0), keep), {})


@register_selector
@dataclass(frozen=True)
class FastVMean:
    """s_v = attention received in block p - 1, mean over heads, sum over all queries that see v."""

    name: ClassVar[str] = "fastv-mean"
    query_aware: ClassVar[bool] = True
    needs: ClassVar[frozenset[str]] = frozenset({PREVIOUS})
    about: ClassVar[About] = About(
        title="FastV (mean of all queries)",
        source=_SOURCE,
        acts="before block 2",
        reads="attention of block p - 1, all query rows, streamed",
        code=_CODE,
        licence=_LICENCE,
        budget="in other papers' tables a layer average, which counts the dense blocks before it",
        notes=(
            "the text of the paper; the released code reads the last query only",
            "includes visual queries, and under a causal mask later tokens are read by fewer rows",
        ),
        checked=(
            "by hand beside fastv, with the predicted difference",
            "loops over heads and rows of the native softmax",
        ),
    )

    def select(self, scene: Scene, keep: int) -> Selection:
        """Rank by what every row of block p - 1 gives."""
        received = column_sums(scene, scene.previous, from_the_image_on(scene))
        return Selection(top(scene, received, keep), {})


single(
    *("fastv-h2", "fastv", 2, "drop"),
    notes=("other papers' tables name FastV by its layer average; here K is what block 2 gets",),
)
