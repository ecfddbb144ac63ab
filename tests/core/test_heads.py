"""Gram matrices, clusters and weights of heads against the oracle."""

from collections import Counter

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from tests import oracle
from tests.core.helpers import AGREE, FEW, close, tensor
from tests.instances import gram_cases, population_cases
from vicoset.core import heads, messages


def view_gram(A, Z, dtype=torch.float64):
    Z = tensor(Z, dtype)
    return heads.view_gram(tensor(A, dtype), Z, messages.mass_coordinate(Z))


def test_gram_equals_the_oracle():
    seen = Counter()

    @AGREE
    @given(population_cases())
    def check(case):
        masses = oracle.view_masses(case.history)
        right = [oracle.view_gram(A, Z, oracle.mass_coordinate(Z)) for A, Z in case.views]
        for dtype, rtol, floor in [(torch.float64, 1e-9, 1e-12), (torch.float32, 1e-4, 1e-5)]:
            grams = [view_gram(A, Z, dtype) for A, Z in case.views]
            for gram, expected in zip(grams, right, strict=True):
                assert gram.dtype == dtype
                close(gram, expected, rtol, floor)
            whole = heads.head_gram(grams, masses.tolist())
            close(whole, oracle.head_gram(right, masses), rtol, floor)
            expected = oracle.head_clusters(oracle.head_gram(right, masses))
            seen[dtype, heads.head_clusters(whole).tolist() == expected.tolist()] += 1

    check()
    assert not seen[torch.float64, False], seen
    # In float32 a comparison may fall on the other side of the grid, but seldom.
    assert seen[torch.float32, False] < 0.01 * seen[torch.float32, True], seen


@given(gram_cases(), st.integers(1, 6), st.sampled_from([0.05, 0.01, 1.0]))
@AGREE
def test_clusters_and_weights_equal_the_oracle(case, most, dispersion):
    clusters = oracle.head_clusters(case.gram, most)
    found = heads.head_clusters(tensor(case.gram), most)
    assert found.dtype == torch.int64 and found.tolist() == clusters.tolist()
    expected = oracle.head_weights(case.gram, clusters, dispersion)
    close(heads.head_weights(tensor(case.gram), found, dispersion), expected, floor=0)
    low = heads.head_weights(tensor(case.gram, torch.float32), found, dispersion)
    assert low.dtype == torch.float32
    close(low, expected, rtol=1e-3, floor=0)


@given(gram_cases(), st.integers(0, 2**32 - 1))
@AGREE
def test_weights_of_any_clustering_equal_the_oracle(case, seed):
    """Also of clusters that farthest-first never finds: opposite, inactive, with gaps."""
    count = len(case.gram)
    clusters = np.random.default_rng(seed).integers(0, count, size=count)
    found = heads.head_weights(tensor(case.gram), tensor(clusters))
    # Opposite unit patterns may cancel; whatever rounding leaves of their sum has no direction.
    norms = np.sqrt(np.diag(case.gram))
    unit = case.patterns / np.where(norms > 0, norms, 1.0)[:, None]
    sums = [np.linalg.norm(unit[clusters == c].sum(0)) for c in np.unique(clusters)]
    assert abs(float(found.sum()) - 1) < 1e-12
    if min(sums) > 1e-4 or not case.gram.any():
        close(found, oracle.head_weights(case.gram, clusters), floor=0)


@given(gram_cases())
@FEW
def test_weights_sum_to_one_and_clusters_weigh_alike(case):
    gram = tensor(case.gram)
    clusters = heads.head_clusters(gram)
    weights = heads.head_weights(gram, clusters)
    groups = clusters.unique()
    assert bool((weights > 0).all())
    for group in groups:
        assert float(weights[clusters == group].sum()) == pytest.approx(1 / len(groups))


@given(gram_cases(), st.integers(-20, 20))
@FEW
def test_the_scale_of_all_patterns_does_not_matter(case, power):
    gram = tensor(case.gram)
    clusters = heads.head_clusters(gram)
    assert torch.equal(heads.head_clusters(gram * 4.0**power), clusters)
    scaled = heads.head_weights(gram * 4.0**power, clusters)
    assert torch.equal(scaled, heads.head_weights(gram, clusters))


def test_head_weights_by_hand():
    # Heads 0 and 1 agree, 2 is orthogonal to both, 3 has no energy and joins the first cluster.
    patterns = torch.tensor([[2.0, 0], [2, 0], [0, 1], [0, 0]], dtype=torch.float64)
    gram = patterns @ patterns.T
    clusters = heads.head_clusters(gram)
    assert clusters.tolist() == [0, 0, 1, 0]
    # Inside the first: 1/0.05, 1/0.05 and 1/1.05, together a half.
    raw = np.array([20.0, 20.0, 1 / 1.05])
    first = raw / raw.sum() / 2
    close(heads.head_weights(gram, clusters), [first[0], first[1], 0.5, first[2]], floor=0)


def test_farthest_first_by_hand():
    # At angles of 0, 10, 80 and 45 degrees, the third the largest: it, then 0 (80 degrees away),
    # then 45 (35 away), and the second joins the first.
    angle, size = np.deg2rad([0.0, 10.0, 80.0, 45.0]), np.array([1.0, 1.0, 3.0, 1.0])
    patterns = torch.tensor(np.stack([np.cos(angle), np.sin(angle)], 1) * size[:, None])
    gram = patterns @ patterns.T
    assert heads.head_clusters(gram, 1).tolist() == [0, 0, 0, 0]
    assert heads.head_clusters(gram, 2).tolist() == [1, 1, 0, 0]
    assert heads.head_clusters(gram, 3).tolist() == [1, 1, 0, 2]
    assert heads.head_clusters(gram, 4).tolist() == [1, 3, 0, 2]


@given(population_cases(max_tokens=60), st.integers(1, 7))
@FEW
def test_chunks_of_tokens_give_the_same_gram(case, chunk):
    whole = [view_gram(A, Z) for A, Z in case.views]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(heads, "TOKEN_CHUNK", chunk)
        for gram, (A, Z) in zip(whole, case.views, strict=True):
            close(view_gram(A, Z), gram.numpy())


@pytest.mark.parametrize("share", [1e-12, 1e-20, 1e-30, 1e-40])
def test_a_head_that_hardly_reads_the_image_keeps_its_pattern(share):
    """Patterns have unit mean, so a head at 1e-30 of its attention counts like any other."""
    torch.manual_seed(0)
    A, Z = torch.rand(3, 4, 12) / 12, torch.randn(3, 12, 4)
    plain = view_gram(A.numpy(), Z.numpy(), torch.float32)
    A[0] *= share
    faint = view_gram(A.numpy(), Z.numpy(), torch.float32)
    # 1e-40 is subnormal in float32: few digits are left, none of them is lost here.
    assert torch.allclose(faint, plain, rtol=1e-3 if share < 1e-37 else 1e-5)
