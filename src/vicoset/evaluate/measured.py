"""What an entry keeps of a request's record: times, kept indices, evidence."""

from __future__ import annotations

from typing import Any

from torch import Tensor

from vicoset.runtime.record import Record

_SMALL = 64  # numbers of an evidence tensor that an entry keeps


def parts(record: Record, rows: int) -> dict[str, float]:
    """Seconds that the stages spent on what, a row's share.

    Args:
        record: of the row.
        rows: of its batch.
    """
    found: dict[str, float] = {}
    for stage in record.stages:
        for name, seconds in (stage.parts() if stage.parts is not None else {}).items():
            found[name] = found.get(name, 0.0) + seconds / rows
    return {name: round(seconds, 6) for name, seconds in found.items()}


def support(record: Record) -> tuple[tuple[int, ...], ...]:
    """The kept indices of every stage.

    Args:
        record: of the row.
    """
    return tuple(tuple(stage.indices.tolist()) for stage in record.stages)


def evidence(record: Record) -> dict[str, Any]:
    """Numbers, and short lists of numbers, of every stage.

    Args:
        record: of the row.
    """
    found: dict[str, Any] = {}
    for stage in record.stages:
        values = {name: _plain(value) for name, value in stage.evidence.items()}
        kept = {name: value for name, value in values.items() if value is not None}
        found[f"{stage.selector}@{stage.boundary}"] = kept
    return found


def _plain(value: Any) -> Any:
    if isinstance(value, Tensor):
        return value.tolist() if value.numel() <= _SMALL else None
    if isinstance(value, (list, tuple)):
        return [_plain(entry) for entry in value] if len(value) <= _SMALL else None
    return value if isinstance(value, (str, int, float, bool)) else None
