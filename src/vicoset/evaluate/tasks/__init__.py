"""Benchmarks: the public data's own layout in, items, scores and native aggregates out.

``tinybench`` and its parts draw their own data.
"""

from __future__ import annotations

import difflib

from vicoset.errors import UnknownNameError
from vicoset.evaluate.tasks.base import Benchmark
from vicoset.evaluate.tasks.captions import CHAIR
from vicoset.evaluate.tasks.choice import MMBench
from vicoset.evaluate.tasks.reading import GQA, ChartQA, DocVQA, TextVQA
from vicoset.evaluate.tasks.tinybench import PARTS, TinyBench
from vicoset.evaluate.tasks.yesno import AMBER, MME, POPE, HallusionBench

__all__ = ["names", "task"]

_KINDS: tuple[type[Benchmark], ...] = (
    *(TextVQA, ChartQA, DocVQA, GQA, MMBench),
    *(MME, POPE, AMBER, HallusionBench, CHAIR),
)
_ALL: tuple[Benchmark, ...] = (*(kind() for kind in _KINDS), TinyBench(), *PARTS)
_TASKS: dict[str, Benchmark] = {one.name: one for one in _ALL}


def names() -> list[str]:
    """All tasks, in the order in which tables list them."""
    return list(_TASKS)


def task(name: str) -> Benchmark:
    """The task of a name.

    Args:
        name: such as ``textvqa``.
    """
    if name not in _TASKS:
        near = difflib.get_close_matches(name.lower(), _TASKS, n=1, cutoff=0.5)
        hint = f" Did you mean {near[0]!r}?" if near else ""
        raise UnknownNameError(f"task {name!r}; allowed are {', '.join(_TASKS)}.{hint}")
    return _TASKS[name]
