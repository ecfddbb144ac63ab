"""What a method sees: one sample at one boundary.

Beside the states at the boundary, a scene has parts that are filled only for methods that name
them in ``needs``; asking for any other part is an error that says so.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, NamedTuple

from torch import Tensor

from vicoset.core.settings import Settings
from vicoset.errors import MethodError

VIEWS = "views"
CURRENT = "current"
PREVIOUS = "previous"
EMBEDDINGS = "embeddings"
TEXT = "text"
QUESTION = "question"
TOWER = "tower"
DECODER = "decoder"
KNOWN_NEEDS = frozenset({VIEWS, CURRENT, PREVIOUS, EMBEDDINGS, TEXT, QUESTION, TOWER, DECODER})


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
        every_query: [H, L, dh] queries of the whole sequence, for methods that read other rows.
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
    every_query: Tensor | None = None


class Text(NamedTuple):
    """The prompt's text tokens: neither visual nor structural nor padding.

    Attributes:
        ids: [M] token ids.
        embeddings: [M, d], e_t as they entered the decoder.
        positions: [M] sequence indices, ascending.
        question_mask: [M] bool, the user's instruction: what stands between the last image and the
            end of its turn; where that is nothing, what stands before the image in its turn.
        question: the marked tokens as a string; None unless a processor was given to compress.
        states: [M, d], what they hold at the boundary.
        embed: words -> [M', d], the embeddings of their tokens, for methods that write the
            question anew; None unless a processor was given to compress.
    """

    ids: Tensor
    embeddings: Tensor
    positions: Tensor
    question_mask: Tensor
    question: str | None = None
    states: Tensor | None = None
    embed: Callable[[Sequence[str]], Tensor] | None = None


class Tower:
    """What the vision tower made of the visual tokens still present, in scene order.

    Every attribute is computed when it is first read.

    Attributes:
        features: z [N, dz] before the projector. Qwen: output of the last block, mean over the
            patches of a merge group. LLaVA: patch states of the selected layer.
        keys: [N, dk], mean over heads. Qwen: of the last block with full attention, rotary applied,
            mean over the patches of a group. LLaVA: of the selected layer, before scaling.
        received: [N] attention received in that block: mean over heads, sum over all queries of
            the image (or frame), mean over the patches of a group.
        cls: [N] attention of the class token in that block, mean over heads; None without one.
        cls_feature: [I, dz] state of each image's class token (any-resolution images: of the base
            view); None without one.
        project: z [M, dz] -> [M, d], the projector; None where it does not act on single features.
    """

    def __init__(
        self,
        features: Tensor | Callable[[], Tensor],
        keys: Tensor | Callable[[], Tensor],
        received: Tensor | Callable[[], Tensor],
        cls: Tensor | Callable[[], Tensor] | None = None,
        cls_feature: Tensor | Callable[[], Tensor] | None = None,
        project: Callable[[Tensor], Tensor] | None = None,
    ) -> None:
        self._parts = (features, keys, received, cls, cls_feature)
        self.project = project

    @cached_property
    def features(self) -> Tensor:
        """z [N, dz]."""
        return _made(self._parts[0])

    @cached_property
    def keys(self) -> Tensor:
        """[N, dk]."""
        return _made(self._parts[1])

    @cached_property
    def received(self) -> Tensor:
        """[N]."""
        return _made(self._parts[2])

    @cached_property
    def cls(self) -> Tensor | None:
        """[N], or None."""
        return None if self._parts[3] is None else _made(self._parts[3])

    @cached_property
    def cls_feature(self) -> Tensor | None:
        """[I, dz], or None."""
        return None if self._parts[4] is None else _made(self._parts[4])


class Decoder(NamedTuple):
    """The text decoder's own maps.

    Attributes:
        depth: L, its blocks.
        queries: (block, states [M, d]) -> [H, M, dh]: the block's input norm and its query
            projection, no position encoding.
        keys: (block, states [M, d]) -> [Hkv, M, dh], likewise.
        norm: the final norm, [M, d] -> [M, d].
    """

    depth: int
    queries: Callable[[int, Tensor], Tensor]
    keys: Callable[[int, Tensor], Tensor]
    norm: Callable[[Tensor], Tensor]


class Parts(NamedTuple):
    """The optional parts of a scene, None where nobody asked for them.

    Attributes:
        embeddings: [N, d].
        text: the text tokens.
        tower: of the vision tower.
        current: view of the block behind the boundary.
        previous: view of the block before it.
        decoder: the decoder's maps.
        every_embedding: [N0, d] of all the prompt's visual tokens; None where none is gone.
    """

    embeddings: Tensor | None = None
    text: Text | None = None
    tower: Tower | None = None
    current: View | None = None
    previous: View | None = None
    decoder: Decoder | None = None
    every_embedding: Tensor | None = None


def _nobody_listens(part: str) -> None:
    """The lap of a scene that nobody times."""


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
        views: need ``views``: the current view first, then history in ascending block order (at
            most two blocks); empty when no method of the stage needs them.
        settings: the method's numbers.
        seed: of the sample, for random controls.
        potential_queries: prompt rows that could be read, before ``max_queries`` was applied; None
            where nobody counted them.
        parts: what the properties below give.
        companions: models that the user gave to ``compress``, by name.
        audited: whether somebody reads what a selector measures beside its choice.
        lap: told when a part of the work ends, for whoever keeps time.
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
    parts: Parts = field(default_factory=Parts)
    companions: Mapping[str, Any] = field(default_factory=dict)
    audited: bool = True
    lap: Callable[[str], None] = _nobody_listens

    @property
    def embeddings(self) -> Tensor:
        """x [N, d], need ``embeddings``: what entered the decoder for the tokens still present."""
        found: Tensor = self._part(EMBEDDINGS)
        return found

    @property
    def every_embedding(self) -> Tensor:
        """x [N0, d], need ``embeddings``: of all the prompt's visual tokens, present or not."""
        whole = self.parts.every_embedding
        return self.embeddings if whole is None else whole

    @property
    def text(self) -> Text:
        """Need ``text`` (or ``question``, when the string is wanted): the text tokens."""
        found: Text = self._part(TEXT)
        return found

    @property
    def question(self) -> str:
        """Need ``question``: the user's instruction as a string."""
        if self.text.question is None:
            raise MethodError(
                "a method reads the question as a string and this scene has only token ids; give "
                "compress(..., processor=processor), which can decode them."
            )
        return self.text.question

    @property
    def tower(self) -> Tower:
        """Need ``tower``: what the vision tower made of the tokens still present."""
        found: Tower = self._part(TOWER)
        return found

    @property
    def current(self) -> View:
        """Need ``current``: the block behind the boundary, by a dry run."""
        found: View = self._part(CURRENT)
        return found

    @property
    def previous(self) -> View:
        """Need ``previous``: block p - 1, as it ran; a stage at the decoder's input has none."""
        found: View = self._part(PREVIOUS)
        return found

    @property
    def decoder(self) -> Decoder:
        """Need ``decoder``: the decoder's own maps."""
        found: Decoder = self._part(DECODER)
        return found

    def _part(self, name: str) -> Any:
        part = getattr(self.parts, name)
        if part is None:
            raise MethodError(
                f"a method reads scene.{name}, which the scene at boundary {self.boundary} does "
                f"not hold; parts are filled on request. Declare needs = frozenset({{{name!r}}})."
            )
        return part


def _made(part: Tensor | Callable[[], Tensor] | None) -> Tensor:
    assert part is not None
    return part if isinstance(part, Tensor) else part()
