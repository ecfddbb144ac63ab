"""Tasks and samples for the tests of the statistics, and a bootstrap that is slow and obvious."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any
from zlib import crc32

import numpy as np

from vicoset.evaluate.sample import Metric, Sample, Sums

Array = np.ndarray[Any, Any]


@dataclass(frozen=True)
class SumTask:
    """A task whose aggregate is given as a function."""

    name: str = "task"
    rule: Callable[[Sums], Array] = lambda sums: sums["right"] / sums["asked"]
    maximum: float = 1.0
    higher_is_better: bool = True
    stratified: bool = False
    metrics: Mapping[str, Metric] = field(default_factory=dict)

    def aggregate(self, sums: Sums) -> Array:
        return self.rule(sums)


def category_total(sums: Sums) -> Array:
    """Percent right and percent of pairs right, added over the strata."""
    parts = sums["right"] / sums["asked"] + sums["all:pair"] / sums["groups:pair"]
    return np.asarray(100 * parts.sum(-1))


PAIRED = SumTask("paired", category_total, maximum=600.0, stratified=True)


def samples(
    score: Array, units: Sequence[str] | None = None, task: str = "task", **more: Any
) -> list[Sample]:
    """One sample per entry of `score`, with the statistics `right` and `asked`."""
    units = [f"u{i:04d}" for i in range(len(score))] if units is None else units
    return [
        Sample(task, f"s{i:04d}", unit, "", {"right": float(x), "asked": 1.0}, float(x), **more)
        for i, (x, unit) in enumerate(zip(score, units, strict=True))
    ]


def categories(right: Array, categories: int = 3) -> list[Sample]:
    """Questions in pairs, the pairs in categories: right [pairs, 2]."""
    return [
        Sample(
            task="paired",
            sample_id=f"{pair}-{side}",
            unit_id=f"p{pair:03d}",
            stratum=f"c{pair % categories}",
            stats={"right": float(right[pair, side]), "asked": 1.0},
            score=float(right[pair, side]),
            groups={"pair": f"p{pair:03d}"},
        )
        for pair in range(len(right))
        for side in (0, 1)
    ]


def slow_bootstrap(
    evaluate: Callable[[list[Sample]], float],
    found: Sequence[Sample],
    replicates: int,
    seed: int,
) -> list[float]:
    """Replicates by copying samples: draw units, gather their samples, run an evaluator on them.

    It uses the same generators as the engine: one per stratum, one row of draws per replicate.
    """
    source = np.random.SeedSequence([seed, crc32(found[0].task.encode())])
    strata = sorted({sample.stratum for sample in found})
    homes = {s: sorted({x.unit_id for x in found if x.stratum == s}) for s in strata}
    drawn = {}
    for name, child in zip(strata, source.spawn(len(strata)), strict=True):
        size = (replicates, len(homes[name]))
        drawn[name] = np.random.default_rng(child).integers(0, size[1], size, dtype=np.int64)
    values = []
    for row in range(replicates):
        multiset: list[Sample] = []
        for name in strata:
            for copy, at in enumerate(drawn[name][row].tolist()):
                for sample in found:
                    if (sample.stratum, sample.unit_id) == (name, homes[name][at]):
                        groups = {k: f"{g}/{copy}" for k, g in sample.groups.items()}
                        multiset.append(_relabelled(sample, copy, groups))
        values.append(evaluate(multiset))
    return values


def _relabelled(sample: Sample, copy: int, groups: Mapping[str, str]) -> Sample:
    return Sample(
        sample.task,
        f"{sample.sample_id}/{copy}",
        f"{sample.unit_id}/{copy}",
        sample.stratum,
        sample.stats,
        sample.score,
        groups,
    )


def accuracy(found: Sequence[Sample]) -> float:
    return sum(sample.score for sample in found) / len(found)


def official_total(found: Sequence[Sample]) -> float:
    """Accuracy and pair accuracy of every category, in percent, added up."""
    total = 0.0
    for stratum in sorted({sample.stratum for sample in found}):
        mine = [sample for sample in found if sample.stratum == stratum]
        pairs: dict[str, list[float]] = {}
        for sample in mine:
            pairs.setdefault(sample.groups["pair"], []).append(sample.score)
        assert all(len(answers) == 2 for answers in pairs.values())
        total += 100 * accuracy(mine)
        total += 100 * sum(all(answers) for answers in pairs.values()) / len(pairs)
    return total
