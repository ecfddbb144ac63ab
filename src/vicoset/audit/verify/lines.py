"""A line and a file of records: what is wrong with them, from the bytes alone."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from vicoset.audit.verify.counts import check_counts, check_plan
from vicoset.audit.verify.digests import check_digest, check_fields, settings_of
from vicoset.audit.verify.evidence import check_evidence
from vicoset.audit.verify.kinds import hold
from vicoset.audit.verify.places import check_places
from vicoset.audit.verify.problem import Findings, Problem
from vicoset.audit.verify.schema import RECORD, VERSION
from vicoset.errors import UnreadableError
from vicoset.runtime import record_lines

_REQUEST = ("plan", "keep", "settings", "model", "versions")


@dataclass(frozen=True)
class Verified:
    """A line of a file.

    Attributes:
        number: of the line, from 1 on.
        body: the record; None where the line holds none.
        problems: what disagrees; empty for a record that stands.
    """

    number: int
    body: Mapping[str, Any] | None
    problems: tuple[Problem, ...]

    @property
    def stands(self) -> bool:
        """Whether nothing disagrees."""
        return not self.problems

    def also(self, problems: Iterable[Problem]) -> Verified:
        """The same line with more problems.

        Args:
            problems: to add.
        """
        return replace(self, problems=(*self.problems, *problems))


def verify_file(path: str | os.PathLike[str]) -> Iterator[Verified]:
    """Every line of a file, verified from its bytes alone.

    Args:
        path: of the file.
    """
    data = Path(path).read_bytes()
    lines = data.split(b"\n")
    ended = lines.pop() == b""
    if not ended or not data:
        lines = data.split(b"\n") if data else [b""]
    for number, line in enumerate(lines, 1):
        found = verify_line(line, number)
        if not ended and number == len(lines):
            found = found.also([Problem("line", "the file ends inside it: no newline behind it")])
        yield found


def verify_line(line: bytes, number: int = 1) -> Verified:
    """One sealed line, without its newline.

    Args:
        line: its bytes.
        number: in its file.
    """
    found = Findings()
    sealed = record_lines.sealed(line)
    if not sealed:
        found.add("seal", "is not that of these bytes")
    try:
        body = record_lines.read(line)
    except UnreadableError as error:
        found.add("line", " ".join(ascii(str(error))[1:-1].split()))
        return Verified(number, None, tuple(found))
    if sealed and not _canonical(line, body):
        found.add("line", "is another spelling of its JSON than the one that records have")
    verify_body(body, found)
    return Verified(number, body, tuple(found))


def verify_body(body: Mapping[str, Any], found: Findings) -> None:
    """A record's own agreement with itself.

    Args:
        body: what a line holds, without its seal.
        found: is added to.
    """
    if body.get("schema") != VERSION or isinstance(body.get("schema"), bool):
        found.add("schema", f"{ascii(body.get('schema'))[:40]}; this version reads {VERSION}")
    check_fields(body, found)
    form = Findings()
    hold(body, RECORD, "", form)
    asked = [name for name in _REQUEST if name in body]
    if asked and len(asked) < len(_REQUEST):
        form.add("plan", f"lacks {', '.join(n for n in _REQUEST if n not in body)}")
    found.under("", form)
    if form:
        return
    settings = settings_of(body, found) if asked else None
    if settings is not None:
        check_digest(body, settings, found)
        check_plan(body, found)
    check_counts(body, found)
    check_places(body, found)
    check_evidence(body, settings, found)


def _canonical(line: bytes, body: Mapping[str, Any]) -> bool:
    try:
        return record_lines.seal(body)[:-1] == line
    except (ValueError, RecursionError):
        return False
