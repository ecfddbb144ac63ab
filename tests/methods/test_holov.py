"""HoloV: shares by hand, and the released formula in plain loops."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from tests.core.helpers import refused
from tests.methods.parts import at_input, normal, tower_of
from vicoset.errors import SettingError
from vicoset.methods.holov import HoloV, chunk_sizes, shared


def test_shares_by_hand():
    assert chunk_sizes(10, 4) == [3, 3, 2, 2]
    assert shared([3.0, 1.0], [4, 4], 4) == [3, 1]
    assert shared([3.0, 1.0], [2, 6], 4) == [2, 2]  # a full chunk's rest goes to the next best
    assert shared([1.0, 1.0, 1.0], [3, 3, 3], 4) == [2, 1, 1]  # ties to the first
    assert shared([0.0, 0.0], [2, 2], 3) == [2, 1]
    assert shared([5.0, 1.0, 1.0], [1, 1, 9], 10) == [1, 1, 8]


def test_attention_shares_and_chooses_by_hand():
    # Two chunks of three; all tokens alike, so attention decides: 6 of 8 in the first.
    attention = torch.tensor([1.0, 3.0, 2.0, 0.5, 1.0, 0.5])
    scene = at_input(torch.ones(6, 4), tower=tower_of(torch.ones(6, 2), attention))
    for keep, wanted in ((1, [1]), (2, [1, 2]), (4, [0, 1, 2, 4])):
        assert HoloV(chunks=2).select(scene, keep).indices.tolist() == wanted
    # Of 3 the first chunk has 2.25: 2, and the second 0; the one left goes to the first.
    found = HoloV(chunks=2).select(scene, 3)
    assert found.indices.tolist() == [0, 1, 2] and found.evidence["quotas"] == [[3, 0]]


def released(features, attention, chunks, keep, variety):
    """Shares of the chunks: the published formula, a number at a time."""
    scores = []
    for rows, given in zip(
        np.array_split(features, chunks), np.array_split(attention, chunks), strict=True
    ):
        size = len(rows)
        if size == 1:
            scores.append(1000 * given.mean())
            continue
        near = np.zeros((size, size))
        for u in range(size):
            for v in range(size):
                if u != v:
                    near[u, v] = rows[u] @ rows[v]
                    near[u, v] /= np.linalg.norm(rows[u]) * np.linalg.norm(rows[v])
        mean = near.sum(1) / (size - 1)
        variance = ((near - mean[:, None]) ** 2).sum(1) / (size - 1)
        scaled = 1000 * given
        factor = np.abs(scaled).mean() / (np.abs(variance).mean() + 1e-6)
        scores.append((scaled + variety * variance * factor).mean())
    return shared(scores, [len(part) for part in np.array_split(features, chunks)], keep)


@pytest.mark.parametrize("chunks", [1, 4, 7, 30])
@pytest.mark.parametrize("variety", [0.0, 0.09, 3.0])
def test_chunks_score_as_released(chunks, variety):
    embeddings = normal(1, 30, 6) + 0.5
    attention = torch.rand(30, generator=torch.Generator().manual_seed(2)) ** 3
    scene = at_input(embeddings, tower=tower_of(embeddings, attention))
    for keep in (1, 8, 25):
        found = HoloV(variety, chunks).select(scene, keep)
        wanted = released(
            embeddings.double().numpy(), attention.double().numpy(), chunks, keep, variety
        )
        assert found.evidence["quotas"] == [wanted]
        tokens = [
            v
            for part, count in zip(np.array_split(np.arange(30), chunks), wanted, strict=True)
            for v in sorted(part, key=lambda v: -attention[v])[:count]
        ]
        assert found.indices.tolist() == sorted(tokens)


def test_variety_as_released_moves_no_share():
    """Scaled to the attention of its own chunk, the mean variance is the same share of each."""
    features = torch.cat([normal(4, 12, 5), normal(5, 12, 5) + 9.0])  # varied, then alike
    attention = torch.rand(24, generator=torch.Generator().manual_seed(6))
    scene = at_input(features, tower=tower_of(features, attention))
    shares = [HoloV(v, 4).select(scene, 11).evidence["quotas"] for v in (0.0, 0.09, 0.9)]
    assert shares[0] == shares[1] == shares[2] and len(set(shares[0][0])) > 1


def test_the_number_of_chunks_is_what_was_released():
    features = normal(3, 36, 4)
    seen = []
    for cls in (None, torch.ones(36)):
        scene = at_input(features, images=2, tower=tower_of(features, cls=cls))
        seen.append([len(image) for image in HoloV().select(scene, 8).evidence["quotas"]])
    # Without a class token floor(16 / 9 * 18 / 4) = 8 for each image, with one 16.
    assert seen == [[8, 8], [16, 16]]


def test_class_token_before_received_attention():
    received, cls = torch.arange(6.0), torch.arange(6.0).flip(0)
    scene = at_input(torch.ones(6, 4), tower=tower_of(torch.ones(6, 2), received, cls))
    assert HoloV(chunks=1).select(scene, 2).indices.tolist() == [0, 1]
    scene = at_input(torch.ones(6, 4), tower=tower_of(torch.ones(6, 2), received))
    assert HoloV(chunks=1).select(scene, 2).indices.tolist() == [4, 5]


def test_numbers_that_are_none_are_refused():
    with refused(SettingError, "variety=-1", "from 0 on"):
        HoloV(variety=-1)
    with refused(SettingError, "chunks=0", "from 1 on"):
        HoloV(chunks=0)
