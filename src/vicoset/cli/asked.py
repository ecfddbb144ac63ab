"""Answers side by side, as text."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

from vicoset.cli.text import columns
from vicoset.runtime.record import as_bytes

if TYPE_CHECKING:
    from vicoset.ask import Asked

_LONGEST = 24  # signs of an answer that a table shows


def table(rows: Sequence[Asked]) -> Iterator[str]:
    """A line per answer: method, K, answer, evidence, coverage, work, prompt KV, seconds.

    Args:
        rows: answers to one question; what none of them has, has no column.
    """
    made: list[tuple[str, str, list[str]]] = [
        ("method", "l", [one.method.asked for one in rows]),
        ("K", "r", [str(one.record.kept) for one in rows]),
        ("answer", "l", [_short(one.text) for one in rows]),
        ("right", "l", [{True: "yes", False: "no", None: ""}[one.correct] for one in rows]),
        ("evidence", "l", [_evidence(one) for one in rows]),
        ("coverage", "r", ["" if one.coverage is None else f"{one.coverage:.3f}" for one in rows]),
        ("work", "r", [f"{one.record.work_share:.1%}" for one in rows]),
        ("prompt KV", "r", [_held(one.record.kv_bytes) for one in rows]),
        ("seconds", "r", [f"{one.seconds:.2f}" for one in rows]),
    ]
    used = [column for column in made if any(column[2])]
    head = [name for name, _, _ in used]
    cells = list(zip(*(values for _, _, values in used), strict=True))
    yield from columns(head, cells, "".join(side for _, side, _ in used))


def to_json(asked: Asked) -> dict[str, Any]:
    """An answer as JSON values.

    Args:
        asked: to tell.
    """
    record = asked.record
    found: dict[str, Any] = {
        "method": asked.method.label,
        "answer": asked.text,
        "correct": asked.correct,
        "tokens": record.tokens,
        "kept": record.kept,
        "boundaries": [stage.boundary for stage in record.stages],
        "work_share": record.work_share,
        "kv_bytes": record.kv_bytes,
        "full_kv_bytes": record.full_kv_bytes,
        "coverage": asked.coverage,
        "certificate": record.stages[-1].number("certificate") if record.stages else None,
        "evidence": list(asked.evidence),
        "new_tokens": asked.answer.tokens,
        "seconds": asked.answer.seconds,
        "notes": list(record.notes),
    }
    return {name: value for name, value in found.items() if value not in (None, [])}


def _evidence(asked: Asked) -> str:
    return f"{sum(asked.evidence)} of {len(asked.evidence)}" if asked.evidence else ""


def _held(count: int) -> str:
    return as_bytes(count) if count else ""


def _short(text: str) -> str:
    line = " ".join(text.split())
    return line if len(line) <= _LONGEST else f"{line[: _LONGEST - 3]}..."
