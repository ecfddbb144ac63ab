"""The last step of ranking methods."""

import itertools

import pytest
import torch

from tests.core.helpers import refused
from tests.methods.scenes import random_scene
from vicoset.errors import BudgetError
from vicoset.methods.choose import leaders, quotas, ranked, top


def brute(scene, scores, keep):
    """Each image's best first, then the best, ties to the lower index."""
    order = sorted(range(len(scores)), key=lambda i: (-scores[i], i))
    ids = scene.image_ids.tolist()
    first = [next(i for i in order if ids[i] == image) for image in range(scene.images)]
    front = [i for i in order if i in first] + [i for i in order if i not in first]
    return sorted(front[:keep])


@pytest.mark.parametrize(("tokens", "images"), [(1, 1), (12, 1), (13, 3), (5, 5)])
def test_top_is_the_plain_sort(tokens, images):
    draw = torch.Generator().manual_seed(tokens)
    scene = random_scene(tokens=tokens, images=images, history=0)
    for scores in (
        torch.randn(tokens, generator=draw),
        torch.randint(0, 3, (tokens,), generator=draw).float(),
        torch.zeros(tokens, dtype=torch.bfloat16),
    ):
        for keep in range(images, tokens + 1):
            assert top(scene, scores, keep).tolist() == brute(scene, scores.tolist(), keep)


def test_ties_go_to_the_first_and_nan_to_the_last():
    scene = random_scene(tokens=4, history=0)
    assert top(scene, torch.ones(4), 2).tolist() == [0, 1]
    assert top(scene, torch.tensor([float("nan"), 1.0, float("-inf"), 2.0]), 2).tolist() == [1, 3]
    assert ranked(scene, torch.tensor([0.0, 1.0, 1.0, 3.0])).tolist() == [3, 1, 2, 0]


def test_leaders_are_the_first_of_each_image():
    scene = random_scene(tokens=6, images=2, history=0)
    assert leaders(scene, torch.tensor([4, 1, 0, 5, 3, 2])).tolist() == [1, 4]


def test_quotas_add_up_and_fit():
    for tokens, images in itertools.product((1, 5, 12, 31), (1, 2, 5)):
        if images > tokens:
            continue
        scene = random_scene(tokens=tokens, images=images, history=0)
        sizes = torch.bincount(scene.image_ids).tolist()
        for keep in range(images, tokens + 1):
            found = quotas(scene, keep)
            assert sum(found) == keep
            assert all(1 <= mine <= size for mine, size in zip(found, sizes, strict=True))
        assert quotas(scene, tokens) == sizes


def test_quotas_follow_the_sizes():
    scene = random_scene(tokens=40, images=2, history=0)
    assert quotas(scene, 10) == [5, 5]
    assert quotas(scene, 11) == [6, 5]


def test_a_budget_below_the_images_is_refused():
    with refused(BudgetError, "keep=1"):
        top(random_scene(tokens=6, images=2, history=0), torch.zeros(6), 1)
