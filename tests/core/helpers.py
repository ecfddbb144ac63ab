"""What the tests of core share: cases as tensors, the oracle's side, comparisons, refusals."""

from contextlib import contextmanager

import numpy as np
import pytest
import torch
from hypothesis import settings

from tests import oracle
from vicoset.core.coreset import Population, Reading

# Agreement with the oracle is checked on at least 2,000 instances per function.
AGREE = settings(max_examples=max(2000, settings().max_examples))
FEW = settings(max_examples=max(100, settings().max_examples // 2))
# The oracle loops, so agreement on as many instances of up to 400 tokens is for `make test-slow`.
HOW_MANY = pytest.mark.parametrize(
    "many", [FEW, pytest.param(AGREE, marks=pytest.mark.slow)], ids=["few", "all"]
)
TINY = 1e-280  # a floor for elementwise relative comparisons, far below every value that occurs


def tensor(array, dtype=None):
    """A copy of a NumPy array (or None) as a tensor; floats may be cast."""
    if array is None:
        return None
    made = torch.from_numpy(np.array(array))
    return made.to(dtype) if dtype is not None and made.is_floating_point() else made


def close(actual, expected, rtol=1e-9, floor=1e-12):
    """Elementwise relative equality, shapes included.

    Entries below ``floor`` times the largest expected one are compared absolutely: for sums of
    mixed signs; values that are sums of positive terms are compared with floor=0.
    """
    actual = actual.detach().double().numpy()
    expected = np.asarray(expected, dtype=np.float64)
    assert actual.shape == expected.shape
    largest = float(np.abs(expected).max(initial=0.0))
    np.testing.assert_allclose(actual, expected, rtol=rtol, atol=floor * largest + TINY)


@contextmanager
def refused(error, *fragments):
    """The block raises exactly this error, and its message holds every fragment."""
    with pytest.raises(error) as caught:
        yield
    assert type(caught.value) is error
    for fragment in fragments:
        assert fragment in str(caught.value)


def population(case, dtype=torch.float64):
    return Population(
        tensor(case.states, dtype),
        tensor(case.coordinates, dtype),
        tensor(case.image_ids),
        case.images,
    )


def readings(case, dtype=torch.float64):
    return [Reading(tensor(A, dtype), tensor(Z, dtype)) for A, Z in case.views]


def random_sample(
    tokens=40,
    images=1,
    width=16,
    heads=4,
    queries=3,
    history=1,
    axes=2,
    seed=0,
    dtype=torch.float32,
):
    """A population and readings that torch draws, images of about equal size."""
    draw = torch.Generator().manual_seed(seed)

    def uniform(*shape):
        return torch.rand(*shape, generator=draw, dtype=dtype)

    def normal(*shape):
        return torch.randn(*shape, generator=draw, dtype=dtype)

    ids = torch.arange(tokens) * images // tokens
    people = Population(normal(tokens, width), uniform(tokens, axes), ids, images)
    reads = []
    for _ in range(1 + history):
        logits = 2 * normal(heads, queries, tokens)
        reads.append(Reading(logits.softmax(-1) * 0.5, normal(heads, tokens, 4)))
    return people, reads


def oracle_grounding(case):
    """Views (A, n), head weights, query weights, view masses and energy by the oracle."""
    views, grams = [], []
    for A, Z in case.views:
        sigma = oracle.mass_coordinate(Z)
        views.append((A, oracle.atom_norms(Z, sigma)))
        grams.append(oracle.view_gram(A, Z, sigma))
    masses = oracle.view_masses(case.history)
    gram = oracle.head_gram(grams, masses)
    clusters = oracle.head_clusters(gram)
    omega = oracle.head_weights(gram, clusters)
    nu = oracle.query_weights(views[0][0].shape[1])
    energy = oracle.energy(*views[0], omega, nu)
    return {
        "views": views,
        "gram": gram,
        "clusters": clusters,
        "omega": omega,
        "nu": nu,
        "masses": masses,
        "energy": energy,
    }


def oracle_clients(case, row_mass="balanced", **appearance):
    """The client matrix and its books by the oracle."""
    ground = oracle_grounding(case)
    grounded = oracle.grounded_bank(
        ground["views"], ground["omega"], ground["nu"], ground["masses"], row_mass
    )
    likeness = oracle.appearance_bank(case.states, case.image_ids, **appearance)
    places = oracle.spatial_bank(case.coordinates, case.image_ids, case.images)
    return oracle.client_matrix([grounded, likeness, places])
