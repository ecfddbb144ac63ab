"""Scenes at the decoder's input with a vision tower that is written down."""

from __future__ import annotations

from dataclasses import replace

import torch

from tests.methods.scenes import random_scene
from vicoset.methods.base import Parts, Tower


def towered(features, scores, keys=None, images=1, project=None, cls=True, boundary=0):
    """A scene whose states are the features, through the projector where there is one.

    Args:
        features: [N, dz].
        scores: [N] attention of the class token; received attention without one.
        keys: [N, dk]; None for the features.
        images: the tokens are dealt to them in equal runs.
        project: of the tower.
        cls: whether the tower has a class token.
        boundary: of the scene.
    """
    features = torch.as_tensor(features, dtype=torch.float32)
    scores = torch.as_tensor(scores, dtype=torch.float32)
    keys = features if keys is None else torch.as_tensor(keys, dtype=torch.float32)
    states = features if project is None else project(features)
    other = scores.flip(0)  # what must not be read
    tower = Tower(features, keys, other if cls else scores, scores if cls else None, None, project)
    scene = random_scene(tokens=len(features), images=images, history=0, width=states.shape[1])
    return replace(scene, states=states, boundary=boundary, parts=Parts(tower=tower))


def doubled(features):
    """A projector that is not linear, so that merging before and after it differ."""
    return torch.cat([features.square(), features], 1)
