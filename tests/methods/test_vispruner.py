"""VisPruner against the plain loop that takes every cosine again, and by hand."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from tests.core.helpers import refused
from tests.methods.towers import towered
from vicoset.errors import SettingError
from vicoset.methods import cosines, vispruner
from vicoset.methods.vispruner import VisPruner


def plain(features, scores, keep, important):
    """Important tokens, then rounds of matching over a Python list."""
    order = sorted(range(len(scores)), key=lambda v: -scores[v])
    first = int(keep * important)
    kept, rest = order[:first], order[first:]
    rows = features / np.linalg.norm(features, axis=1, keepdims=True)
    while len(rest) > keep - first and keep > first:
        ones, twos = rest[::2], rest[1::2]
        best = [max(float(rows[a] @ rows[b]) for b in twos) for a in ones]
        ranked = sorted(range(len(ones)), key=lambda n: -best[n])
        going = min(8, len(rest) - (keep - first), len(ones))
        rest = [ones[n] for n in ranked[going:]] + twos
    return sorted(kept + (rest if keep > first else []))


@pytest.mark.parametrize("important", [0.5, 0.0, 1.0, 0.75])
@pytest.mark.parametrize("held", [True, False], ids=["kept cosines", "taken again"])
@pytest.mark.parametrize("near", [1, 3, 16])
def test_rounds_of_matching(important, held, near, monkeypatch):
    monkeypatch.setattr(vispruner, "NEAR", near)
    if not held:
        monkeypatch.setattr(cosines, "HELD", 0)
    draw = np.random.default_rng(0)
    features, scores = draw.normal(size=(61, 9)), draw.random(61)
    scene = towered(features, scores)
    for keep in (1, 2, 7, 30, 59, 60):
        found = VisPruner(important).select(scene, keep).indices.tolist()
        assert found == plain(features, scores, keep, important)


def test_by_hand_the_token_with_a_double_goes():
    # By attention: 3 first; of the others 0 and 2 look the same, and 0 stands at an even place.
    features = [[1.0, 0.0], [0.0, 1.0], [1.0, 0.01], [0.5, 0.5], [-1.0, 0.3]]
    scores = [0.3, 0.1, 0.2, 0.4, 0.05]
    assert VisPruner(0.25).select(towered(features, scores), 4).indices.tolist() == [1, 2, 3, 4]


def test_images_are_matched_alone():
    torch.manual_seed(0)
    features, scores = torch.randn(12, 4), torch.rand(12)
    both = VisPruner().select(towered(features, scores, images=2), 8).indices
    one = VisPruner().select(towered(features[:6], scores[:6]), 4).indices
    two = VisPruner().select(towered(features[6:], scores[6:]), 4).indices
    assert both.tolist() == [*one.tolist(), *(two + 6).tolist()]


def test_a_share_is_in_its_bounds():
    with refused(SettingError, "important=-1", "[0, 1]"):
        VisPruner(-1)
