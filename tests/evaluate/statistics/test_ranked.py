"""AUROC and quantiles of replicates equal those of the multisets, written out."""

import numpy as np
import pytest

from vicoset.errors import StatisticsError
from vicoset.evaluate.statistics.bootstrap import UnitSums
from vicoset.evaluate.statistics.ranked import Column, auroc, drawn, quantile


def multisets(weights, *columns):
    """Every replicate as the samples it holds, as often as it holds them."""
    for row in weights.astype(int):
        yield [np.repeat(column, row) for column in columns]


def pairs(scores, events):
    """P(event's score above another's) by looking at every pair."""
    found = [
        (a > b) + 0.5 * (a == b)
        for a, e in zip(scores, events, strict=True)
        if e
        for b, f in zip(scores, events, strict=True)
        if not f
    ]
    return sum(found) / len(found) if found else np.nan


@pytest.mark.parametrize("seed", range(5))
def test_auroc_counts_the_pairs_of_every_replicate(seed):
    dice = np.random.default_rng(seed)
    scores = dice.integers(0, 6, 12) / 4  # with ties
    events = dice.random(12) < 0.3
    weights = dice.integers(0, 3, (40, 12)).astype(np.float64)
    weights[0, events] = 0
    wanted = [pairs(s, e) for s, e in multisets(weights, scores, events)]
    assert np.isnan(wanted[0])
    assert auroc(weights, scores, events) == pytest.approx(wanted, nan_ok=True)


@pytest.mark.parametrize("share", [0.0, 0.05, 0.33, 0.5, 0.95, 1.0])
@pytest.mark.parametrize("seed", range(3))
def test_quantiles_are_numpys_of_every_replicate(seed, share):
    dice = np.random.default_rng(seed)
    values = dice.normal(size=15).round(1)
    weights = dice.integers(0, 4, (60, 15)).astype(np.float64)
    weights[1] = 0
    weights[1, 3] = 1
    wanted = [np.quantile(mine, share) for (mine,) in multisets(weights, values)]
    assert quantile(weights, values, share) == pytest.approx(wanted)
    assert np.isnan(quantile(np.zeros((1, 15)), values, share)).all()
    assert np.isnan(quantile(np.ones((2, 0)), np.zeros(0), share)).all()


def sums(units=9, task="fake"):
    strata = np.array([0] * 4 + [1] * (units - 4))
    return UnitSums(task, ("m",), ("a", "b"), strata, ("n",), np.ones((units, 1, 1)))


def test_the_draws_are_those_of_sums():
    """Paired with every score of the task: the same units, in the same replicates."""
    dice = np.random.default_rng(3)
    values = dice.normal(size=9)
    named = UnitSums("fake", ("m",), ("a", "b"), sums().stratum, ("v",), values[:, None, None])
    totals = np.concatenate([t["v"][:, 0] for _, t in named.resampled(300, 7, False)])
    counts = np.concatenate([rows for _, rows in named.drawn(300, 7)])
    assert counts.shape == (300, 9) and (counts[:, :4].sum(1) == 4).all()
    assert totals == pytest.approx(counts @ values)
    assert not np.array_equal(counts, np.concatenate([r for _, r in sums(9, "x").drawn(300, 7)]))


def test_only_the_chosen_samples_count():
    units = [0, 0, 1, 2, 3, 4, 5, 6, 7, 8, 8]
    dice = np.random.default_rng(5)
    scores, chosen = dice.normal(size=11), dice.random(11) < 0.7
    events = dice.random(11) < 0.4
    columns = {
        "auc": Column(scores[chosen], events[chosen], chosen),
        "low": Column(scores, None, np.ones(11, bool), 0.05),
    }
    found = drawn(sums(), units, columns, 200, 1)
    counts = np.concatenate([rows for _, rows in sums().drawn(200, 1)])[:, units]
    wanted = [pairs(s, e) for s, e in multisets(counts[:, chosen], scores[chosen], events[chosen])]
    assert found["auc"] == pytest.approx(wanted, nan_ok=True)
    assert found.of("auc") == pytest.approx(pairs(scores[chosen], events[chosen]))
    assert found.of("low") == pytest.approx(np.quantile(scores, 0.05))
    with pytest.raises(StatisticsError, match="no columns"):
        drawn(sums(), units, {}, 10, 0)
