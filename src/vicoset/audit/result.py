"""The result of an audit: what was measured, whether every statement held, text and JSON of it."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from vicoset.audit.checks import Check
from vicoset.audit.coverage import Coverage
from vicoset.audit.decisions import Decision
from vicoset.audit.messages import Messages
from vicoset.audit.states import Distortion
from vicoset.runtime.record import Record

SCHEMA = 1


@dataclass(frozen=True)
class Audit:
    """One request.

    Attributes:
        plan: name of the plan.
        digest: of the plan and its settings.
        keep: the budget as asked for.
        record: of the compressed prompt.
        coverage: of every stage that compressed.
        seconds: of each run and of the arithmetic.
        states: of every stage; empty in a light audit, as is all that follows.
        messages: of every block that was looked at.
        decisions: of every position of Full's answer.
        full_tokens: Full's answer.
        compact_tokens: the compact run's own.
        full_answer: as text, where a tokenizer was known.
        compact_answer: as text.
    """

    plan: str
    digest: str
    keep: str
    record: Record
    coverage: tuple[Coverage, ...]
    seconds: Mapping[str, float] = field(default_factory=dict)
    states: tuple[Distortion, ...] = ()
    messages: tuple[Messages, ...] = ()
    decisions: tuple[Decision, ...] = ()
    full_tokens: tuple[int, ...] = ()
    compact_tokens: tuple[int, ...] = ()
    full_answer: str | None = None
    compact_answer: str | None = None

    @property
    def checks(self) -> dict[str, tuple[Check, ...]]:
        """All statements, by the part they belong to."""
        named = [(f"stage at {c.boundary}: coverage", c.checks) for c in self.coverage]
        named += [(f"stage at {d.boundary}: states", d.checks) for d in self.states]
        named += [(f"block {m.block}: messages", m.checks) for m in self.messages]
        named += [(f"position {d.position}: decision", d.checks) for d in self.decisions]
        return dict(named)

    @property
    def violations(self) -> tuple[str, ...]:
        """The statements that did not hold; they are theorems, so there should be none."""
        return tuple(
            f"{part}: {one.name} ({one.left:.6g} against {one.right:.6g})"
            for part, checks in self.checks.items()
            for one in checks
            if not one.holds
        )

    @property
    def changed(self) -> bool:
        """Whether the compact run's own answer is another one than Full's."""
        return self.full_tokens != self.compact_tokens

    def to_json(self) -> dict[str, Any]:
        """JSON values; a number that is infinite becomes null."""
        parts = ("coverage", "states", "messages", "decisions")
        found: dict[str, Any] = {"schema": SCHEMA, "plan": self.plan, "digest": self.digest}
        found |= {"keep": self.keep, "tokens": self.record.tokens, "kept": self.record.kept}
        found |= {name: [_plain(one) for one in getattr(self, name)] for name in parts}
        found |= {
            "full": {"tokens": list(self.full_tokens), "text": self.full_answer},
            "compact": {"tokens": list(self.compact_tokens), "text": self.compact_answer},
            "violations": list(self.violations),
            "seconds": dict(self.seconds),
            "record": self.record.to_json(),
        }
        return found

    def __str__(self) -> str:
        """Some lines for a terminal."""
        from vicoset.audit.text import told

        return told(self)


def _plain(value: Any) -> Any:
    """Dataclasses and named tuples as objects, tuples as lists, infinities as None."""
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {f.name: _plain(getattr(value, f.name)) for f in dataclasses.fields(value)}
    if isinstance(value, tuple) and hasattr(value, "_asdict"):
        return {name: _plain(own) for name, own in value._asdict().items()}
    if isinstance(value, (tuple, list)):
        return [_plain(own) for own in value]
    if isinstance(value, float) and not math.isfinite(value):
        return None
    return value
