"""Scenes at the decoder's input whose parts are written down."""

from __future__ import annotations

from typing import Any

import torch

from vicoset.core.settings import Settings
from vicoset.methods.base import Parts, Scene, Text, Tower


def normal(seed, *shape):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed))


def tower_of(features, received=None, cls=None, cls_feature=None, project=None):
    """A tower whose tensors are given; features alone are enough."""
    received = torch.ones(len(features)) if received is None else received
    return Tower(features, features, received, cls, cls_feature, project)


def at_input(embeddings, words=None, images=1, question=None, embed=None, boundary=0, **given: Any):
    """A scene: N visual tokens at 1..N of the sequence, then the question, then a closing token.

    Args:
        embeddings: [N, d], also the states.
        words: [T, d] embeddings of the question.
        images: the tokens are dealt to them in equal runs.
        question: as a string.
        embed: of words.
        boundary: p.
        given: further parts; companions.
    """
    tokens, width = embeddings.shape
    words = normal(99, 2, width) if words is None else words
    text = torch.cat([words.new_ones(1, width), words, words.new_full((1, width), 3.0)])
    positions = torch.tensor([0, *range(tokens + 1, tokens + 2 + len(words))])
    asked = torch.tensor([False, *[True] * len(words), False])
    companions = given.pop("companions", {})
    states = given.pop("text_states", text)
    return Scene(
        states=embeddings,
        coordinates=torch.rand(tokens, 2, generator=torch.Generator().manual_seed(0)),
        image_ids=torch.arange(tokens) * images // tokens,
        images=images,
        visual=torch.arange(1, tokens + 1),
        queries=positions[1:],
        boundary=boundary,
        views=(),
        settings=Settings(),
        seed=0,
        parts=Parts(
            embeddings=embeddings,
            text=Text(torch.arange(len(text)), text, positions, asked, question, states, embed),
            **given,
        ),
        companions=companions,
    )


def greedy(ids, keep, score):
    """Pick the best token; what is left goes to images without a carrier when it has to."""
    picked: list[int] = []
    while len(picked) < keep:
        bare = set(ids) - {ids[v] for v in picked}
        forced = len(bare) >= keep - len(picked)
        allowed = [v for v in range(len(ids)) if v not in picked and (not forced or ids[v] in bare)]
        picked.append(max(allowed, key=lambda v: (score(v, picked), -v)))
    return sorted(picked)
