"""What is known about one answer: a line of a run's journal, and all that tables are made of."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass, field
from sys import intern
from typing import TYPE_CHECKING, Any

from vicoset.errors import UnreadableError

if TYPE_CHECKING:
    from vicoset.evaluate.sample import Sample

FULL = "full"  # the name of the method, and of the budget, that keeps everything


@dataclass(frozen=True)
class Entry:
    """One answered item.

    Attributes:
        task: name of the task.
        sample_id: the data's own id, unique within the task.
        unit_id: what is resampled together: an image, a pair, a set, a base question.
        stratum: within which units are resampled, such as a category; empty for none.
        groups: conjunctions that the item is part of, kind to id, as in ``Sample.groups``.
        stats: sufficient statistics, which add up over samples; name to value.
        score: the sample's own score, for people and for flips; tables are made of ``stats``.
        raw: the answer as the model gave it.
        normalised: the answer as it was scored.
        index: the item's place in the task, from 0 on.
        requested: the budget as asked for, such as "128" or "10%"; "full" for Full.
        tokens: N, visual tokens of the prompt.
        images: I.
        boundaries: p of every stage; empty for Full.
        kept_by_stage: realised K of every stage.
        length: prompt positions before compaction.
        compact_length: prompt positions behind the last boundary.
        depth: L, blocks of the decoder.
        work: W, visual token-layer work.
        kv_bytes: bytes of the prompt's keys and values.
        full_kv_bytes: bytes they would take uncompressed.
        new_tokens: tokens of the answer.
        seconds: of the request ("request"), of its prompt and of the steps after it ("prompt",
            "decode"), of making its inputs ("prepare") and of what the compaction did in the prompt
            ("message", "selection", "transport", "compaction"); a row's share of its batch.
        peak_bytes: most memory during the request, the model's included; 0 where nobody looked.
        process: that answered; times of two processes do not compare.
        support: kept indices of every stage, in source order; None when not asked for.
        evidence: numbers that the method measured, with bank evidence; None when not asked for.
        notes: what a reader should know.
    """

    task: str
    sample_id: str
    unit_id: str
    stratum: str
    stats: Mapping[str, float]
    score: float
    raw: str = ""
    normalised: str = ""
    groups: Mapping[str, str] = field(default_factory=dict)
    index: int = 0
    requested: str = FULL
    tokens: int = 0
    images: int = 0
    boundaries: tuple[int, ...] = ()
    kept_by_stage: tuple[int, ...] = ()
    length: int = 0
    compact_length: int = 0
    depth: int = 0
    work: int = 0
    kv_bytes: int = 0
    full_kv_bytes: int = 0
    new_tokens: int = 0
    seconds: Mapping[str, float] = field(default_factory=dict)
    peak_bytes: int = 0
    process: str = ""
    support: tuple[tuple[int, ...], ...] | None = None
    evidence: Mapping[str, Any] | None = None
    notes: tuple[str, ...] = ()

    @property
    def kept(self) -> int:
        """Realised K behind the last boundary; N for Full."""
        return self.kept_by_stage[-1] if self.kept_by_stage else self.tokens

    @property
    def layer_average(self) -> float:
        """W / L, the visual tokens of an average block."""
        return self.work / self.depth if self.depth else 0.0

    @property
    def work_share(self) -> float:
        """W / (L N); 1 for a prompt without an image."""
        full = self.depth * self.tokens
        return self.work / full if full else 1.0

    @property
    def sample(self) -> Sample:
        """What the statistics see of it."""
        from vicoset.evaluate.sample import Cost, Sample

        cost = Cost(
            tokens=self.tokens,
            kept=self.kept,
            layer_average=self.layer_average,
            work=self.work_share,
            kv_bytes=self.kv_bytes,
            full_kv_bytes=self.full_kv_bytes,
            seconds={intern(name): value for name, value in self.seconds.items()},
            peak_bytes=self.peak_bytes,
            process=intern(self.process),
        )
        # A table holds millions of samples, in which the same few texts come again and again.
        return Sample(
            task=intern(self.task),
            sample_id=intern(self.sample_id),
            unit_id=intern(self.unit_id),
            stratum=intern(self.stratum),
            stats={intern(name): value for name, value in self.stats.items()},
            score=self.score,
            groups=self.groups,
            cost=cost if self.depth else None,
        )

    def to_json(self) -> dict[str, Any]:
        """A JSON object; :meth:`from_json` gives the entry back."""
        return {name: value for name, value in vars(self).items() if value is not None}

    @classmethod
    def from_json(cls, found: Mapping[str, Any]) -> Entry:
        """The entry of a JSON object.

        Args:
            found: what :meth:`to_json` made, perhaps read back from a file.
        """
        known = {f.name: f for f in dataclasses.fields(cls)}
        needed = {f.name for f in known.values() if _has_no_default(f)}
        if found.keys() - known.keys() or needed - found.keys():
            odd = sorted(found.keys() - known.keys()), sorted(needed - found.keys())
            raise UnreadableError(
                f"an entry has the unknown fields {odd[0]} and lacks {odd[1]}; allowed are "
                f"{', '.join(known)}. Read it with the version that wrote it."
            )
        values = {name: _tupled(value) for name, value in found.items()}
        return cls(**values)


@dataclass(frozen=True)
class Failure:
    """An item that raised instead of being answered; a rerun tries it again.

    Attributes:
        task: name of the task.
        sample_id: the data's own id.
        index: the item's place in the task.
        error: class and message of what was raised.
        trace: where, for the person who looks into it.
    """

    task: str
    sample_id: str
    index: int
    error: str
    trace: str = ""


def _has_no_default(found: dataclasses.Field[Any]) -> bool:
    missing = dataclasses.MISSING
    return found.default is missing and found.default_factory is missing


def _tupled(value: Any) -> Any:
    """Lists as the tuples they were before JSON; what is inside objects stays as it is."""
    return tuple(_tupled(entry) for entry in value) if isinstance(value, list) else value
