"""What audits measured, resampled with the same draws as the scores of the same runs."""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from vicoset.errors import RunError
from vicoset.evaluate.answering import AUDIT
from vicoset.evaluate.entry import Entry
from vicoset.evaluate.folder import Folder, complete
from vicoset.evaluate.sample import Metric, Sample, Sums
from vicoset.evaluate.statistics import Draws, Study, UnitSums, unit_sums
from vicoset.evaluate.statistics.bootstrap import Floats
from vicoset.evaluate.statistics.draws import macro
from vicoset.evaluate.statistics.ranked import drawn
from vicoset.evaluate.tables.comparison import LEVEL, Comparison
from vicoset.evaluate.tables.records import Found, Key
from vicoset.evaluate.tables.table import Cell

N = "requests"


@dataclass
class Facts:
    """The means of some numbers over the requests of a task.

    Attributes:
        name: of the task, which fixes the draws.
        metrics: name -> its mean; correlations among them.
    """

    name: str
    metrics: Mapping[str, Metric]
    maximum: float = 1.0
    higher_is_better: bool = True
    stratified: bool = False

    def aggregate(self, sums: Sums) -> Floats:
        """How many requests there are."""
        return np.asarray(sums[N], np.float64)


@dataclass(frozen=True)
class Diagnosed:
    """Numbers of audited requests beside a comparison of the same runs.

    Attributes:
        both: the comparison.
        samples: run -> task -> its audited entries by id; runs as the comparison names them.
        full: task -> Full's entries by id.
    """

    both: Comparison
    samples: Mapping[str, Mapping[str, Mapping[str, Entry]]]
    full: Mapping[str, Mapping[str, Entry]]

    @classmethod
    def of(cls, both: Comparison, folders: Sequence[Folder]) -> Diagnosed:
        """Read the audits of the runs that are compared.

        Args:
            both: the comparison, of audited runs.
            folders: of those runs, and Full's.
        """
        by_run: dict[tuple[str, str], Folder] = {
            (str(one.facts["info"]["run_id"]), one.task): one for one in folders
        }

        def entries(run_id: str, task: str) -> dict[str, Entry]:
            return {one.sample_id: one for one in complete(by_run[run_id, task])}

        samples: dict[str, dict[str, dict[str, Entry]]] = {}
        for key, runs in both.found.runs.items():
            for number, run in enumerate(runs if both.has(key) else ()):
                name = f"{key.label} #{number}"
                samples[name] = {task: entries(run.info.run_id, task) for task in both.tasks}
        whole = {task: samples["full #0"][task] for task in both.tasks}
        lacking = [
            name
            for name, tasks in samples.items()
            if name != "full #0"
            and any(
                AUDIT not in (e.evidence or {}) for found in tasks.values() for e in found.values()
            )
        ]
        if lacking:
            raise RunError(
                f"the runs {', '.join(lacking)} hold no audits; allowed are the runs of a study "
                "that audits. Run the study into this directory."
            )
        return cls(both, {k: v for k, v in samples.items() if k != "full #0"}, whole)

    def means(
        self, measures: Mapping[str, Any], correlations: Mapping[str, tuple[str, str]] | None = None
    ) -> dict[str, Draws]:
        """Means of numbers, one draw per number with a column per row.

        Args:
            measures: name -> (entry, Full's entry) -> the number, or None where it is not defined
                for the request, which then does not count.
            correlations: name -> the two measures whose Pearson correlation it is.
        """
        correlations = correlations or {}
        metrics = {name: Metric(_mean(name), None, None) for name in measures}
        metrics |= {n: Metric(_correlation(n), None, None) for n in correlations}
        runs = {
            name: [
                _sample(task, entry, self.full[task][entry.sample_id], measures, correlations)
                for task, found in tasks.items()
                for entry in found.values()
            ]
            for name, tasks in self.samples.items()
        }
        study = Study.of(
            [Facts(task, metrics) for task in self.both.tasks],
            runs,
            replicates=self.both.study.replicates,
            seed=self.both.study.seed,
            unit=self.both.options.unit,
        )
        draws = study.draws
        return {
            name: macro([self._joined(draws[task][name]) for task in self.both.tasks])
            for name in metrics
        }

    def ranked(self, columns: Any) -> Draws:
        """AUROC or quantiles, a column per row.

        Args:
            columns: (entries, Full's entries) of a run -> what is ranked.
        """
        parts = []
        for task in self.both.tasks:
            order, sums, units = self._units(task)
            found = {}
            for name, tasks in self.samples.items():
                mine = [tasks[task][sample] for sample in order]
                found[name] = columns(mine, [self.full[task][sample] for sample in order])
            study = self.both.study
            parts.append(self._joined(drawn(sums, units, found, study.replicates, study.seed)))
        return macro(parts)

    def _units(self, task: str) -> tuple[list[str], UnitSums, list[int]]:
        """Samples in the order of the units, the units, and the unit of each sample."""
        unit = self.both.options.unit

        def place(sample: Sample) -> tuple[str, str]:
            return sample.stratum, sample.unit_id if unit == "unit" else sample.sample_id

        samples = [entry.sample for entry in self.full[task].values()]
        plain = [Sample(s.task, s.sample_id, s.unit_id, s.stratum, {N: 1.0}, 0.0) for s in samples]
        sums = unit_sums(task, {"full": plain}, unit)
        places = {key: number for number, key in enumerate(sorted({place(s) for s in samples}))}
        units = [places[place(sample)] for sample in samples]
        return [sample.sample_id for sample in samples], sums, units

    def _joined(self, draws: Draws) -> Draws:
        """A column per row, the mean over its seeds."""
        members = self.both.members
        return draws.combined(
            {
                row: dict.fromkeys(runs, 1 / len(runs))
                for row, runs in members.items()
                if set(runs) <= set(draws.names)
            }
        )


def audit_of(entry: Entry) -> Mapping[str, Any]:
    """What an audit measured of a request.

    Args:
        entry: of an audited run.
    """
    found: Mapping[str, Any] = (entry.evidence or {})[AUDIT]
    return found


def study_command(found: Found, kind: str, tasks: Sequence[str], keep: str) -> str:
    """What runs a row of an audited table that is missing.

    Args:
        found: the records.
        kind: of the study.
        tasks: by name.
        keep: the budget.
    """
    parts = ["evaluate", "study", kind, "--model", found.model, "--tasks", ",".join(tasks)]
    return f"vicoset {shlex.join([*parts, '--out', found.out, '--keeps', keep])}"


def shown(draws: Draws, row: str) -> Cell | None:
    """A value with its interval; without one where a replicate has none, None without a value.

    Args:
        draws: a column per row.
        row: of it.
    """
    at = draws.names.index(row)
    if not np.isfinite(draws.value[at]):
        return None
    own = Draws((row,), draws.value[[at]], draws.replicates[:, [at]])
    if not np.isfinite(own.replicates).all():
        return Cell(float(own.value[0]))
    one = own.estimates(LEVEL)[row]
    return Cell(one.value, one.low, one.high)


def less(draws: Draws, row: Key, other: Key) -> Draws:
    """One row minus another, in the same replicates.

    Args:
        draws: a column per row.
        row: minuend.
        other: subtrahend.
    """
    return draws.combined({"delta": {row.label: 1.0, other.label: -1.0}})


def _sample(
    task: str,
    entry: Entry,
    full: Entry,
    measures: Mapping[str, Any],
    correlations: Mapping[str, tuple[str, str]],
) -> Sample:
    stats, values = {N: 1.0}, {name: take(entry, full) for name, take in measures.items()}
    for name, value in values.items():
        stats[f"sum:{name}"] = 0.0 if value is None else float(value)
        stats[f"count:{name}"] = float(value is not None)
    for name, (left, right) in correlations.items():
        x, y = values[left], values[right]
        there = x is not None and y is not None
        x, y = (float(x), float(y)) if there else (0.0, 0.0)
        moments = {"n": float(there), "x": x, "y": y, "xx": x * x, "yy": y * y, "xy": x * y}
        stats |= {f"{part}:{name}": value for part, value in moments.items()}
    return Sample(task, entry.sample_id, entry.unit_id, entry.stratum, stats, entry.score)


def _mean(name: str) -> Any:
    def mean(sums: Sums) -> Floats:
        whole = np.asarray(sums[f"count:{name}"], np.float64)
        part = np.asarray(sums[f"sum:{name}"], np.float64)
        found = np.full(whole.shape, np.nan)
        np.divide(part, whole, out=found, where=whole > 0)
        return found

    return mean


def _correlation(name: str) -> Any:
    def correlation(sums: Sums) -> Floats:
        n, x, y, xx, yy, xy = (
            np.asarray(sums[f"{part}:{name}"], np.float64)
            for part in ("n", "x", "y", "xx", "yy", "xy")
        )
        spread = (n * xx - x * x).clip(0) * (n * yy - y * y).clip(0)
        fine = (n > 1) & (spread > 0)
        over = np.sqrt(np.where(fine, spread, 1.0))
        return np.where(fine, ((n * xy - x * y) / over).clip(-1, 1), np.nan)

    return correlation
