"""What a field of a record may hold: kinds, objects of fields, lists."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from vicoset.audit.verify.problem import Findings, shown

_HEX = re.compile("[0-9a-f]{16}")
MOST = 1 << 53  # whole numbers beyond are not exact everywhere


@dataclass(frozen=True)
class Kind:
    """A kind of value.

    Attributes:
        name: for people.
        fits: whether a value is one.
    """

    name: str
    fits: Callable[[Any], bool]


@dataclass(frozen=True)
class Many:
    """A list.

    Attributes:
        part: of every entry.
    """

    part: Kind | Many | Object


@dataclass(frozen=True)
class Field:
    """A field of an object.

    Attributes:
        kind: what it holds.
        what: one line about it.
        where: when it is there; empty for always.
    """

    kind: Kind | Many | Object
    what: str
    where: str = ""


@dataclass(frozen=True)
class Object:
    """An object with known fields.

    Attributes:
        name: for people.
        fields: by name, in order.
        open: whether further fields may stand there.
    """

    name: str
    fields: Mapping[str, Field]
    open: bool = False


def _whole(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and -MOST < value < MOST


def _number(value: Any) -> bool:
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        return False
    return _whole(value) if isinstance(value, int) else math.isfinite(value)


COUNT = Kind("count", lambda v: _whole(v) and v >= 0)
WHOLE = Kind("whole number", _whole)
NUMBER = Kind("number", _number)
MEASURED = Kind("number or null", lambda v: v is None or _number(v))
SHARE = Kind("number in [0, 1]", lambda v: _number(v) and 0 <= v <= 1)
TRUTH = Kind("true or false", lambda v: isinstance(v, bool))
TEXT = Kind("text", lambda v: isinstance(v, str))
HEX = Kind("16 hex digits", lambda v: isinstance(v, str) and _HEX.fullmatch(v) is not None)
NAMED = Kind("16 hex digits or empty", lambda v: v == "" or HEX.fits(v))
THINGS = Kind("object", lambda v: isinstance(v, dict))
MAYBE_THINGS = Kind("object or null", lambda v: v is None or isinstance(v, dict))


def title(kind: Kind | Many | Object) -> str:
    """A kind in the words of ``docs/records.md``."""
    if isinstance(kind, Many):
        return f"list of {title(kind.part)}"
    return kind.name


def hold(value: Any, kind: Kind | Many | Object, where: str, found: Findings) -> None:
    """Add a problem for everything that is not as it should be.

    Args:
        value: of the record.
        kind: that it should have.
        where: its place.
        found: is added to.
    """
    if isinstance(kind, Kind):
        if not kind.fits(value):
            found.add(where, f"{shown(value)} is no {kind.name}")
        return
    if isinstance(kind, Many):
        if not isinstance(value, list):
            found.add(where, f"{shown(value)} is no {title(kind)}")
            return
        for place, part in enumerate(value):
            hold(part, kind.part, f"{where}[{place}]", found)
        return
    if not isinstance(value, dict):
        found.add(where, f"{shown(value)} is no object")
        return
    for name in lacking(value, kind):
        found.add(_below(where, name), "missing")
    for name, part in value.items():
        field = kind.fields.get(name)
        if field is not None:
            hold(part, field.kind, _below(where, name), found)
        elif not kind.open:
            found.add(_below(where, shown(name)[1:-1]), "a field that schema 1 does not have")


def lacking(value: Mapping[str, Any], kind: Object) -> Iterator[str]:
    """Fields that are always there, and are not.

    Args:
        value: an object.
        kind: of it.
    """
    return (name for name, field in kind.fields.items() if not field.where and name not in value)


def _below(where: str, name: str) -> str:
    return f"{where}.{name}" if where else name
