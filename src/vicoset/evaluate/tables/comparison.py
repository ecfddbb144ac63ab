"""What comparing tables share: scores and macros of rows with their replicates, and differences."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from vicoset.errors import RunError, StatisticsError
from vicoset.evaluate import tasks as known_tasks
from vicoset.evaluate.sample import Sample
from vicoset.evaluate.statistics import Draws, Estimate, Study, holm
from vicoset.evaluate.statistics.draws import macro
from vicoset.evaluate.statistics.study import REPLICATES, SEED
from vicoset.evaluate.tables.records import FULL_KEY, Found, Key
from vicoset.evaluate.tables.table import Cell

LEVEL = 0.95


@dataclass(frozen=True)
class Options:
    """How a table compares.

    Attributes:
        replicates: B.
        seed: of the draws.
        unit: what is resampled: ``unit`` as the task says, or ``sample``.
        alternative: of the tests: ``two-sided``, ``greater`` or ``less``.
        reference: the plan that others are compared with.
        paper: whether the paper's numbers stand beside ours: ``auto`` where model and N are its
            own, ``always`` or ``never``.
    """

    replicates: int = REPLICATES
    seed: int = SEED
    unit: str = "unit"
    alternative: str = "two-sided"
    reference: str = "gmc-h2"
    paper: str = "auto"


@dataclass(frozen=True)
class Comparison:
    """Rows that answered the same tasks, resampled together.

    Attributes:
        found: the records.
        tasks: names, in order.
        study: the replicates of every single run.
        members: a row's name to the runs that it is the mean of.
        options: how to compare.
    """

    found: Found
    tasks: tuple[str, ...]
    study: Study
    members: Mapping[str, tuple[str, ...]]
    options: Options

    @classmethod
    def of(
        cls,
        found: Found,
        keys: Sequence[Key],
        tasks: Sequence[str] = (),
        options: Options | None = None,
    ) -> Comparison:
        """Resample the rows that are complete.

        Args:
            found: the records.
            keys: of the rows; Full joins them.
            tasks: by name; all of Full's when empty.
            options: how to compare.
        """
        options = options or Options()
        wanted = tuple(tasks) or found.tasks
        lacking = [name for name in wanted if name not in found.tasks]
        if lacking:
            raise RunError(
                f"Full has no complete run of {', '.join(lacking)}; it has "
                f"{', '.join(found.tasks)}. Run Full on them, or leave them out."
            )
        rows = [key for key in dict.fromkeys([FULL_KEY, *keys]) if found.complete(key, wanted)]
        members: dict[str, tuple[str, ...]] = {}
        runs: dict[str, Sequence[Sample]] = {}
        for key in rows:
            named = {f"{key.label} #{i}": run.samples for i, run in enumerate(found.runs[key])}
            members[key.label] = tuple(named)
            runs |= named
        study = Study.of(
            [known_tasks.task(name) for name in wanted],
            runs,
            replicates=options.replicates,
            seed=options.seed,
            unit=options.unit,
        )
        return cls(found, wanted, study, members, options)

    def has(self, key: Key) -> bool:
        """Whether a row is there."""
        return key.label in self.members

    def joined(self, draws: Draws) -> Draws:
        """A column per row: the mean over its seeds, replicate by replicate.

        Args:
            draws: a column per run.
        """
        return draws.combined(
            {row: dict.fromkeys(runs, 1 / len(runs)) for row, runs in self.members.items()}
        )

    def score(self, task: str, metric: str = "") -> Draws:
        """A task's number as tables print it: rates in percent, totals as they are.

        Args:
            task: its name.
            metric: one of its further numbers; "" for its own.
        """
        one = self.study.tasks[task]
        most = one.metrics[metric].maximum if metric else one.maximum
        return self.joined(self.study.score(task, metric)).scaled(100.0 if most == 1 else 1.0)

    def percentage(self, task: str) -> Draws:
        """A task's aggregate in percent of the attainable."""
        return self.joined(self.study.percentage(task))

    @property
    def rising(self) -> tuple[str, ...]:
        """The tasks that a macro takes: those where more is better."""
        return tuple(t for t in self.tasks if self.study.tasks[t].higher_is_better)

    def macro(self, tasks: Sequence[str] = (), *, retention: bool) -> Draws:
        """The equal-task mean.

        Args:
            tasks: by name; the rising ones when empty.
            retention: of scores relative to Full's, else of percentages of the attainable.
        """
        parts = [self.percentage(task) for task in tasks or self.rising]
        if retention:
            parts = [one.over(FULL_KEY.label).scaled(100) for one in parts]
        return macro(parts)

    @property
    def retains(self) -> bool:
        """Whether retention is defined: Full is above 0 in every replicate of every rising task."""
        try:
            self.macro(retention=True)
        except StatisticsError:
            return False
        return True

    def differences(
        self, draws: Draws, pairs: Mapping[Any, tuple[Key, Key]]
    ) -> dict[Any, tuple[Estimate, float]]:
        """Differences of rows with their p-values, adjusted over all of them by Holm.

        Args:
            draws: a column per row.
            pairs: name of the difference -> minuend and subtrahend.

        Returns:
            name -> estimate and adjusted p.
        """
        weights = {str(n): {a.label: 1.0, b.label: -1.0} for n, (a, b) in enumerate(pairs.values())}
        made = draws.combined(weights).estimates(LEVEL) if weights else {}
        found = dict(zip(pairs, made.values(), strict=True))
        adjusted = holm({name: one.p(self.options.alternative) for name, one in found.items()})
        return {name: (one, adjusted[name]) for name, one in found.items()}

    def note(self) -> str:
        """What was resampled and how."""
        units = ", ".join(f"{task} {self.study.units[task]}" for task in self.tasks)
        counts = {t: sum(s.task == t for s in self.found.full.samples) for t in self.tasks}
        asked = ", ".join(f"{task} {n}" for task, n in counts.items())
        return (
            f"{LEVEL:.0%} percentile intervals of {self.study.replicates:,} paired replicates "
            f"(seed {self.study.seed}) over units: {units}; questions: {asked}. Model "
            f"{self.found.model}, {self.found.depth} blocks, N = {self.found.tokens or 'varies'}."
            f"{self._narrow()}"
        )

    def _narrow(self) -> str:
        """A warning where a stratum has one unit, which is then drawn every time."""
        places: dict[tuple[str, str], set[str]] = {}
        for one in self.found.full.samples:
            if one.task in self.tasks:
                unit = one.unit_id if self.options.unit == "unit" else one.sample_id
                places.setdefault((one.task, one.stratum), set()).add(unit)
        alone = sum(len(units) == 1 for units in places.values())
        if not alone:
            return ""
        return (
            f" TOO NARROW: {alone} of {len(places)} strata have a single unit, which no replicate "
            "varies; ask more pictures."
        )

    def family(self, size: int, what: str) -> str:
        """How p was adjusted."""
        sides = 2 if self.options.alternative == "two-sided" else 1
        least = sides / (self.study.replicates + 1)
        return (
            f"p: {self.options.alternative}, (1 + #)/(B + 1) of the replicates, Holm over the "
            f"{size} {what}; before Holm the smallest that these replicates give is {least:.1g}."
        )


def cell(one: Estimate) -> Cell:
    """An estimate with its interval."""
    return Cell(one.value, one.low, one.high)


def plain(draws: Draws, row: str) -> float:
    """The value of a row, NaN refused."""
    value = draws.of(row)
    if not np.isfinite(value):
        raise StatisticsError(f"{row} has the value {value}; look at its records.")
    return value
