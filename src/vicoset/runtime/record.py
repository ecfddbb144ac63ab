"""One request's evidence."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from torch import Tensor

from vicoset.core.settings import Settings
from vicoset.plan import Plan
from vicoset.runtime.record_images import ImageRecord
from vicoset.runtime.record_json import Request, to_json


@dataclass(frozen=True)
class Realised:
    """Where the tokens of one row went at one stage.

    Attributes:
        carrier: pi [N], position among the kept; -1 for a deleted token.
        mass: m [N].
        gate: s_x, scalar.
    """

    carrier: Tensor
    mass: Tensor
    gate: Tensor


@dataclass(frozen=True)
class CacheRecord:
    """What the prompt takes in the cache.

    Attributes:
        kind: "dynamic" or "static".
        rows: of the batch; bytes are a row's share.
        length: positions of the batch's longest row, before compaction.
        compact: the same behind every stage.
        entries: of each block.
        entry_bytes: of one entry of one row, of each block.
    """

    kind: str
    rows: int
    length: int
    compact: tuple[int, ...]
    entries: tuple[int, ...]
    entry_bytes: tuple[int, ...]


@dataclass(frozen=True)
class StageRecord:
    """What one compaction of one row did.

    Attributes:
        boundary: p; compact before this block.
        selector: name of the selector.
        realiser: name of the realiser.
        requested: the budget as asked for.
        tokens: visual tokens before the stage.
        kept: realised K.
        indices: [K] kept tokens, as indices of the prompt's visual tokens in source order.
        evidence: what the selector and the realiser measured; tensors are read when asked for.
        image_ids: [K] image of each kept token.
        places: [K] sequence position of each kept token, padding not counted.
        positions: [axes, K] multimodal position of each kept token.
        realised: where every token went; None unless the run audits in full.
        seconds: gives the time that the stage took; None where nobody looked at the clock.
        parts: gives the times of its parts: "message" (reading the block and its messages),
            "selection", "transport" (realising) and "compaction" (gathering), of all rows of the
            batch.
    """

    boundary: int
    selector: str
    realiser: str
    requested: str
    tokens: int
    kept: int
    indices: Tensor
    evidence: dict[str, Any] = field(default_factory=dict)
    image_ids: Tensor | None = None
    places: Tensor | None = None
    positions: Tensor | None = None
    realised: Realised | None = None
    seconds: Callable[[], float] | None = None
    parts: Callable[[], Mapping[str, float]] | None = None

    def number(self, name: str) -> float | None:
        """A number of the evidence, None when this method does not measure it."""
        value = self.evidence.get(name)
        return None if value is None else float(value)

    @property
    def missed(self) -> str | None:
        """What to say when a budget by coverage ended at its largest K; else None."""
        if self.evidence.get("reached", True):
            return None
        return (
            f"{self.requested} asks for F(S)/F(V) >= {self.evidence['target']:g}, and its largest "
            f"K = {self.kept} of {self.tokens} reaches {self.number('ratio'):.3f}"
        )


@dataclass(frozen=True)
class Record:
    """One row of one prompt.

    Attributes:
        plan: name of the plan.
        digest: of the plan and its settings.
        prefix: execution mode.
        tokens: N, visual tokens of the row; 0 for a row without an image.
        images: I.
        length: prompt positions before compaction, padding not counted.
        compact_length: prompt positions behind the last boundary.
        depth: blocks of the decoder.
        stages: the compactions, in order; empty when nothing was compressed.
        kv_bytes: bytes the prompt's keys and values take in the cache of this row.
        full_kv_bytes: bytes they would take uncompressed.
        attention: attention kernel.
        dtype: of the states.
        notes: what a reader should know (rescaled presets, raised budgets).
        positions: "original", or "packed" where kept tokens were numbered anew.
        device: that computed it.
        pictures: the images, in order.
        cache: what the prompt takes in it; None without one.
        request: what was asked for.
        prompt: 16 hex digits of the row's token ids, padding not counted.
    """

    plan: str
    digest: str
    prefix: str
    tokens: int
    images: int
    length: int
    compact_length: int
    depth: int
    stages: tuple[StageRecord, ...]
    kv_bytes: int
    full_kv_bytes: int
    attention: str
    dtype: str
    notes: tuple[str, ...] = ()
    positions: str = "original"
    device: str = ""
    pictures: tuple[ImageRecord, ...] = ()
    cache: CacheRecord | None = None
    request: Request | None = None
    prompt: str = ""

    def to_json(self, about: Mapping[str, Any] | None = None) -> dict[str, Any]:
        """The record as ``docs/records.md`` describes it; ``about`` is added as it is."""
        return to_json(self, about)

    @property
    def kept(self) -> int:
        """K behind the last boundary."""
        return self.stages[-1].kept if self.stages else self.tokens

    @property
    def work(self) -> int:
        """W, visual token-layer work."""
        total, before, tokens = 0, 0, self.tokens
        for stage in self.stages:
            total += (stage.boundary - before) * tokens
            before, tokens = stage.boundary, stage.kept
        return total + (self.depth - before) * tokens

    @property
    def work_share(self) -> float:
        """W / (L N); 1 for a row without an image."""
        full = self.depth * self.tokens
        return self.work / full if full else 1.0

    def __str__(self) -> str:
        """One line: tokens, work, prompt-KV bytes, coverage, certificate."""
        if not self.tokens:
            return f"{self.plan}: no image, nothing to compress"
        text = f"{self.plan}: visual {self.tokens} -> {self.kept}"
        text += f" ({self.kept / self.tokens:.1%} kept), work {self.work_share:.1%}"
        if self.full_kv_bytes:
            text += f", prompt KV {as_bytes(self.full_kv_bytes)} -> {as_bytes(self.kv_bytes)}"
        if not self.stages:
            return text + ", identity"
        last = self.stages[-1]
        for name, label in (("ratio", "coverage"), ("certificate", "certificate")):
            value = last.number(name)
            if value is not None:
                text += f", {label} {value:.3f}"
        return "; ".join([text, *self.notes])


class Records(tuple[Record, ...]):
    """The records of one batched prompt, a line each."""

    def __str__(self) -> str:
        """One line per row."""
        return "\n".join(str(record) for record in self)


def digest_of(plan: Plan, settings: Settings) -> str:
    """16 hex digits that change with the plan or a number of the method."""
    return hashlib.sha256(f"{plan.digest()} {settings!r}".encode()).hexdigest()[:16]


def one_or_all(records: Sequence[Record]) -> Record | Records:
    """The record of a single prompt, or all those of a batch."""
    return records[0] if len(records) == 1 else Records(records)


def in_source_order(
    found: Sequence[StageRecord | None], image_ids: Tensor, places: Tensor, positions: Tensor
) -> tuple[StageRecord, ...]:
    """A row's stages, each with indices among the prompt's tokens, not the stage before's.

    Args:
        found: the stages as they came.
        image_ids: [N] of the prompt's visual tokens.
        places: [N] as in ``StageRecord``.
        positions: [axes, N].
    """
    stages: list[StageRecord] = []
    for stage in found:
        if stage is None:
            continue
        kept = stages[-1].indices[stage.indices] if stages else stage.indices
        own = positions[:, kept.to(positions.device)]
        here = kept.to(image_ids.device)
        stages.append(
            replace(
                stage, indices=kept, image_ids=image_ids[here], places=places[here], positions=own
            )
        )
    return tuple(stages)


def as_bytes(count: int) -> str:
    """A number of bytes as people read it.

    Args:
        count: of bytes.
    """
    value = float(count)
    for unit in ("B", "KiB", "MiB"):
        if value < 1024:
            return f"{value:.0f} {unit}" if unit == "B" else f"{value:.1f} {unit}"
        value /= 1024
    return f"{value:.2f} GiB"
