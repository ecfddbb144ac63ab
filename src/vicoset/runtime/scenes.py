"""Filling the scene of one row at one boundary, with what the stage's methods asked for."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from vicoset.core import messages
from vicoset.core.settings import Settings
from vicoset.errors import UnsupportedError
from vicoset.methods.base import (
    CURRENT,
    DECODER,
    EMBEDDINGS,
    PREVIOUS,
    QUESTION,
    TEXT,
    TOWER,
    VIEWS,
    Decoder,
    Parts,
    Scene,
    Text,
    View,
)
from vicoset.models import question
from vicoset.models.layout import Layout
from vicoset.plan import Plan, Stage
from vicoset.runtime import tower
from vicoset.runtime.record import StageRecord
from vicoset.runtime.tap import Seen
from vicoset.runtime.views import view_of


class Block(NamedTuple):
    """A block's attention module and what it was called with."""

    number: int
    attention: nn.Module
    seen: Seen


class Reads(NamedTuple):
    """The blocks that a stage reads; the boundary block is missing when nobody reads it."""

    current: Block | None = None
    history: tuple[Block, ...] = ()


@dataclass(frozen=True)
class Origin:
    """The prompt as it entered the decoder, for methods that look back at it.

    Attributes:
        ids: [B, L].
        layouts: per row the layout before any compaction.
        embeddings: [B, L, d]; None when nobody asked.
        tower: of the vision tower; None when nobody asked.
        decoder: the decoder's maps; None when nobody asked.
        ends: ids that end a turn of the chat.
        tokenizer: of the processor that the user gave.
        table: of the embeddings of token ids.
        companions: models that the user gave.
    """

    ids: Tensor
    layouts: Sequence[Layout | None]
    embeddings: Tensor | None = None
    tower: tower.Batch | None = None
    decoder: Decoder | None = None
    ends: frozenset[int] = frozenset()
    tokenizer: Any = None
    table: Any = None
    companions: Mapping[str, Any] = field(default_factory=dict)


def needs_of(stage: Stage) -> frozenset[str]:
    """What the two methods of a stage read."""
    found: frozenset[str] = stage.selector.needs | stage.realiser.needs
    return found


def needs_of_plan(plan: Plan) -> frozenset[str]:
    """What any stage of a plan reads."""
    return frozenset().union(*(needs_of(stage) for stage in plan.stages))


def history_blocks(plan: Plan, boundary: int) -> list[int]:
    """The blocks before a boundary that its stage reads, on the sequence that the stage compacts.

    Args:
        plan: the plan.
        boundary: of one of its stages.
    """
    stage = next(stage for stage in plan.stages if stage.boundary == boundary)
    before = max([other for other in plan.boundaries if other < boundary], default=0)
    reads = needs_of(stage)
    back = 2 if VIEWS in reads else 1 if PREVIOUS in reads else 0
    return list(range(max(boundary - back, before, 0), boundary))


def scene_of(
    stage: Stage,
    states: Tensor,
    attended: Tensor,
    layout: Layout,
    row: int,
    sample: int,
    reads: Reads,
    settings: Settings,
    origin: Origin,
    ranks: Tensor,
) -> Scene:
    """The scene of a row.

    Args:
        stage: whose methods read it.
        states: [L', d] input of the boundary block.
        attended: [L'] bool, False on padding.
        layout: of the sequence as it is now.
        row: of the batch.
        sample: its number, for seeds.
        reads: captured blocks.
        settings: the method's numbers.
        origin: the prompt as it came.
        ranks: [N] which of the prompt's visual tokens are still present, on the CPU.
    """
    device = states.device
    visual = layout.visual.to(device)
    read = messages.query_positions(layout.text, layout.visual, settings.max_queries)
    queries = read.positions.to(device)
    needs = needs_of(stage)

    def view(block: Block) -> View:
        return view_of(*block, row, attended, visual, queries)

    current = None if reads.current is None else view(reads.current)
    history = [view(block) for block in reads.history]
    first = origin.layouts[row]
    assert first is not None
    parts = Parts(
        embeddings=_embeddings(origin, row, first.visual[ranks], device)
        if EMBEDDINGS in needs
        else None,
        text=_text(origin, row, first, layout, states) if needs & {TEXT, QUESTION} else None,
        tower=origin.tower.tower(row, first, ranks, device)
        if TOWER in needs and origin.tower is not None
        else None,
        current=current if CURRENT in needs else None,
        previous=history[-1] if PREVIOUS in needs else None,
        decoder=origin.decoder if DECODER in needs else None,
        every_embedding=_embeddings(origin, row, first.visual, device)
        if EMBEDDINGS in needs and len(ranks) < len(first.visual)
        else None,
    )
    seen = () if current is None or VIEWS not in needs else (current, *history)
    return Scene(
        states=states.index_select(0, visual).detach(),
        coordinates=layout.coordinates.to(device),
        image_ids=layout.image_ids.to(device),
        images=layout.images,
        visual=visual,
        queries=queries,
        boundary=stage.boundary,
        views=seen,
        settings=settings,
        seed=sample,
        potential_queries=read.potential,
        parts=parts,
        companions=origin.companions,
    )


def _embeddings(origin: Origin, row: int, positions: Tensor, device: torch.device) -> Tensor:
    assert origin.embeddings is not None
    own = origin.embeddings[row]
    return own.index_select(0, positions.to(own.device)).detach().to(device)


def _text(origin: Origin, row: int, first: Layout, now: Layout, states: Tensor) -> Text:
    """The text tokens of a row; text is never dropped, so both layouts list the same tokens."""
    device = states.device
    ids = origin.ids[row].index_select(0, first.text.to(origin.ids.device)).cpu()
    marked = question.question_mask(ids, first.text, first.visual, origin.ends, origin.tokenizer)
    asked = embed = None
    if origin.tokenizer is not None:
        asked = question.decoded(ids[marked], origin.tokenizer)
        embed = partial(question.embedded, tokenizer=origin.tokenizer, table=origin.table)
    positions = now.text.to(device)
    return Text(
        ids=ids.to(device),
        embeddings=_embeddings(origin, row, first.text, device),
        positions=positions,
        question_mask=marked.to(device),
        question=asked,
        states=states.index_select(0, positions).detach(),
        embed=embed,
    )


def decoder_maps(decoder: Any) -> Decoder:
    """The decoder's own maps, or an error that says which of its parts nobody has mapped."""
    names = ("input_layernorm", "self_attn")
    block = decoder.layers[0]
    attention = getattr(block, "self_attn", None)
    missing = [name for name in names if not hasattr(block, name)]
    missing += [name for name in ("q_proj", "k_proj") if not hasattr(attention, name)]
    missing += [] if hasattr(decoder, "norm") else ["norm"]
    if missing:
        raise UnsupportedError(
            f"{type(block).__name__} has no {', '.join(missing)}, so a method that projects states "
            "by the decoder's own maps cannot run on it; allowed are decoders with separate query "
            "and key projections. Choose a method that reads views instead."
        )

    def projected(name: str, number: int, states: Tensor) -> Tensor:
        layer = decoder.layers[number]
        module = layer.self_attn
        flat = getattr(module, f"{name}_proj")(layer.input_layernorm(states))
        heads = flat.unflatten(-1, (-1, module.head_dim))
        norm = getattr(module, f"{name}_norm", None)
        found: Tensor = (heads if norm is None else norm(heads)).transpose(0, 1)
        return found

    queries, keys = partial(projected, "q"), partial(projected, "k")
    return Decoder(len(decoder.layers), queries, keys, decoder.norm)


def ranks_of(
    layouts: Sequence[Layout | None], done: Sequence[Sequence[StageRecord | None]]
) -> list[Tensor | None]:
    """Per row [N] which of the prompt's visual tokens are present after some compactions.

    Args:
        layouts: per row the prompt's layout.
        done: per compaction and row what it kept, of the tokens before it.
    """
    found: list[Tensor | None] = [
        None if one is None else torch.arange(len(one.visual)) for one in layouts
    ]
    for stage in done:
        found = [
            ranks if ranks is None or record is None else ranks[record.indices.cpu()]
            for ranks, record in zip(found, stage, strict=True)
        ]
    return found
