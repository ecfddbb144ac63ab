"""Time and memory of the bootstrap: ten tasks, twelve methods, 20,000 replicates, one thread.

    python benchmarks/bootstrap.py [--replicates B] [--methods M]

The tasks have the sizes of the public benchmarks and the units that their images or pairs give. A
fresh process per run; memory is the rise of its peak resident size over what it needs after import.
"""

from __future__ import annotations

import argparse
import resource
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from vicoset.evaluate.sample import Metric, Sums
from vicoset.evaluate.statistics import Study, UnitSums


def peak() -> float:
    """Most MiB that the process ever had in memory.

    The kernel's own account where there is one: what getrusage says of a child process includes the
    parent's size at the moment of the fork.
    """
    status = Path("/proc/self/status")
    if status.exists():
        line = next(x for x in status.read_text().splitlines() if x.startswith("VmHWM:"))
        return int(line.split()[1]) / 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def accuracy(sums: Sums) -> NDArray[np.float64]:
    return sums["right"] / sums["asked"]


def f1(sums: Sums) -> NDArray[np.float64]:
    return 2 * sums["tp"] / (2 * sums["tp"] + sums["fp"] + sums["fn"])


def paired_total(sums: Sums) -> NDArray[np.float64]:
    """Percent right plus percent of pairs right, added over categories."""
    parts = sums["right"] / sums["asked"] + sums["all:pair"] / sums["groups:pair"]
    return np.asarray(100 * parts.sum(-1))


@dataclass(frozen=True)
class Shape:
    """A task: how many units, how many samples in each on average, and in how many strata."""

    name: str
    units: int
    samples: int
    stats: tuple[str, ...] = ("asked", "right")
    strata: int = 1
    maximum: float = 1.0
    higher_is_better: bool = True
    metrics: Mapping[str, Metric] = field(default_factory=dict)

    @property
    def stratified(self) -> bool:
        return self.strata > 1

    def aggregate(self, sums: Sums) -> NDArray[np.float64]:
        return paired_total(sums) if self.stratified else accuracy(sums)


PAIRED = ("asked", "right", "groups:pair", "all:pair")
COUNTED = ("asked", "right", "tp", "fp", "fn")
TASKS = (
    Shape("textvqa", 3166, 5000),
    Shape("chartqa", 2500, 2500),
    Shape("mme", 1187, 2374, PAIRED, strata=14, maximum=2800.0),
    Shape("pope", 500, 9000, COUNTED, metrics={"f1": Metric(f1)}),
    Shape("mmbench", 1164, 4329),
    Shape("gqa", 398, 12578),
    Shape("docvqa", 1286, 5349),
    Shape("amber", 1200, 1200),
    Shape("hallusion", 165, 951, PAIRED),
    Shape("chair", 500, 500, higher_is_better=False),
)


def unit_sums(shape: Shape, methods: int, rng: np.random.Generator) -> UnitSums:
    """Random counts: a unit's statistics never exceed its samples."""
    asked = rng.multinomial(shape.samples, np.full(shape.units, 1 / shape.units)).clip(1)
    values = rng.binomial(asked[:, None, None], 0.8, (shape.units, len(shape.stats), methods))
    for at, name in enumerate(shape.stats):
        if name in ("asked", "groups:pair"):
            values[:, at] = asked[:, None] if name == "asked" else 1
        elif name == "all:pair":
            values[:, at] = values[:, 1] == asked[:, None]
    stratum = np.sort(np.arange(shape.units) % shape.strata)
    names = tuple(f"c{i:02d}" for i in range(shape.strata)) if shape.stratified else ("",)
    labels = tuple(f"m{i}" for i in range(methods))
    return UnitSums(shape.name, labels, names, stratum, shape.stats, values.astype(np.float64))


def run(methods: int, replicates: int) -> tuple[float, float]:
    """Seconds and MiB of resampling, macro, retention and all intervals."""
    rng = np.random.default_rng(0)
    sums = {shape.name: unit_sums(shape, methods, rng) for shape in TASKS}
    before = peak()
    start = time.process_time()
    study = Study.of_sums(TASKS, sums, replicates=replicates)
    for name in study.tasks:
        study.score(name).minus("m0").estimates()
    study.macro().estimates()
    study.macro(full="m0").estimates()
    seconds = time.process_time() - start
    after = peak()
    return seconds, after - before


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--replicates", type=int, default=20_000)
    parser.add_argument("--methods", type=int, default=12)
    options = parser.parse_args()
    seconds, mib = run(options.methods, options.replicates)
    total = peak()
    print(
        f"{len(TASKS)} tasks, {options.methods} methods, {options.replicates} replicates: "
        f"{seconds:.2f} s, {mib:.0f} MiB above the inputs, {total:.0f} MiB in all"
    )


if __name__ == "__main__":
    main()
