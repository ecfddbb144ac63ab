"""What the rooms of an evaluation hand to each other: a scored sample, its cost, its run, its task.

Tasks write the score and the sufficient statistics, the runner adds identity and cost and keeps the
record, the statistics read it. Nothing else passes between them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

Sums = Mapping[str, NDArray[np.float64]]
"""Summed statistics by name; the arrays have one shape, ``[...]`` or ``[..., strata]``."""


@dataclass(frozen=True, slots=True)
class Cost:
    """What one sample cost.

    Attributes:
        tokens: N, visual tokens of the prompt.
        kept: realised K behind the last boundary.
        layer_average: W / L, visual tokens per block on average.
        work: W / (L N), share of Full's token-layer work, 0 to 1.
        kv_bytes: bytes of the prompt's keys and values.
        full_kv_bytes: bytes they take uncompressed.
        seconds: of the whole request and of its stages, name to seconds; empty when not timed.
        peak_bytes: most memory during the request; 0 when nobody looked.
        process: that answered.
    """

    tokens: float
    kept: float
    layer_average: float
    work: float
    kv_bytes: float = 0.0
    full_kv_bytes: float = 0.0
    seconds: Mapping[str, float] = field(default_factory=dict)
    peak_bytes: int = 0
    process: str = ""


@dataclass(frozen=True, slots=True)
class Sample:
    """One scored answer, as the statistics see it.

    Attributes:
        task: name of the task.
        sample_id: native id, unique within a task.
        unit_id: what is resampled as a whole (image, pair, set, base question).
        stratum: units are resampled within their stratum; "" where a task has none.
        stats: sufficient statistics of this sample; the task's aggregate is a function of their
            sums, so they add up over samples (tp, fp, fn; correct, questions; anls, questions).
        score: of this sample alone.
        groups: conjunctions that the sample is part of, kind -> id. A group counts as right when
            every sample in it has score 1; it lies inside one unit. The sums gain
            ``all:<kind>`` (right groups) and ``groups:<kind>`` (groups). So MME's pairs,
            HallusionBench's questions and figures, and MMBench's rotations need no code of theirs.
        cost: None where nothing was measured (imported logs).
    """

    task: str
    sample_id: str
    unit_id: str
    stratum: str
    stats: Mapping[str, float]
    score: float
    groups: Mapping[str, str] = field(default_factory=dict)
    cost: Cost | None = None


@dataclass(frozen=True)
class RunInfo:
    """What holds for all samples of a run.

    Attributes:
        run_id: identity of the run.
        method: the method's name for tables, "full" for Full ("gmc", "random", "fastv").
        plan: the plan as asked for ("gmc-h2", "random+drop@2"); "full" for Full.
        keep: the requested budget as text ("128", "12.5%"); "" for Full.
        query_aware: whether the method reads the question.
        seed: of a seeded method; None where there is none.
        model: model name or path tail.
        tokens: N where all samples have the same, else None.
        depth: L, blocks of the decoder.
    """

    run_id: str
    method: str
    plan: str
    keep: str
    query_aware: bool = False
    seed: int | None = None
    model: str = ""
    tokens: int | None = None
    depth: int | None = None


@dataclass(frozen=True)
class RunSamples:
    """A run and its samples, of any tasks, in any order."""

    info: RunInfo
    samples: tuple[Sample, ...]


@dataclass(frozen=True)
class Metric:
    """A further number of a task, beside the one that stands for it in macros.

    Attributes:
        aggregate: as :meth:`TaskStatistics.aggregate`.
        maximum: attainable value; None for a number without one, such as a length.
        higher_is_better: None for a number that is neither good nor bad.
    """

    aggregate: Callable[[Sums], NDArray[np.float64]]
    maximum: float | None = 1.0
    higher_is_better: bool | None = True


class TaskStatistics(Protocol):
    """What the statistics need to know about a task.

    Attributes:
        name: of the task.
        maximum: attainable value of the aggregate (1 for a rate, 2800 for MME): macros divide by
            it.
        higher_is_better: False for hallucination rates.
        stratified: whether the sums have a last axis of strata.
        metrics: further numbers by name (POPE's "f1"; CHAIR's "chair_i", "recall", "length";
            HallusionBench's "q_acc", "f_acc"); empty for most tasks.
    """

    name: str
    maximum: float
    higher_is_better: bool
    stratified: bool
    metrics: Mapping[str, Metric]

    def aggregate(self, sums: Sums) -> NDArray[np.float64]:
        """The task's native value from summed statistics.

        Args:
            sums: name -> ``[...]`` (any leading axes: replicates, methods), with a last axis of
                strata, in sorted order of their names, where the task is stratified.

        Returns:
            ``[...]``, without the axis of strata.
        """
        ...
