"""MMTok: the incremental greedy against the plain one, its text rules, and cases by hand."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from tests.core.helpers import refused
from tests.methods.parts import at_input, greedy, normal, tower_of
from vicoset.errors import SettingError
from vicoset.methods import cosines, cover, registry
from vicoset.methods.cover import Covering, Similar, Table
from vicoset.methods.mmtok import MMTok, spoken

SUFFIX = "\nAnswer the question using a single word or phrase."


def softmax(values):
    powers = np.exp(values - values.max(1, keepdims=True))
    return powers / powers.sum(1, keepdims=True)


def cosine(left, right):
    left, right = (np.asarray(x, dtype=np.float64) for x in (left, right))
    left = left / np.linalg.norm(left, axis=1, keepdims=True)
    return left @ (right / np.linalg.norm(right, axis=1, keepdims=True)).T


def offers(words, embeddings, features, alpha, text, vision):
    """C [m + N, N] of the paper."""
    first = softmax(cosine(words, embeddings) / text) / len(words)
    second = softmax(cosine(features, features) / vision) / len(features)
    return np.concatenate([first, alpha * second])


def scene_of(images=1, llava=False, tokens=50, seed=0, question="some words here"):
    said = []

    def embed(words):
        said.append(words)
        return normal(seed + 2, len(words), 12)

    features = normal(seed + 1, tokens, 7)
    tower = tower_of(features, project=(lambda z: z) if llava else None)
    embeddings = normal(seed, tokens, 12)
    return at_input(embeddings, images=images, question=question, embed=embed, tower=tower), said


@pytest.mark.parametrize("held", [True, False])
@pytest.mark.parametrize("images", [1, 3])
@pytest.mark.parametrize("alpha", [0.5, 0.0, 8.0])
@pytest.mark.parametrize("llava", [True, False])
def test_incremental_is_the_full_greedy(monkeypatch, held, images, alpha, llava):
    monkeypatch.setattr(cover, "ROWS", 120)  # corrections in pieces of two rows
    if not held:
        monkeypatch.setattr(cosines, "HELD", 0)
    scene, said = scene_of(images, llava, seed=3)
    # Shares as sharp as the released ones tie at once where nothing but words is covered.
    method = MMTok(alpha=alpha, text_temperature=None if alpha else 0.1)
    method.select(scene, images)
    words = normal(5, len(said[0]), 12)
    warm = (0.02 if llava else 0.01) if alpha else 0.1
    table = offers(words, scene.embeddings, scene.tower.features, alpha, warm, 0.2)

    def score(v, picked):
        best = table[:, picked].max(1) if picked else np.zeros(len(table))
        return np.maximum(table[:, v] - best, 0).sum()

    for keep in (images, 4) if alpha == 0.0 else (images, 5, 25):
        wanted = greedy(scene.image_ids.tolist(), keep, score)
        assert method.select(scene, keep).indices.tolist() == wanted


def test_gains_stay_exact():
    similar = Similar(normal(0, 40, 6), 0.2, float(cover.PEAK))
    table = similar.rows(torch.arange(40)).long()
    assert torch.equal(table[:, 11], similar.column(torch.tensor([11])).long())
    assert int((table.sum(1) - cover.PEAK).abs().max()) < 2000  # rows are shares of one
    big = torch.randint(0, 1 << 40, (5, 40), generator=torch.Generator().manual_seed(1))
    for offers_, dense in ((similar, table), (Table(big), big)):
        family = Covering(offers_, len(dense), 40, torch.device("cpu"))
        best = torch.zeros(len(dense), dtype=torch.long)
        for column in (4, 9, 9, 31, 0, 39):
            gains = (dense - best[:, None]).clamp_min(0).sum(0)
            assert torch.equal(family.gains, gains)
            family.enter(torch.tensor([column]))
            best = torch.maximum(best, dense[:, column])
        assert torch.equal(family.best.long(), best)


def test_offers_made_anew_are_those_held(monkeypatch):
    held = Similar(normal(0, 40, 6), 0.2, float(cover.PEAK)).rows(torch.arange(40)).double()
    monkeypatch.setattr(cosines, "HELD", 0)
    similar = Similar(normal(0, 40, 6), 0.2, float(cover.PEAK))
    # To the lattice of the cosines, 2^-20, divided by the temperature.
    close = {"rtol": 1e-5, "atol": 2.0}
    torch.testing.assert_close(similar.rows(torch.arange(40)).double(), held, **close)
    torch.testing.assert_close(similar.column(torch.tensor([7])).double(), held[:, 7], **close)


def test_two_kinds_of_tokens_by_hand():
    # Four tokens look alike and two alike; words are like tokens 1 and 5.
    features = torch.tensor([[1.0, 0]] * 4 + [[0.0, 1]] * 2)
    embeddings = torch.eye(6)
    words = embeddings[[1, 5]]
    scene = at_input(embeddings, question="a b", embed=lambda _: words, tower=tower_of(features))
    # With both: a word and the larger group at once, then the other word and the other group.
    assert registry.selector("mmtok").select(scene, 1).indices.tolist() == [1]
    assert registry.selector("mmtok").select(scene, 2).indices.tolist() == [1, 5]
    # Text alone: nothing is left to gain after two picks, so the lowest index follows.
    assert MMTok(alpha=0.0).select(scene, 2).indices.tolist() == [1, 5]
    assert MMTok(alpha=0.0).select(scene, 3).indices.tolist() == [0, 1, 5]
    # A question without a word leaves the features.
    silent = at_input(
        embeddings, question="", embed=lambda _: words[:0], tower=tower_of(features, project=id)
    )
    assert registry.selector("mmtok").select(silent, 2).indices.tolist() == [0, 4]
    assert MMTok(alpha=0.0).select(silent, 2).indices.tolist() == [0, 1]


def test_words_of_the_two_releases():
    question = "What color is the dog's collar?" + SUFFIX
    scene, said = scene_of(llava=True, question=question)
    registry.selector("mmtok").select(scene, 4)
    assert said == [["color", "dog", "s", "collar"]]
    scene, said = scene_of(llava=False, question=question)
    registry.selector("mmtok").select(scene, 4)
    assert said == [("Question: " + question).split()]
    assert said[0][:4] == ["Question:", "What", "color", "is"] and said[0][-1] == "phrase."
    # Where every word is a function word, all of them stay as they are.
    assert spoken("What is it?" + SUFFIX) == ["What", "is", "it?"]
    letters = "Which?\nAnswer with the option's letter from the given choices directly."
    assert spoken("A red one: " + letters) == ["red", "one"]


def test_the_temperature_can_be_set():
    scene, _ = scene_of(llava=True, seed=9)
    usual, warm, same = (
        MMTok(text_temperature=t).select(scene, 12).indices.tolist() for t in (None, 5.0, 0.02)
    )
    assert usual == same != warm


def test_numbers_that_are_none_are_refused():
    for wrong in ({"alpha": -1}, {"text_temperature": 0.0}, {"vision_temperature": "0.2"}):
        with refused(SettingError, next(iter(wrong)), "allowed"):
            MMTok(**wrong)
