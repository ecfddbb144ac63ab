"""Tables out of records: one function per kind, each giving its panels."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence

from vicoset.evaluate.folder import Folder
from vicoset.evaluate.tables.comparison import Options
from vicoset.evaluate.tables.coverage import coverage
from vicoset.evaluate.tables.equal import equal_work
from vicoset.evaluate.tables.factorial import factorial_effects
from vicoset.evaluate.tables.fixed import fixed_k
from vicoset.evaluate.tables.hallucination import hallucination
from vicoset.evaluate.tables.mechanism import mechanism
from vicoset.evaluate.tables.overhead import overhead
from vicoset.evaluate.tables.pathway import message_pathway
from vicoset.evaluate.tables.probe import probe
from vicoset.evaluate.tables.records import Found, find
from vicoset.evaluate.tables.recovery import selector_recovery
from vicoset.evaluate.tables.runtime import runtime
from vicoset.evaluate.tables.table import Table

__all__ = ["AUDITED", "KINDS", "Options", "Table", "find"]

Make = Callable[[Found, Sequence[str], Options], list[Table]]
KINDS: dict[str, Make] = {
    "fixed-k": fixed_k,
    "equal-work": equal_work,
    "hallucination": hallucination,
    "llava": functools.partial(fixed_k, name="llava"),
    "factorial": factorial_effects,
    "message-pathway": message_pathway,
    "selector-recovery": selector_recovery,
    "runtime": runtime,
    "overhead": overhead,
}
"""Kind of a table -> what makes it."""

Audited = Callable[[Found, Sequence[Folder], Sequence[str], Options, Sequence[str]], list[Table]]
AUDITED: dict[str, Audited] = {"mechanism": mechanism, "coverage": coverage, "probe": probe}
"""The same for tables of audited runs, which take the runs' folders and the points as well."""
