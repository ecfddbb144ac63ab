"""Paired, clustered bootstrap: sums inside resampling units, drawn again with replacement.

A replicate of a task is a multiset of its units, the same for every method. Because an aggregate is
a function of summed statistics, a replicate needs how often each unit was drawn and one matrix
product, and it is exact: the value is the one that the task's own evaluator gives for the multiset.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from dataclasses import dataclass
from zlib import crc32

import numpy as np
from numpy.typing import NDArray

from vicoset.errors import StatisticsError
from vicoset.evaluate.sample import Sums

Floats = NDArray[np.float64]

DRAWS_AT_ONCE = 1 << 16  # unit draws per block of replicates, so that a block stays in the cache


@dataclass(frozen=True)
class UnitSums:
    """One task: what is summed inside each resampling unit, for every method.

    Attributes:
        task: name of the task; it seeds the draws.
        methods: names of the M methods.
        strata: names of the strata, sorted; a single "" without any.
        stratum: [U] index of each unit's stratum, ascending.
        stats: names of the statistics.
        values: S [U, stats, M].
    """

    task: str
    methods: tuple[str, ...]
    strata: tuple[str, ...]
    stratum: NDArray[np.intp]
    stats: tuple[str, ...]
    values: Floats

    def __post_init__(self) -> None:
        """Refuse arrays that do not belong together, and numbers that are none."""
        shape = (len(self.stratum), len(self.stats), len(self.methods))
        if self.values.shape != shape or not min(shape):
            raise StatisticsError(
                f"sums of {self.task!r} have the shape {self.values.shape}; units, statistics and "
                f"methods are {shape}, and none of them may be 0."
            )
        if not np.isfinite(self.values).all():
            raise StatisticsError(
                f"sums of {self.task!r} hold NaN or infinity; every statistic of every sample is a "
                "finite number. Score an answer that cannot be read as wrong, 0."
            )
        counts = np.bincount(self.stratum, minlength=len(self.strata))
        if (np.diff(self.stratum) < 0).any() or len(counts) > len(self.strata) or not counts.all():
            raise StatisticsError(
                f"units of {self.task!r} are {counts.tolist()} in the strata {list(self.strata)}; "
                "they stand in the order of the strata, and no stratum is empty."
            )

    @property
    def units(self) -> int:
        """U."""
        return len(self.stratum)

    def totals(self, stratified: bool) -> Sums:
        """The sums over all units: [M], or [M, strata].

        Args:
            stratified: whether strata are kept apart.
        """
        sums = [self.values[low:high].sum(0) for low, high in self._spans()]
        return {k: v[0] for k, v in self._named(np.stack(sums, -1)[None], stratified).items()}

    def resampled(
        self, replicates: int, seed: int, stratified: bool
    ) -> Iterator[tuple[slice, Sums]]:
        """Totals of bootstrap replicates, [b, M] or [b, M, strata], block by block.

        A replicate draws, inside each stratum, as many units as the stratum has, with replacement;
        all statistics of all methods share the draw.

        Args:
            replicates: B.
            seed: together with the task's name and the number of units it fixes every draw.
            stratified: whether strata are kept apart in the result.
        """
        matrix, copy = _distinct(self.values)
        spans = self._spans()
        for rows, counts in self.drawn(replicates, seed):
            parts = [counts[:, low:high] @ matrix[low:high] for low, high in spans]
            sums = np.stack(parts, -1)[:, copy]
            yield rows, self._named(sums, stratified)

    def drawn(self, replicates: int, seed: int) -> Iterator[tuple[slice, Floats]]:
        """How often each unit is in bootstrap replicates, [b, U], block by block.

        These are the draws of :meth:`resampled`, for statistics that are no function of sums.

        Args:
            replicates: B.
            seed: as there.
        """
        source = np.random.SeedSequence([seed, crc32(self.task.encode())])
        spans = [
            (np.random.default_rng(child), *span)
            for child, span in zip(source.spawn(len(self.strata)), self._spans(), strict=True)
        ]
        block = max(1, DRAWS_AT_ONCE // self.units)
        for start in range(0, replicates, block):
            now = min(block, replicates - start)
            parts = [_draw(rng, now, high - low) for rng, low, high in spans]
            yield slice(start, start + now), np.concatenate(parts, axis=1)

    def _spans(self) -> list[tuple[int, int]]:
        """First and last unit (exclusive) of every stratum."""
        edges = np.searchsorted(self.stratum, np.arange(len(self.strata) + 1)).tolist()
        return list(itertools.pairwise(edges))

    def _named(self, sums: Floats, stratified: bool) -> Sums:
        """Statistic -> [b, M] or [b, M, strata], from [b, stats * M, strata]."""
        sums = sums.reshape(len(sums), len(self.stats), len(self.methods), len(self.strata))
        sums = sums if stratified else sums.sum(-1)
        return {name: sums[:, i] for i, name in enumerate(self.stats)}


def _draw(generator: np.random.Generator, replicates: int, units: int) -> Floats:
    """How often each unit is drawn, [replicates, units]; every row sums to ``units``."""
    drawn = generator.integers(0, units, (replicates, units), dtype=np.int64)
    drawn += np.arange(0, replicates * units, units)[:, None]
    counts = np.bincount(drawn.ravel(), minlength=replicates * units)
    return counts.reshape(replicates, units).astype(np.float64)


def _distinct(values: Floats) -> tuple[Floats, list[int]]:
    """The different columns of [U, stats, M] as a matrix, and which of them each (stat, M) is.

    Methods that answered alike then have equal sums to the last bit, whatever order a matrix
    product adds in, and counts that all methods share are summed once.
    """
    matrix = values.reshape(len(values), -1)
    seen: dict[bytes, int] = {}
    copy = [seen.setdefault(column.tobytes(), len(seen)) for column in matrix.T]
    first = [copy.index(number) for number in range(len(seen))]
    return np.ascontiguousarray(matrix[:, first]), copy
