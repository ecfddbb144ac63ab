"""Names of methods: a new one is one file and one registration."""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterable
from typing import Any, NamedTuple, TypeVar

from vicoset.errors import MethodError, UnknownNameError
from vicoset.methods.base import KNOWN_NEEDS, Realiser, Selector

S = TypeVar("S", bound=Selector)
R = TypeVar("R", bound=Realiser)

_NAME = re.compile(r"[a-z][a-z0-9_-]*")
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
    """A selector with its default numbers."""
    made: Selector = _find(_SELECTORS, name, "selector")()
    return made


def realiser(name: str) -> Realiser:
    """A realiser with its default numbers."""
    made: Realiser = _find(_REALISERS, name, "realiser")()
    return made


def names() -> Names:
    """All registered names."""
    return Names(tuple(sorted(_SELECTORS)), tuple(sorted(_REALISERS)))


def unknown(kind: str, got: str, known: Iterable[str]) -> UnknownNameError:
    """The error for a name that nobody knows, with the nearest known one and the list."""
    listed = sorted(known)
    near = difflib.get_close_matches(got.lower(), listed, n=1, cutoff=0.5)
    fix = f" Did you mean {near[0]!r}?" if near else ""
    return UnknownNameError(f"{got!r} is no {kind}; allowed are {', '.join(listed)}.{fix}")


def _find(table: dict[str, type[Any]], name: str, kind: str) -> type[Any]:
    if name not in table:
        raise unknown(kind, name, table)
    return table[name]


def _check(method: type[Any], kind: str, verb: str) -> None:
    """Refuse a class that a plan could not name or the runtime could not serve."""
    name = getattr(method, "name", None)
    if not isinstance(name, str) or not _NAME.fullmatch(name):
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
