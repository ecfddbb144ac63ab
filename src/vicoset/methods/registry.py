"""Names of methods: a new one is one file and one registration."""

from __future__ import annotations

import dataclasses
import difflib
import json
import re
from collections.abc import Iterable
from typing import Any, NamedTuple, TypeVar

from vicoset.errors import MethodError, SettingError, UnknownNameError
from vicoset.methods.base import KNOWN_NEEDS, Realiser, Selector

S = TypeVar("S", bound=Selector)
R = TypeVar("R", bound=Realiser)

NAME = re.compile(r"[a-z][a-z0-9_-]*")
_WRITTEN = re.compile(r"([^\[\]]*)\[([^\[\]]+)\]")
_SELECTORS: dict[str, type[Any]] = {}
_REALISERS: dict[str, type[Any]] = {}


class Names(NamedTuple):
    """What is registered, in alphabetical order."""

    selectors: tuple[str, ...]
    realisers: tuple[str, ...]


def register_selector(method: type[S]) -> type[S]:
    """Class decorator: the selector can be named in plans; it is made without arguments."""
    _check(method, "selector", "select")
    if not isinstance(getattr(method, "query_aware", None), bool):
        raise MethodError(
            f"selector {method.name!r} does not say whether it is query-aware; "
            "set query_aware = True or False on the class."
        )
    _enter(_SELECTORS, method, "selector")
    return method


def register_realiser(method: type[R]) -> type[R]:
    """Class decorator: the realiser can be named in plans; it is made without arguments."""
    _check(method, "realiser", "realise")
    _enter(_REALISERS, method, "realiser")
    return method


def selector(name: str) -> Selector:
    """A selector by name, with its default numbers or those written behind it.

    Args:
        name: such as ``gmc``, ``gmc[-history,-spatial]`` or ``gmc[probe_rank=8]``: ``-field`` turns
            a switch off, ``field=value`` sets a number.
    """
    made: Selector = _made(_SELECTORS, name, "selector")
    return made


def realiser(name: str) -> Realiser:
    """A realiser by name, as :func:`selector` reads it."""
    made: Realiser = _made(_REALISERS, name, "realiser")
    return made


def names() -> Names:
    """All registered names."""
    return Names(tuple(sorted(_SELECTORS)), tuple(sorted(_REALISERS)))


def unknown(kind: str, got: str, known: Iterable[str], told: str = "") -> UnknownNameError:
    """The error for a name that nobody knows, with the nearest known one and the list.

    Args:
        kind: of thing.
        got: the name.
        known: all names.
        told: instead of the list, where it is too long to read.
    """
    listed = sorted(known)
    near = difflib.get_close_matches(got.lower(), listed, n=1, cutoff=0.5)
    fix = f" Did you mean {near[0]!r}?" if near else ""
    return UnknownNameError(f"{got!r} is no {kind}; allowed are {told or ', '.join(listed)}.{fix}")


def _made(table: dict[str, type[Any]], text: str, kind: str) -> Any:
    written = _WRITTEN.fullmatch(text)
    if written is None:
        return _find(table, text, kind)()
    method = _find(table, written[1], kind)
    found: dict[str, Any] = {}
    for part in written[2].split(","):
        field, value = _number(method, part.strip(), kind)
        if field in found:
            raise SettingError(f"{text!r} sets {field} twice; allowed is once.")
        found[field] = value
    return method(**found)


def _number(method: type[Any], text: str, kind: str) -> tuple[str, Any]:
    """A field of a method and its value, as written between brackets."""
    known = {f.name: f.default for f in dataclasses.fields(method)}
    switch = text.startswith("-")
    name, equals, value = text.removeprefix("-").partition("=")
    if name not in known:
        if not known:
            raise SettingError(f"{kind} {method.name!r} has no numbers; write it without {text!r}.")
        raise unknown(f"number of {kind} {method.name!r}", name, known)
    default = known[name]
    if switch and default is True and not equals:
        return name, False
    try:
        read = json.loads(value, parse_constant=str) if equals and not switch else None
    except ValueError:
        read = value
    # A float may be written as a whole number; where None stands for "as set elsewhere", the
    # method itself says what it takes.
    fits = type(read) is type(default) or (isinstance(default, float) and type(read) is int)
    if read is None or not (fits or default is None) or isinstance(read, dict | list):
        example = f"-{name}" if default is True else f"{name}={json.dumps(default or 1)}"
        raise SettingError(
            f"{text!r} in a name of {kind} {method.name!r}; allowed are switches such as "
            f"-field and numbers such as field=value. Write {method.name}[{example}]."
        )
    return name, float(read) if isinstance(default, float) else read


def _find(table: dict[str, type[Any]], name: str, kind: str) -> type[Any]:
    if name not in table:
        raise unknown(kind, name, table)
    return table[name]


def _check(method: type[Any], kind: str, verb: str) -> None:
    """Refuse a class that a plan could not name or the runtime could not serve."""
    name = getattr(method, "name", None)
    if not isinstance(name, str) or not NAME.fullmatch(name):
        raise MethodError(
            f"{method.__name__}.name is {name!r}; allowed are lower-case letters, digits, - and _, "
            'a letter first. Set name = "..." on the class.'
        )
    needs = getattr(method, "needs", None)
    if not isinstance(needs, frozenset) or not needs <= KNOWN_NEEDS:
        raise MethodError(
            f"{kind} {name!r} needs {needs!r}; allowed are frozensets of "
            f"{', '.join(sorted(KNOWN_NEEDS))}. Set needs = frozenset() when it needs none of them."
        )
    if not callable(getattr(method, verb, None)):
        raise MethodError(f"{kind} {name!r} has no method {verb}(); define it on the class.")


def _enter(table: dict[str, type[Any]], method: type[Any], kind: str) -> None:
    taken = table.get(method.name)
    if taken is not None:
        raise MethodError(
            f"{kind} {method.name!r} is registered already, by {taken.__module__}."
            f"{taken.__qualname__}; names are unique. Give {method.__qualname__} another name."
        )
    table[method.name] = method
