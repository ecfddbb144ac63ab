"""DivPrune and the cosines it reads: by hand, and against distances recomputed at every pick."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from tests.methods.parts import at_input, greedy, normal, tower_of
from vicoset.methods import cosines, registry
from vicoset.methods.cosines import Cosines
from vicoset.methods.greedy import Picks, farthest_first


@pytest.fixture(params=["held", "row by row"])
def memory(request, monkeypatch):
    """Both ways to the same cosines."""
    monkeypatch.setattr(cosines, "ROWS", 100)
    monkeypatch.setattr(cosines, "BLOCK", 7)
    if request.param == "row by row":
        monkeypatch.setattr(cosines, "HELD", 0)


def plain(rows):
    rows = rows.double().numpy()
    rows = rows / np.linalg.norm(rows, axis=1, keepdims=True)
    return rows @ rows.T


def test_five_points_on_the_circle_by_hand():
    degrees = torch.tensor([0.0, 10.0, 100.0, 180.0, 190.0])
    points = torch.stack([degrees.deg2rad().cos(), degrees.deg2rad().sin()], 1)
    # 100 is 80 from its neighbour, all others 10. From there 0 is farthest (100), then 190 (90 from
    # both); 10 and 180 are 10 from a pick, a tie for the lower index.
    for keep, wanted in enumerate([[2], [0, 2], [0, 2, 4], [0, 1, 2, 4]], 1):
        scene = at_input(points * torch.tensor([[1.0], [5.0], [0.1], [2.0], [9.0]]))
        found = registry.selector("divprune").select(scene, keep)
        assert found.indices.tolist() == wanted


@pytest.mark.usefixtures("memory")
@pytest.mark.parametrize("name", ["divprune", "divprune-vit"])
@pytest.mark.parametrize("images", [1, 3])
def test_the_running_minimum_is_the_recomputation(name, images):
    embeddings, features = normal(1, 45, 8), normal(2, 45, 5)
    scene = at_input(embeddings, images=images, tower=tower_of(features))
    distance = 1 - plain(embeddings if name == "divprune" else features)

    def score(v, picked):
        if picked:
            return min(distance[u, v] for u in picked)
        return min(distance[u, v] for u in range(45) if u != v)

    for keep in (images, 4, 20, 44):
        wanted = greedy(scene.image_ids.tolist(), keep, score)
        assert registry.selector(name).select(scene, keep).indices.tolist() == wanted


def test_the_radius_is_the_distance_to_the_nearest_pick():
    scene = at_input(normal(3, 30, 6))
    found = registry.selector("divprune").select(scene, 7)
    distance = 1 - plain(scene.embeddings)[:, found.indices.numpy()]
    assert float(found.evidence["radius"]) == pytest.approx(distance.min(1).max(), abs=1e-5)


def test_duplicates_never_repeat_an_index():
    scene = at_input(normal(4, 20, 8).repeat(6, 1))  # 20 vectors, six times each
    found = registry.selector("divprune").select(scene, 40).indices
    assert len(set(found.tolist())) == 40
    assert len(set((found % 20).tolist())) == 20
    assert found[:20].tolist() == list(range(20))  # of equal ones the first


@pytest.mark.usefixtures("memory")
def test_cosines_are_those_of_numpy_in_any_order_of_asking():
    rows = normal(5, 33, 9)
    rows[7] = 0.0  # a padding token has no direction
    wanted = plain(rows.index_fill(0, torch.tensor([7]), 1.0))
    wanted[7] = wanted[:, 7] = 0.0
    found = Cosines(rows, 33)
    np.testing.assert_allclose(found.rows(torch.tensor([3, 30, 3])), wanted[[3, 30, 3]], atol=2e-6)
    np.testing.assert_allclose(torch.cat([c for _, c in found.pieces()]), wanted, atol=2e-6)
    np.fill_diagonal(wanted, -np.inf)
    np.testing.assert_allclose(found.to_the_nearest(), wanted.max(1), atol=2e-6)


def test_held_cosines_are_symmetric_to_the_bit_and_few_are_not_held():
    found = Cosines(normal(6, 70, 50), 70)
    assert torch.equal(found.held, found.held.mT)
    assert Cosines(normal(6, 70, 50), 70 // cosines.WORTH - 1).held is None
    assert Cosines(normal(6, 1, 50), 1).to_the_nearest().tolist() == [-torch.inf]


def test_many_picks_at_once_are_single_picks_one_after_another():
    scores = torch.tensor([1.0, 5.0, 5.0, torch.nan, 2.0, 9.0, 2.0, 0.0])
    for images in (1, 2):
        scene = at_input(normal(7, 8, 4), images=images)
        at_once, singly = Picks(scene, 6), Picks(scene, 6)
        at_once.take(-scores)
        at_once.take_best(scores, 5)
        singly.take(-scores)
        for _ in range(5):
            singly.take(scores)
        assert at_once.order().tolist() == singly.order().tolist()
        assert at_once.left == 0
    ints = Picks(at_input(normal(7, 8, 4)), 3)
    ints.take_best(torch.tensor([0, 3, 3, 1, 0, 0, 0, 0]), 3)
    assert ints.order().tolist() == [1, 2, 3]


def test_farthest_first_needs_one_row_a_pick():
    rows = Cosines(normal(8, 12, 4), 0)
    asked = []

    def row(token):
        asked.append(int(token))
        return rows.row(token)

    picks, _ = farthest_first(at_input(normal(8, 12, 4)), 5, torch.arange(12.0), row)
    assert asked == picks.order().tolist()
