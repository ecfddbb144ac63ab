"""What a method sees and what it answers.

A selector chooses which visual tokens stay, a realiser what each of them holds; any selector pairs
with any realiser. Both read a scene: one sample at one boundary. The runtime owns the invariants
(the budget rule, a carrier for every image, the gather, the dtype cast), methods own the ideas.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol

from torch import Tensor

from vicoset.core import checks, messages
from vicoset.core.coreset import Grounding
from vicoset.core.settings import Settings
from vicoset.errors import BudgetError, MethodError

VIEWS = "views"
KNOWN_NEEDS = frozenset({VIEWS})


class View(NamedTuple):
    """What one block's attention was called with, as far as the prompt rows read it.

    Attributes:
        block: index of the block.
        queries: [H, T, dh] of the prompt rows, position encoding applied.
        keys: [Hkv, L, dh] of the whole sequence, position encoding applied.
        values: [Hkv, N, dh] of the visual rows only.
        output_probe: P [d, r] -> O_h P [H, dh, r].
        scaling: factor on the scores.
        mask: native mask of the sequence, see :func:`vicoset.core.messages.mask_rows`.
        key_valid: [L] bool, False on padding; None beside a native mask.
        sliding_window: the block's window; None beside a native mask.
        softcap: c of ``c * tanh(score / c)``.
        sinks: [H] one extra logit per head.
    """

    block: int
    queries: Tensor
    keys: Tensor
    values: Tensor
    output_probe: Callable[[Tensor], Tensor]
    scaling: float
    mask: Tensor | None = None
    key_valid: Tensor | None = None
    sliding_window: int | None = None
    softcap: float | None = None
    sinks: Tensor | None = None


@dataclass(frozen=True, eq=False)
class Scene:
    """One sample at one boundary.

    Attributes:
        states: h [N, d], what the visual tokens hold at the boundary.
        coordinates: p [N, axes] in [0, 1], (y, x) or (t, y, x).
        image_ids: [N], 0..I-1.
        images: I.
        visual: [N] sequence indices of the visual tokens.
        queries: [T] sequence indices of the prompt rows, the terminal one last.
        boundary: p.
        views: the current view first, then history in ascending block order; empty when no method
            of the stage needs them.
        settings: the method's numbers.
        seed: of the sample, for random controls.
        potential_queries: prompt rows that could be read, before ``max_queries`` was applied; None
            where nobody counted them.
    """

    states: Tensor
    coordinates: Tensor
    image_ids: Tensor
    images: int
    visual: Tensor
    queries: Tensor
    boundary: int
    views: tuple[View, ...]
    settings: Settings
    seed: int
    potential_queries: int | None = None


class Selection(NamedTuple):
    """Which tokens stay.

    Attributes:
        indices: [K] int64, ascending, on the device of the states.
        evidence: what the selector measured, for the record.
        grounding: how the prompt reads the image, when the selector found out.
    """

    indices: Tensor
    evidence: dict[str, Any]
    grounding: Grounding | None = None


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


def attention_of(scene: Scene, view: View) -> Tensor:
    """A [H, T, N]: the visual columns of a view's native softmax."""
    return messages.visual_attention(
        view.queries,
        view.keys,
        scene.queries,
        scene.visual,
        scaling=view.scaling,
        mask=view.mask,
        key_valid=view.key_valid,
        sliding_window=view.sliding_window,
        softcap=view.softcap,
        sinks=view.sinks,
    )


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
