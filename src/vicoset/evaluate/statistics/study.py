"""Several tasks and methods, resampled once and compared in any way afterwards."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from vicoset.errors import StatisticsError, UnknownNameError
from vicoset.evaluate.sample import Sample, Sums, TaskStatistics
from vicoset.evaluate.statistics.bootstrap import Floats, UnitSums
from vicoset.evaluate.statistics.draws import Draws, macro
from vicoset.evaluate.statistics.units import unit_sums

REPLICATES = 20_000
SEED = 0


@dataclass(frozen=True)
class Study:
    """Tasks answered by the same methods, with their replicates.

    Attributes:
        methods: names of the M methods.
        tasks: by name.
        draws: task -> metric -> its draws; metric "" is the task's own aggregate.
        units: task -> number of resampling units.
        replicates: B.
        seed: of the draws.
    """

    methods: tuple[str, ...]
    tasks: Mapping[str, TaskStatistics]
    draws: Mapping[str, Mapping[str, Draws]]
    units: Mapping[str, int]
    replicates: int = REPLICATES
    seed: int = SEED

    @classmethod
    def of(
        cls,
        tasks: Sequence[TaskStatistics],
        runs: Mapping[str, Iterable[Sample]],
        *,
        replicates: int = REPLICATES,
        seed: int = SEED,
        unit: str = "unit",
    ) -> Study:
        """Join the samples by id and resample every task.

        Args:
            tasks: to compare on.
            runs: method -> its samples, of any tasks, in any order.
            replicates: B.
            seed: of the draws.
            unit: ``unit`` or ``sample``, as in :func:`unit_sums`.
        """
        kept = {name: tuple(samples) for name, samples in runs.items()}
        sums = {task.name: unit_sums(task.name, kept, unit) for task in tasks}
        return cls.of_sums(tasks, sums, replicates=replicates, seed=seed)

    @classmethod
    def of_sums(
        cls,
        tasks: Sequence[TaskStatistics],
        sums: Mapping[str, UnitSums],
        *,
        replicates: int = REPLICATES,
        seed: int = SEED,
    ) -> Study:
        """Resample every task.

        Args:
            tasks: to compare on.
            sums: task -> its unit sums; all of the same methods.
            replicates: B.
            seed: of the draws.
        """
        if replicates < 1 or seed < 0 or not tasks:
            raise StatisticsError(
                f"replicates={replicates}, seed={seed} and {len(tasks)} tasks; at least one "
                "replicate and one task are needed, and seeds are not negative."
            )
        methods = {sums[task.name].methods for task in tasks}
        if len(methods) != 1:
            raise StatisticsError(f"tasks with the methods {sorted(methods)}; they share one list.")
        draws = {task.name: _resample(task, sums[task.name], replicates, seed) for task in tasks}
        return cls(
            methods.pop(),
            {task.name: task for task in tasks},
            draws,
            {task.name: sums[task.name].units for task in tasks},
            replicates,
            seed,
        )

    def score(self, task: str, metric: str = "") -> Draws:
        """A task's native metric.

        Args:
            task: name of the task.
            metric: one of the task's further metrics; "" is its own aggregate.
        """
        if task not in self.draws or metric not in self.draws[task]:
            known = [f"{t}:{m}" if m else t for t, found in self.draws.items() for m in found]
            raise UnknownNameError(
                f"no metric {f'{task}:{metric}' if metric else task!r}; there are "
                f"{', '.join(known)}."
            )
        found = self.draws[task][metric]
        undefined = int((~np.isfinite(found.replicates)).sum() + (~np.isfinite(found.value)).sum())
        if undefined:
            raise StatisticsError(
                f"{task} {metric} is undefined in {undefined} of "
                f"{found.replicates.size + found.value.size} values: its denominator becomes 0 "
                "when units are drawn again. Use more samples, or leave it out."
            )
        return found

    def percentage(self, task: str) -> Draws:
        """A task's aggregate as a percentage of what is attainable.

        Args:
            task: name of the task.
        """
        return self.score(task).scaled(100 / self.tasks[task].maximum)

    def retention(self, task: str, full: str) -> Draws:
        """A task's aggregate as a percentage of Full's, a ratio of resampled values.

        Args:
            task: name of the task.
            full: name of the method to relate to.
        """
        return self.score(task).over(full).scaled(100)

    def macro(self, tasks: Sequence[str] = (), full: str = "") -> Draws:
        """The unweighted mean over tasks: of percentages, or of retentions where Full is named.

        Args:
            tasks: names of the tasks; all those where more is better when empty.
            full: name of the method to relate to; "" for percentages of the attainable.
        """
        chosen = tasks or [name for name, task in self.tasks.items() if task.higher_is_better]
        falling = [name for name in chosen if not self.tasks[name].higher_is_better]
        if falling:
            raise StatisticsError(
                f"a macro over {falling}, where less is better; its mean with other tasks has no "
                "meaning. Leave it out."
            )
        one = (lambda name: self.retention(name, full)) if full else self.percentage
        return macro([one(name) for name in chosen])


def _resample(task: TaskStatistics, sums: UnitSums, replicates: int, seed: int) -> dict[str, Draws]:
    """Metric -> its draws."""
    metrics: dict[str, Callable[[Sums], Floats]] = {"": task.aggregate}
    metrics |= {name: metric.aggregate for name, metric in task.metrics.items()}
    shape = (replicates, len(sums.methods))
    found = {name: np.empty(shape) for name in metrics}
    with np.errstate(divide="ignore", invalid="ignore"):
        value = {name: f(sums.totals(task.stratified)) for name, f in metrics.items()}
        for rows, totals in sums.resampled(replicates, seed, task.stratified):
            for name, aggregate in metrics.items():
                found[name][rows] = aggregate(totals)
    return {name: Draws(sums.methods, value[name], found[name]) for name in metrics}
