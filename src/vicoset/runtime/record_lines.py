"""Sealed lines: one JSON object a line, whose end says what every byte before it was.

A line is canonical JSON without the closing brace, then ``,"sha256":"<64 hex digits>"}`` and a
newline. The digest is of the bytes before it, so no other spelling of the same object passes.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from vicoset.errors import JournalError, UnreadableError

_OPEN, _CLOSE = b',"sha256":"', b'"}'
_TAIL = len(_OPEN) + 64 + len(_CLOSE)


def canonical(value: Any) -> bytes:
    """The one spelling of a JSON value: keys as given, no blanks, no NaN, ASCII."""
    return json.dumps(value, separators=(",", ":"), allow_nan=False).encode("ascii")


def seal(body: Mapping[str, Any]) -> bytes:
    """A line, with its newline.

    Args:
        body: a JSON object with at least one key.
    """
    front = canonical(dict(body))[:-1]
    return front + _OPEN + hashlib.sha256(front).hexdigest().encode() + _CLOSE + b"\n"


def sealed(line: bytes) -> bool:
    """Whether a line, without its newline, is exactly what :func:`seal` wrote."""
    front, tail = line[:-_TAIL], line[-_TAIL:]
    return tail == _OPEN + hashlib.sha256(front).hexdigest().encode() + _CLOSE


def read(line: bytes) -> dict[str, Any]:
    """The object of a line, sealed or not, without its digest.

    Args:
        line: without its newline.
    """
    try:
        found = json.loads(line.decode("utf-8"), parse_constant=_no_constant)
    except (ValueError, RecursionError) as error:
        raise UnreadableError(f"a line of {len(line)} bytes is no JSON object: {error}") from error
    if not isinstance(found, dict):
        raise UnreadableError(f"a line holds a {type(found).__name__}; allowed are JSON objects.")
    found.pop("sha256", None)
    return found


def append(path: str | os.PathLike[str], bodies: list[dict[str, Any]]) -> None:
    """Add lines to a file, in one write, so that a reader never sees half of one.

    Args:
        path: made when it is not there; its directory is.
        bodies: JSON objects, a line each.
    """
    data = b"".join(map(seal, bodies))
    with Path(path).open("ab", buffering=0) as file:
        file.write(data)


def check_place(path: str | os.PathLike[str]) -> None:
    """Raise while nothing is lost yet when no lines can be added to a file.

    Args:
        path: as for :func:`append`.
    """
    place = Path(path)
    why = None
    if place.is_dir():
        why = "is a directory"
    elif not place.parent.is_dir():
        why = f"lies in {place.parent}, which is no directory"
    elif not os.access(place if place.exists() else place.parent, os.W_OK):
        why = "may not be written"
    if why is not None:
        raise JournalError(
            f"records cannot be added to {place}: it {why}; allowed is a file in a directory that "
            "is there. Make the directory first, or name another file."
        )


def _no_constant(name: str) -> Any:
    raise ValueError(f"{name} is no number of JSON")
