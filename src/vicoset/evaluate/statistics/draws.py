"""Values with their bootstrap replicates, the algebra on them, and what is read off in the end."""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from vicoset.errors import StatisticsError, UnknownNameError
from vicoset.evaluate.statistics.bootstrap import Floats

ALTERNATIVES = ("two-sided", "greater", "less")


@dataclass(frozen=True)
class Estimate:
    """A value with its percentile interval and the p-values of "it is 0".

    Attributes:
        value: from the samples themselves, no mean of replicates.
        low: lower end of the interval.
        high: upper end.
        greater: p of the alternative "above 0", (1 + #{D* <= 0}) / (B + 1).
        less: p of the alternative "below 0", (1 + #{D* >= 0}) / (B + 1).
    """

    value: float
    low: float
    high: float
    greater: float
    less: float

    @property
    def two_sided(self) -> float:
        """2 min(greater, less), at most 1."""
        return min(1.0, 2 * min(self.greater, self.less))

    def p(self, alternative: str) -> float:
        """The p-value of an alternative.

        Args:
            alternative: ``two-sided``, ``greater`` or ``less``.
        """
        if alternative not in ALTERNATIVES:
            raise UnknownNameError(
                f"alternative {alternative!r}; allowed are {', '.join(ALTERNATIVES)}."
            )
        return float(getattr(self, alternative.replace("-", "_")))


@dataclass(frozen=True)
class Draws:
    """Values of some columns (methods, contrasts) and their replicates.

    Attributes:
        names: of the columns, M of them.
        value: [M].
        replicates: [B, M]; row b holds every column of replicate b.
    """

    names: tuple[str, ...]
    value: Floats
    replicates: Floats

    def __getitem__(self, name: str) -> Floats:
        """Replicates [B] of one column."""
        return self.replicates[:, self._at(name)]

    def of(self, name: str) -> float:
        """Value of one column.

        Args:
            name: of the column.
        """
        return float(self.value[self._at(name)])

    def over(self, reference: str) -> Draws:
        """Every column as a ratio to one of them, replicate by replicate.

        Args:
            reference: name of the denominator, such as Full.
        """
        at = self._at(reference)
        zeros = int((self.replicates[:, at] == 0).sum()) + int(self.value[at] == 0)
        if zeros:
            raise StatisticsError(
                f"{reference!r} is 0 in {zeros} of {len(self.replicates) + 1} values, so nothing "
                "can be stated relative to it. Compare differences, or use more samples."
            )
        shown = self.replicates[:, at, None]
        return Draws(self.names, self.value / self.value[at], self.replicates / shown)

    def minus(self, reference: str) -> Draws:
        """Every column as a difference to one of them, replicate by replicate.

        Args:
            reference: name of the column to subtract.
        """
        at = self._at(reference)
        shown = self.replicates[:, at, None]
        return Draws(self.names, self.value - self.value[at], self.replicates - shown)

    def combined(self, weights: Mapping[str, Mapping[str, float]]) -> Draws:
        """New columns, each a weighted sum of old ones, replicate by replicate.

        Args:
            weights: new name -> old name -> weight.
        """
        matrix = np.zeros((len(self.names), len(weights)))
        for column, parts in enumerate(weights.values()):
            for name, weight in parts.items():
                matrix[self._at(name), column] += weight
        return Draws(
            tuple(weights),
            _weighted(self.value[None], matrix)[0],
            _weighted(self.replicates, matrix),
        )

    def scaled(self, factor: float) -> Draws:
        """Every column times a factor.

        Args:
            factor: such as 100, to read rates as percentages.
        """
        return Draws(self.names, self.value * factor, self.replicates * factor)

    def estimates(self, level: float = 0.95) -> dict[str, Estimate]:
        """Value, percentile interval and p-values of every column.

        Args:
            level: of the interval.
        """
        if not 0 < level < 1:
            raise StatisticsError(f"level={level}; allowed is 0 < level < 1, such as 0.95.")
        tail = (1 - level) / 2
        ends = np.quantile(self.replicates, [tail, 1 - tail], axis=0)
        count = len(self.replicates) + 1
        greater = (1 + (self.replicates <= 0).sum(0)) / count
        less = (1 + (self.replicates >= 0).sum(0)) / count
        numbers = np.stack([self.value, *ends, greater, less], axis=1).tolist()
        return {name: Estimate(*row) for name, row in zip(self.names, numbers, strict=True)}

    def _at(self, name: str) -> int:
        if name not in self.names:
            raise UnknownNameError(f"no column {name!r}; there are {', '.join(self.names)}.")
        return self.names.index(name)


def macro(tasks: Sequence[Draws]) -> Draws:
    """The unweighted mean over tasks, replicate by replicate.

    Args:
        tasks: of the same columns; one task's units are drawn independently of another's.
    """
    if not tasks or len({(draws.names, draws.replicates.shape) for draws in tasks}) != 1:
        named = [(draws.names, draws.replicates.shape) for draws in tasks]
        raise StatisticsError(
            f"a macro of {named}; all tasks need the same columns and as many replicates, and "
            "there is at least one task."
        )
    return Draws(
        tasks[0].names,
        np.mean([draws.value for draws in tasks], axis=0),
        sum((draws.replicates for draws in tasks[1:]), tasks[0].replicates) / len(tasks),
    )


def _weighted(rows: Floats, matrix: Floats) -> Floats:
    """rows [B, M] times matrix [M, C], term by term.

    Terms to add and terms to subtract take turns, so that equal columns cancel exactly.
    """
    result = np.zeros((len(rows), matrix.shape[1]))
    for column, weights in enumerate(matrix.T):
        plus, minus = np.flatnonzero(weights > 0).tolist(), np.flatnonzero(weights < 0).tolist()
        for pair in itertools.zip_longest(plus, minus):
            for at in pair:
                if at is not None:
                    result[:, column] += weights[at] * rows[:, at]
    return result
