"""One compaction of a batch: select and realise each row, then gather once."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor

from vicoset.errors import RuntimeStateError
from vicoset.methods.base import Realisation, Scene, Selection
from vicoset.methods.covering import Covering, Target
from vicoset.models.layout import Layout
from vicoset.plan import Keep, Stage
from vicoset.runtime.gather import Kept, gather_states, kept_positions
from vicoset.runtime.record import Realised, StageRecord
from vicoset.runtime.record_time import Laps


class Compaction(NamedTuple):
    """What one stage did to one row, for whoever watches.

    Attributes:
        row: of the batch.
        stage: boundary, selector and realiser.
        scene: what they saw; its tokens are those that the stage before left.
        selection: which of them stay.
        realisation: what those hold, and where the others went.
    """

    row: int
    stage: Stage
    scene: Scene
    selection: Selection
    realisation: Realisation


Watch = Callable[[Compaction], None]


@dataclass(frozen=True)
class Compacted:
    """A compaction, ready to be applied to any states of the same prompt.

    Attributes:
        boundary: p.
        kept: the gather, from the sequence before this stage.
        slots: per row [K] positions of the carriers in the compact sequence; None without image.
        carriers: per row [K, d] what they hold; None where the row's own states stay.
        layouts: per row the compact sequence's layout.
        stages: per row the record; None for a row without image.
    """

    boundary: int
    kept: Kept
    slots: tuple[Tensor | None, ...]
    carriers: tuple[Tensor | None, ...]
    layouts: tuple[Layout | None, ...]
    stages: tuple[StageRecord | None, ...]

    def apply(self, states: Tensor, grown: int = 0) -> Tensor:
        """[B, L + grown, d] -> [B, L' + grown, d], carriers in place.

        Args:
            states: the sequence before this stage, with ``grown`` positions behind the prompt.
            grown: generated positions (replayed prompts only).
        """
        compact = gather_states(states, extend(self.kept, states.shape[1] - grown, grown))
        for row, (slots, carriers) in enumerate(zip(self.slots, self.carriers, strict=True)):
            if slots is not None and carriers is not None:
                compact[row] = compact[row].index_copy(0, slots, carriers.to(compact.dtype))
        return compact

    def timed(self, laps: Laps) -> Compacted:
        """The same compaction, whose records say how long it and its parts took."""
        stages = [
            stage and dataclasses.replace(stage, seconds=laps.total, parts=laps.parts)
            for stage in self.stages
        ]
        return dataclasses.replace(self, stages=tuple(stages))

    def without(self, ahead: int) -> Compacted:
        """The same compaction of a sequence without its last ``ahead`` positions, all kept."""
        if not ahead:
            return self
        index, valid = self.kept.index, self.kept.valid
        kept = Kept(index[:, :-ahead], None if valid is None else valid[:, :-ahead])
        return dataclasses.replace(self, kept=kept)


def extend(kept: Kept, length: int, grown: int) -> Kept:
    """The same gather for a sequence that has grown behind its ``length`` prompt positions."""
    if not grown:
        return kept
    behind = torch.arange(length, length + grown, device=kept.index.device)
    index = torch.cat([kept.index, behind.expand(len(kept.index), -1)], 1)
    if kept.valid is None:
        return Kept(index, None)
    return Kept(index, torch.cat([kept.valid, kept.valid.new_ones(len(index), grown)], 1))


def compact(
    stage: Stage,
    keep: Keep,
    states: Tensor,
    attended: Tensor,
    layouts: Sequence[Layout | None],
    scene: Callable[[int, Layout], Scene],
    force: bool = False,
    watch: Watch | None = None,
    audit: str = "light",
    whole: Sequence[int] | None = None,
) -> Compacted | None:
    """Run one stage; None when no row has anything to compress.

    Args:
        stage: boundary, selector and realiser.
        keep: the budget, where the stage names none.
        states: [B, L, d] input of the boundary block.
        attended: [B, L] bool, False on padding.
        layouts: per row what is visual; None without image.
        scene: (row, its layout) -> what the stage's methods see of it.
        force: go through the whole path also where K = N.
        watch: is shown what was done to each row that was compressed.
        audit: "none", "light" or "full", how much evidence the records keep.
        whole: per row N of the prompt as it came; None where this is the first stage.
    """
    sizes = [0 if layout is None else len(layout.visual) for layout in layouts]
    budgets = [
        keep if layout is None else stage.budget(keep, tokens, layout.images)
        for layout, tokens in zip(layouts, whole or sizes, strict=True)
    ]
    chosen = [
        None
        if layout is None
        else _choose(stage, budgets[row], layout, functools.partial(scene, row, layout))
        for row, layout in enumerate(layouts)
    ]
    counts = [0 if choice is None else choice.count for choice in chosen]
    if counts == sizes and not force:
        return None
    rows = [
        _row(stage, str(asked), choice, states[row], attended[row], layouts[row], row, watch, audit)
        for row, (choice, asked) in enumerate(zip(chosen, budgets, strict=True))
    ]
    texts = attended.sum(1).tolist()
    kept = kept_positions(
        [row.stays for row in rows],
        [int(text) - size + count for text, size, count in zip(texts, sizes, counts, strict=True)],
    )
    slots: list[Tensor | None] = []
    moved: list[Layout | None] = []
    for number, (row, layout) in enumerate(zip(rows, layouts, strict=True)):
        before = row.stays.cumsum(0) - 1 + kept.length - int(texts[number]) + sizes[number]
        place = before - counts[number]
        if layout is None or row.selection is None:
            slots.append(None)
            moved.append(None)
            continue
        visual = layout.visual.to(states.device)[row.selection.indices]
        slots.append(place[visual])
        moved.append(_moved(layout, row.selection.indices.cpu(), place.cpu()))
    return Compacted(
        boundary=stage.boundary,
        kept=kept,
        slots=tuple(slots),
        carriers=tuple(row.carriers for row in rows),
        layouts=tuple(moved),
        stages=tuple(row.record for row in rows),
    )


@dataclass(frozen=True)
class _Choice:
    """How many tokens of a row stay, and which, when that had to be found out first."""

    count: int
    scene: Callable[[], Scene]
    selection: Selection | None = None


@dataclass(frozen=True)
class _Row:
    stays: Tensor
    selection: Selection | None
    carriers: Tensor | None
    record: StageRecord | None


def _choose(stage: Stage, budget: Keep, layout: Layout, scene: Callable[[], Scene]) -> _Choice:
    low, high = budget.limits(len(layout.visual), layout.images)
    if budget.coverage is None or low == high:
        return _Choice(high, scene)
    assert isinstance(stage.selector, Covering)  # the engine refuses others before anything runs
    with torch.no_grad():
        ready = scene()
        ready.lap("message")
        found = stage.selector.select_covering(ready, Target(budget.coverage, low, high))
        ready.lap("selection")
    return _Choice(len(found.indices), lambda: ready, found)


def _row(
    stage: Stage,
    requested: str,
    choice: _Choice | None,
    states: Tensor,
    attended: Tensor,
    layout: Layout | None,
    number: int,
    watch: Watch | None,
    audit: str,
) -> _Row:
    if layout is None or choice is None:
        return _Row(attended, None, None, None)
    device, count = states.device, choice.count
    visual = layout.visual.to(device)
    tokens = len(visual)
    carriers: Tensor | None
    realised = None
    if count == tokens:  # this row keeps everything, bit for bit
        everyone = torch.arange(tokens, device=device)
        evidence = {} if choice.selection is None else choice.selection.evidence
        selection, carriers = Selection(everyone, evidence, None), None
    else:
        with torch.no_grad():
            scene = choice.scene()
            scene.lap("message")
            selection = choice.selection or stage.selector.select(scene, count)
            _check(selection, count, tokens, layout, stage)
            scene.lap("selection")
            realised = stage.realiser.realise(scene, selection)
            scene.lap("transport")
        carriers = realised.states
        if watch is not None:
            watch(Compaction(number, stage, scene, selection, realised))
    stays = attended.clone()
    stays[visual] = False
    stays[visual[selection.indices]] = True
    record = StageRecord(
        boundary=stage.boundary,
        selector=stage.selector.name,
        realiser=stage.realiser.name,
        requested=requested,
        tokens=tokens,
        kept=count,
        indices=selection.indices,
        evidence=dict(selection.evidence),
        realised=None
        if realised is None or audit != "full"
        else Realised(realised.carrier, realised.mass, realised.gate),
    )
    return _Row(stays, selection, carriers, record)


def _check(selection: Selection, count: int, tokens: int, layout: Layout, stage: Stage) -> None:
    """What no method may break: exactly K, ascending and unique, a carrier for every image."""
    found = selection.indices.cpu()
    ascending = bool((found[1:] > found[:-1]).all()) and int(found[0]) >= 0
    images = len(set(layout.image_ids[found].tolist()))
    if len(found) != count or not ascending or int(found[-1]) >= tokens or images < layout.images:
        raise RuntimeStateError(
            f"selector {stage.selector.name!r} returned {len(found)} indices for K = {count} of "
            f"{tokens} tokens, ascending and unique: {ascending}, images with a carrier: {images} "
            f"of {layout.images}. A selector returns exactly K ascending indices, one per image."
        )


def _moved(layout: Layout, indices: Tensor, place: Tensor) -> Layout:
    """The layout of the compact sequence."""
    return Layout(
        visual=place[layout.visual[indices]],
        image_ids=layout.image_ids[indices],
        images=layout.images,
        coordinates=layout.coordinates[indices],
        text=place[layout.text],
    )
