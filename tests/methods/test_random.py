"""The random control: seeded, uniform, fair to every image."""

import itertools
from dataclasses import replace

import pytest
import torch

from tests.core.helpers import refused
from tests.methods.scenes import random_scene
from vicoset.errors import BudgetError, SettingError
from vicoset.methods import Random


def picks(keep, seed=0, sample=0, **options):
    return Random(seed).select(random_scene(sample=sample, history=0, **options), keep).indices


@pytest.mark.parametrize(("tokens", "images"), [(1, 1), (20, 1), (31, 3), (12, 12)])
def test_exactly_k_ascending_tokens_with_every_image(tokens, images):
    scene = random_scene(tokens=tokens, images=images, history=0)
    for sample in range(10):
        for keep in range(images, tokens + 1):
            found = Random().select(replace(scene, seed=sample), keep).indices
            assert found.dtype == torch.int64 and len(found) == keep
            assert found.tolist() == sorted(set(found.tolist()))
            assert int(found[0]) >= 0 and int(found[-1]) < tokens
            assert set(scene.image_ids[found].tolist()) == set(range(images))


def test_the_draw_depends_on_both_seeds_and_on_nothing_else():
    assert torch.equal(picks(9), picks(9))
    state = torch.random.get_rng_state()
    first = picks(9, 3, 4)
    assert torch.equal(torch.random.get_rng_state(), state)
    torch.manual_seed(99)
    assert torch.equal(first, picks(9, 3, 4))
    draws = {tuple(picks(9, seed, sample).tolist()) for seed in range(5) for sample in range(5)}
    assert len(draws) == 25


def test_a_smaller_budget_keeps_a_subset():
    scene = random_scene(tokens=50, images=4, history=0)
    kept = [set(Random().select(scene, keep).indices.tolist()) for keep in range(4, 51)]
    assert all(small < large for small, large in itertools.pairwise(kept))


def test_every_token_is_drawn_equally_often():
    scene = random_scene(tokens=10, history=0)
    counts = torch.zeros(10)
    for sample in range(2000):
        counts[Random().select(replace(scene, seed=sample), 3).indices] += 1
    # 600 expected, standard deviation 20
    assert counts.sub(600).abs().max() < 90


def test_it_reads_no_view():
    scene = replace(random_scene(history=0), views=())
    selection = Random(5).select(scene, 4)
    assert selection.grounding is None
    assert selection.evidence == {"seed": 5, "sample_seed": 0}


def test_refusals():
    with refused(BudgetError, "keep=1", "2 to 40"):
        picks(1, images=2)
    with refused(SettingError, "seed='a'"):
        Random("a")
    with refused(SettingError, "seed=True"):
        Random(True)
