"""From scored samples to sums inside resampling units, with every check that pairing needs."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

import numpy as np

from vicoset.errors import PairingError
from vicoset.evaluate.sample import Sample
from vicoset.evaluate.statistics.bootstrap import Floats, UnitSums

UNITS = ("unit", "sample")


def unit_sums(task: str, runs: Mapping[str, Iterable[Sample]], unit: str = "unit") -> UnitSums:
    """The sums of one task for methods that answered exactly the same samples.

    The order of the samples has no influence on the result.

    Args:
        task: name of the task.
        runs: method -> its samples; those of other tasks are left alone.
        unit: ``unit`` resamples what the task names as its unit, ``sample`` every sample by itself.
    """
    if unit not in UNITS:
        raise PairingError(f"unit={unit!r}; allowed are {' and '.join(UNITS)}. Write unit='unit'.")
    joined = {name: _by_id(task, name, samples) for name, samples in runs.items()}
    _check_paired(task, joined)
    first = next(iter(joined.values()))
    order = sorted(first.values(), key=lambda s: (s.stratum, _unit(s, unit), s.sample_id))
    stats = _stat_names(task, joined)
    kinds = sorted({kind for sample in order for kind in sample.groups})
    keys = [(sample.stratum, _unit(sample, unit)) for sample in order]
    starts = [i for i, key in enumerate(keys) if i == 0 or key != keys[i - 1]]
    strata = sorted({sample.stratum for sample in order})
    columns = []
    for samples in joined.values():
        mine = [samples[sample.sample_id] for sample in order]
        rows = np.array([[sample.stats[name] for name in stats] for sample in mine])
        rows = rows.astype(np.float64).reshape(len(mine), len(stats))
        parts = [np.add.reduceat(rows, starts, axis=0)]
        parts += [_group_sums(task, kind, mine, keys, starts) for kind in kinds]
        columns.append(np.concatenate(parts, axis=1))
    return UnitSums(
        task=task,
        methods=tuple(joined),
        strata=tuple(strata),
        stratum=np.array([strata.index(keys[i][0]) for i in starts], dtype=np.intp),
        stats=(*stats, *(f"{part}:{kind}" for kind in kinds for part in ("all", "groups"))),
        values=np.stack(columns, axis=-1),
    )


def _unit(sample: Sample, unit: str) -> str:
    return sample.unit_id if unit == "unit" else sample.sample_id


def _by_id(task: str, method: str, samples: Iterable[Sample]) -> dict[str, Sample]:
    """The task's samples by id; a doubled id is refused."""
    found: dict[str, Sample] = {}
    doubled = []
    for sample in samples:
        if sample.task == task:
            doubled += [sample.sample_id] if sample.sample_id in found else []
            found[sample.sample_id] = sample
    if doubled:
        raise PairingError(
            f"{method!r} has {len(doubled)} doubled ids in {task!r}: {_some(doubled)}; every "
            "sample is answered once per run. Merge shards with the check on, or drop a run that "
            "was given twice."
        )
    return found


def _check_paired(task: str, joined: Mapping[str, Mapping[str, Sample]]) -> None:
    """Same ids everywhere, and for each id the same unit, stratum and groups."""
    if not joined:
        raise PairingError(f"no runs of {task!r}; at least one method is needed.")
    everything = set().union(*(samples.keys() for samples in joined.values()))
    if not everything:
        raise PairingError(f"no samples of {task!r} in {', '.join(map(repr, joined))}.")
    for method, samples in joined.items():
        missing = everything - samples.keys()
        if missing:
            raise PairingError(
                f"{method!r} lacks {len(missing)} of the {len(everything)} samples of {task!r}: "
                f"{_some(sorted(missing))}; paired statistics need every sample of every method. "
                f"Resume that run, or compare without it."
            )
    (reference, first), *others = joined.items()
    for method, samples in others:
        for key, mine in samples.items():
            theirs = first[key]
            seen, known = ((s.unit_id, s.stratum, dict(s.groups)) for s in (mine, theirs))
            if seen != known:
                raise PairingError(
                    f"sample {key!r} of {task!r} has unit, stratum and groups {seen} in {method!r} "
                    f"and {known} in {reference!r}; paired runs share them. Run both on the same "
                    "data with the same options of the task."
                )


def _stat_names(task: str, joined: Mapping[str, Mapping[str, Sample]]) -> list[str]:
    """Names of the statistics, which all samples share."""
    names = None
    for method, samples in joined.items():
        for sample in samples.values():
            names = sample.stats.keys() if names is None else names
            if sample.stats.keys() != names:
                raise PairingError(
                    f"sample {sample.sample_id!r} of {task!r} in {method!r} has the statistics "
                    f"{sorted(sample.stats)}, others have {sorted(names)}; all samples of a task "
                    "share them. Score both runs with one version of the task."
                )
    return sorted(names or ())


def _group_sums(
    task: str,
    kind: str,
    samples: Sequence[Sample],
    keys: Sequence[tuple[str, str]],
    starts: Sequence[int],
) -> Floats:
    """Right groups and groups of one kind in every unit, [units, 2].

    Args:
        task: name of the task.
        kind: of group.
        samples: unit by unit.
        keys: stratum and unit of every sample.
        starts: index of every unit's first sample.
    """
    right: dict[tuple[str, str], bool] = {}
    home: dict[tuple[str, str], tuple[str, str]] = {}
    for sample, key in zip(samples, keys, strict=True):
        if kind not in sample.groups:
            continue
        group = (sample.stratum, sample.groups[kind])
        if home.setdefault(group, key) != key:
            raise PairingError(
                f"the {kind} {group[1]!r} of {task!r} lies in the units {home[group][1]!r} and "
                f"{key[1]!r}; a group moves as a whole, so it lies in one. Resample by "
                "unit='unit', or let the task name a larger unit."
            )
        right[group] = right.get(group, True) and sample.score == 1
    number = {keys[start]: row for row, start in enumerate(starts)}
    sums = np.zeros((len(starts), 2))
    for group, key in home.items():
        sums[number[key]] += (right[group], 1.0)
    return sums


def _some(names: Sequence[str]) -> str:
    """A few of the names, and how many more there are."""
    more = f" and {len(names) - 5} more" if len(names) > 5 else ""
    return ", ".join(map(repr, names[:5])) + more
