"""What rows and Full took on the same questions in the same process, and how sure that is."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from vicoset.evaluate.sample import Cost, Sample
from vicoset.evaluate.statistics import Draws, UnitSums
from vicoset.evaluate.tables.comparison import LEVEL, Options, cell
from vicoset.evaluate.tables.records import Found, Key
from vicoset.evaluate.tables.table import Cell

WHOLE, PROMPT = "request", "prompt"
PARTS = ("message", "selection", "transport", "compaction")
GIB = float(1 << 30)
WARM = (
    "Times: a row and Full on the same questions in the same process, one request after the other; "
    "the first question of every process and task warms up and is left out."
)

Place = tuple[str, str]  # task and sample id


@dataclass(frozen=True)
class Times:
    """A row beside Full.

    Attributes:
        row: costs of the row by question, one per seed.
        full: costs of Full for the same questions.
        options: replicates and seed.
    """

    row: tuple[tuple[Cost, ...], ...]
    full: tuple[Cost, ...]
    options: Options

    @classmethod
    def of(cls, found: Found, key: Key, tasks: Sequence[str], options: Options) -> Times:
        """The questions that a row and Full answered in one process.

        Args:
            found: the records.
            key: of the row; Full's own gives its times alone.
            tasks: by name.
            options: replicates and seed.
        """
        full = _warm(found.full.samples, tasks)
        rows = [_warm(run.samples, tasks) for run in found.runs[key]]
        pairs = [
            (tuple(row[place] for row in rows), cost)
            for place, cost in full.items()
            if all(place in row and row[place].process == cost.process for row in rows)
        ]
        return cls(tuple(mine for mine, _ in pairs), tuple(cost for _, cost in pairs), options)

    @property
    def questions(self) -> int:
        """Number of questions that were timed."""
        return len(self.full)

    def mean(self, name: str) -> Cell:
        """Seconds of a part, with the interval over questions.

        Args:
            name: of the part.
        """
        return self._cell(lambda draws: draws, self._seconds(name))

    def total(self) -> Cell:
        """Seconds of all parts of the compaction."""
        return self._cell(lambda draws: draws, sum(map(self._seconds, PARTS)))

    def speedup(self) -> Cell:
        """Full's seconds over the row's, a ratio of sums."""
        return self._cell(lambda draws: draws.over("row"), self._seconds(WHOLE), "full")

    def share(self) -> Cell:
        """The compaction's seconds as a percentage of Full's prompt."""
        parts = sum(map(self._seconds, PARTS))
        return self._cell(lambda draws: draws.over("full").scaled(100), parts, part=PROMPT)

    @property
    def peak(self) -> float | None:
        """Most GiB of any of its requests; None where nobody looked."""
        most = max((cost.peak_bytes for mine in self.row for cost in mine), default=0)
        return most / GIB if most else None

    @property
    def parted(self) -> bool:
        """Whether the parts of the compaction were timed."""
        return bool(self.row) and all(PARTS[0] in cost.seconds for cost in self.row[0])

    def _seconds(self, name: str) -> np.ndarray:
        """[questions], the mean over seeds."""
        return np.array([np.mean([c.seconds.get(name, 0.0) for c in mine]) for mine in self.row])

    def _cell(
        self,
        change: Callable[[Draws], Draws],
        seconds: np.ndarray | int,
        column: str = "row",
        part: str = WHOLE,
    ) -> Cell:
        """A number of the means of both, with its interval over questions."""
        other = np.array([cost.seconds[part] for cost in self.full])
        values = np.stack([np.asarray(seconds, dtype=np.float64), other], axis=-1)
        sums = UnitSums(
            task="times",
            methods=("row", "full"),
            strata=("",),
            stratum=np.zeros(self.questions, dtype=np.intp),
            stats=("seconds",),
            values=values[:, None],
        )
        drawn = sums.resampled(self.options.replicates, self.options.seed, stratified=False)
        rows = np.concatenate([found["seconds"] for _, found in drawn])
        draws = Draws(sums.methods, sums.totals(False)["seconds"], rows)
        return cell(change(draws.scaled(1 / self.questions)).estimates(LEVEL)[column])


def _warm(samples: Sequence[Sample], tasks: Sequence[str]) -> dict[Place, Cost]:
    """Costs of the timed questions, without the first of every process and task."""
    seen: set[tuple[str, str]] = set()
    found: dict[Place, Cost] = {}
    for sample in samples:
        cost = sample.cost
        if sample.task not in tasks or cost is None or WHOLE not in cost.seconds:
            continue
        if (sample.task, cost.process) in seen:
            found[sample.task, sample.sample_id] = cost
        seen.add((sample.task, cost.process))
    return found
