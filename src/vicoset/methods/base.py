"""What a method sees and what it answers.

A selector chooses which visual tokens stay, a realiser what each of them holds; any selector pairs
with any realiser. Both read a scene: one sample at one boundary. The runtime owns the invariants
(the budget rule, a carrier for every image, the gather, the dtype cast), methods own the ideas.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple, Protocol

import torch
from torch import Tensor

from vicoset.core import checks, messages
from vicoset.core.coreset import Grounding
from vicoset.errors import BudgetError, MethodError
from vicoset.methods.scene import (
    CURRENT,
    DECODER,
    EMBEDDINGS,
    KNOWN_NEEDS,
    PREVIOUS,
    QUESTION,
    TEXT,
    TOWER,
    VIEWS,
    Decoder,
    Parts,
    Scene,
    Text,
    Tower,
    View,
)
from vicoset.methods.streamed import is_plain, plain_sums

__all__ = [
    "CURRENT",
    "DECODER",
    "EMBEDDINGS",
    "KNOWN_NEEDS",
    "PREVIOUS",
    "QUESTION",
    "TEXT",
    "TOWER",
    "VIEWS",
    "About",
    "Decoder",
    "Merge",
    "Parts",
    "Realisation",
    "Realiser",
    "Scene",
    "Selection",
    "Selector",
    "Text",
    "Tower",
    "View",
    "attention_of",
    "attention_rows",
    "check_finite",
    "check_keep",
    "check_views",
    "column_sums",
]

ROWS = 1 << 22  # elements of the largest temporary of a streamed attention, 16 MiB in float32


class About(NamedTuple):
    """Where a method comes from and what it does, for its row in docs/methods.md.

    Attributes:
        title: how tables call it.
        source: paper, venue and year; or "control".
        acts: where the released method acts, such as "before block 2".
        reads: what it reads there, in words.
        merges: whether dropped tokens enter the kept ones in the released method.
        positions: "original" or "packed", as the released code numbers what it keeps.
        code: public repository, ``owner/name``; empty when there is none.
        licence: of that repository.
        budget: what the published tables call its K.
        notes: fidelity: released code against paper, and our choice.
        checked: what a test of this method holds it to, beside the contract of every selector.
    """

    title: str
    source: str
    acts: str
    reads: str
    merges: bool = False
    positions: str = "original"
    code: str = ""
    licence: str = ""
    budget: str = "tokens behind the compaction"
    notes: tuple[str, ...] = ()
    checked: tuple[str, ...] = ()


class Merge(NamedTuple):
    """A recovery map R, sparse: carrier j holds the sum over its entries of weight * source.

    Carriers without an entry keep their own state; an entry for the carrier itself has to be
    listed like any other. Realiser ``merge`` applies it; other realisers ignore it.

    Attributes:
        target: [E] positions among the kept, 0..K-1.
        source: [E] indices among the N tokens, of the target's image.
        weight: [E].
        features: the map acts on ``scene.tower.features`` and its result goes through the
            projector; the selector then needs ``tower``. Otherwise it acts on ``scene.states``.
    """

    target: Tensor
    source: Tensor
    weight: Tensor
    features: bool = False


class Selection(NamedTuple):
    """Which tokens stay.

    Attributes:
        indices: [K] int64, ascending, on the device of the states.
        evidence: what the selector measured, for the record.
        grounding: how the prompt reads the image, when the selector found out.
        merge: which tokens enter which carriers, when the method says so itself.
    """

    indices: Tensor
    evidence: dict[str, Any]
    grounding: Grounding | None = None
    merge: Merge | None = None


class Realisation(NamedTuple):
    """What the kept tokens hold.

    Attributes:
        states: h~ [K, d] in the dtype of the scene.
        carrier: pi [N], position among the kept of each token's carrier; -1 for a deleted token.
        mass: m [N], the mass each token brings; 0 for a deleted token.
        gate: s_x, scalar.
    """

    states: Tensor
    carrier: Tensor
    mass: Tensor
    gate: Tensor


class Selector(Protocol):
    """Chooses which visual tokens stay."""

    @property
    def name(self) -> str:
        """The name of the method in plans and records."""

    @property
    def query_aware(self) -> bool:
        """Whether the choice depends on the prompt's text."""

    @property
    def needs(self) -> frozenset[str]:
        """Which optional parts of the scene are read, a subset of ``KNOWN_NEEDS``."""

    def select(self, scene: Scene, keep: int) -> Selection:
        """Choose ``keep`` tokens, at least one per image."""


class Realiser(Protocol):
    """Decides what each kept token holds."""

    @property
    def name(self) -> str:
        """The name of the method in plans and records."""

    @property
    def needs(self) -> frozenset[str]:
        """Which optional parts of the scene are read, a subset of ``KNOWN_NEEDS``."""

    def realise(self, scene: Scene, selection: Selection) -> Realisation:
        """Fill the carriers of a selection."""


def attention_of(scene: Scene, view: View, rows: Tensor | None = None) -> Tensor:
    """A [H, T, N]: the visual columns of a view's native softmax.

    Args:
        scene: the scene.
        view: one of its views.
        rows: [T] sequence indices of the query rows; None for the scene's prompt rows.
    """
    if rows is None:
        queries, rows = view.queries, scene.queries
    elif view.every_query is None:
        raise MethodError(
            f"the view of block {view.block} holds the queries of the prompt rows only; allowed "
            "are views with every_query. Leave rows out, or build the view with it."
        )
    else:
        queries = view.every_query.index_select(1, rows)
    return messages.visual_attention(
        queries,
        view.keys,
        rows,
        scene.visual,
        scaling=view.scaling,
        mask=view.mask,
        key_valid=view.key_valid,
        sliding_window=view.sliding_window,
        softcap=view.softcap,
        sinks=view.sinks,
    )


def attention_rows(
    scene: Scene, view: View, rows: Tensor, elements: int = ROWS
) -> Iterator[tuple[Tensor, Tensor]]:
    """The attention of many rows in pieces: (rows [t], A [H, t, N]), never all at once.

    Args:
        scene: the scene.
        view: one of its views.
        rows: [T] sequence indices of the query rows.
        elements: most scores of a piece.
    """
    heads, length = len(view.queries), view.keys.shape[1]
    step = max(1, elements // (heads * length))
    for part in torch.split(rows, step):
        yield part, attention_of(scene, view, part)


def column_sums(scene: Scene, view: View, rows: Tensor, heads: str = "mean") -> Tensor:
    """[N]: what each visual token receives from some rows of a block, streamed.

    Args:
        scene: the scene.
        view: one of its views.
        rows: [T] sequence indices of the query rows; ``scene.visual`` for visual to visual.
        heads: "mean" or "max", how the heads are put together before the sum over rows.
    """
    if heads not in ("mean", "max"):
        raise MethodError(f"heads={heads!r}; allowed are 'mean' and 'max'. Write heads='mean'.")
    if is_plain(view, rows):
        return plain_sums(view, rows, scene.visual, heads)
    total: Tensor | None = None
    for _, attention in attention_rows(scene, view, rows):
        merged = attention.mean(0) if heads == "mean" else attention.amax(0)
        total = merged.sum(0) if total is None else total + merged.sum(0)
    return scene.states.new_zeros(len(scene.visual)).float() if total is None else total


def check_keep(scene: Scene, keep: int) -> None:
    """Raise unless K leaves a carrier for every image and there are K tokens."""
    tokens = len(scene.states)
    if not scene.images <= keep <= tokens:
        raise BudgetError(
            f"keep={keep} of {tokens} visual tokens in {scene.images} images; allowed are "
            f"{scene.images} to {tokens}. Pass keep through Keep.of or realised_keep first."
        )


def check_views(scene: Scene, method: str) -> None:
    """Raise when a method that reads views came to a scene without any."""
    if not scene.views:
        raise MethodError(
            f"{method!r} reads views, and the scene at boundary {scene.boundary} holds none; at "
            f"least the current block's is needed. Declare needs=frozenset({{'{VIEWS}'}})."
        )


def check_finite(tensors: Mapping[str, Tensor]) -> None:
    """Raise on NaN and infinity where looking is free; elsewhere it would cost a device read."""
    checks.finite({name: tensor for name, tensor in tensors.items() if tensor.device.type == "cpu"})
