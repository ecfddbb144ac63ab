"""Random populations, client matrices and logits for the tests of the bounds, and their checks.

Everything is built from a seed, sizes and flags. Supports and assignments are made by the
plainest code that satisfies a statement's assumptions.
"""

import itertools
from dataclasses import dataclass

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from vicoset.core.bounds import Identity, Inequality

EXAMPLES = settings(max_examples=max(300, settings().max_examples), deadline=None)
SEEDS = st.integers(0, 2**32 - 1)
SCALES = st.sampled_from([1e-6, 1.0, 1e6])
POPULATION_FLAGS = ("zero", "twins", "uneven", "aligned", "flat")
CLIENT_FLAGS = ("sparse", "dyadic", "twins", "zero_rows", "peaked")


def subsets(flags: tuple[str, ...]) -> st.SearchStrategy[frozenset[str]]:
    return st.frozensets(st.sampled_from(flags))


def tensor(values: object, dtype: torch.dtype = torch.float64) -> Tensor:
    return torch.as_tensor(np.asarray(values), dtype=dtype)


def violated(lhs: Tensor, rhs: Tensor) -> bool:
    """Whether lhs <= rhs fails by more than any rounding."""
    return bool((lhs > rhs * (1 + 1e-6)).any())


def assert_tight(statement: Inequality, share: float = 0.5) -> None:
    """The bound holds, and the same bound with ``share`` of its right side does not."""
    assert statement.holds()
    assert violated(statement.lhs, share * statement.rhs)


def unit(states: Tensor) -> Tensor:
    norms = states.square().sum(-1, keepdim=True).sqrt()
    return states / torch.where(norms > 0, norms, 1.0)


@dataclass(frozen=True)
class Population:
    """Tokens of one sample, a support with a carrier per image, and an assignment to it."""

    states: Tensor  # [N, d]
    image: Tensor  # [N]
    support: Tensor  # [K]
    carrier: Tensor  # [N], positions in the support
    masses: Tensor  # [N], at least 1/2
    bonus_limit: Tensor  # [N]

    @property
    def features(self) -> Tensor:
        return unit(self.states)

    @property
    def kept(self) -> int:
        return len(self.support)


def random_states(
    rng: np.random.Generator, tokens: int, width: int, scale: float, flags: frozenset[str]
) -> Tensor:
    states = rng.standard_normal((tokens, width))
    if "aligned" in flags:  # nearly one direction, so that distances are small
        states = rng.standard_normal(width) + 1e-3 * states
    if "uneven" in flags:
        states *= 10.0 ** rng.uniform(-4, 4, (tokens, 1))
    if "twins" in flags:
        states = states[rng.integers(0, max(1, tokens // 2), tokens)]
    if "zero" in flags:
        states[rng.random(tokens) < 0.3] = 0.0
    return tensor(states * scale)


def random_support(
    rng: np.random.Generator, image: np.ndarray[tuple[int], np.dtype[np.int64]], kept: int
) -> Tensor:
    """One token of each image, then others until ``kept``, in ascending order."""
    first = [int(rng.choice(np.flatnonzero(image == a))) for a in np.unique(image)]
    free = [int(i) for i in rng.permutation(len(image)) if i not in first]
    return torch.tensor(sorted(first + free[: max(0, kept - len(first))]))


def assign(features: Tensor, image: Tensor, support: Tensor, bonus: Tensor) -> Tensor:
    """The best carrier by cosine + bonus [N, K] inside the image; selected tokens keep selves."""
    score = features @ features[support].T + bonus
    score = score.masked_fill(image[:, None] != image[support], -torch.inf)
    carrier = score.argmax(1)
    carrier[support] = torch.arange(len(support))
    return carrier


def population(
    seed: int,
    tokens: int,
    width: int,
    kept: int,
    images: int,
    scale: float,
    flags: frozenset[str],
) -> Population:
    rng = np.random.default_rng(seed)
    images = min(images, tokens)
    image = np.sort(np.concatenate([np.arange(images), rng.integers(0, images, tokens - images)]))
    states = random_states(rng, tokens, width, scale, flags)
    support = random_support(rng, image, kept)
    limit = tensor(np.zeros(tokens) if "flat" in flags else rng.uniform(0, 0.5, tokens))
    bonus = limit[:, None] * tensor(rng.random((tokens, len(support))))
    masses = 0.5 + tensor(rng.exponential(0.5, tokens))
    carrier = assign(unit(states), torch.tensor(image), support, bonus)
    return Population(states, torch.tensor(image), support, carrier, masses, limit)


POPULATIONS = st.builds(
    population,
    seed=SEEDS,
    tokens=st.integers(1, 12),
    width=st.integers(1, 5),
    kept=st.integers(1, 6),
    images=st.integers(1, 3),
    scale=SCALES,
    flags=subsets(POPULATION_FLAGS),
)


def client_matrix(seed: int, rows: int, tokens: int, scale: float, flags: frozenset[str]) -> Tensor:
    rng = np.random.default_rng(seed)
    values = rng.random((rows, tokens))
    if "peaked" in flags:
        values = np.exp(20 * (values - 1))
    if "dyadic" in flags:
        values = rng.choice([0.0, 0.25, 0.5, 1.0], values.shape)
    if "sparse" in flags:
        values *= rng.random(values.shape) < 0.4
    if "twins" in flags:
        values = values[:, rng.integers(0, max(1, tokens // 2), tokens)]
    if "zero_rows" in flags:
        values[rng.random(rows) < 0.4] = 0.0
    return tensor(values * scale)


CLIENTS = st.builds(
    client_matrix,
    seed=SEEDS,
    rows=st.integers(1, 8),
    tokens=st.integers(2, 8),
    scale=SCALES,
    flags=subsets(CLIENT_FLAGS),
)


def value(clients: Tensor, support: list[int]) -> float:
    """F(S), the slow obvious way."""
    return sum(max((float(row[i]) for i in support), default=0.0) for row in clients)


def best_support(clients: Tensor, budget: int) -> Tensor:
    """An exhaustive maximiser of F over ``budget`` tokens (all, if there are fewer)."""
    tokens = clients.shape[1]
    sets = torch.tensor(list(itertools.combinations(range(tokens), min(budget, tokens))))
    return sets[clients[:, sets].amax(-1).sum(0).argmax()]


def probabilities(rng: np.random.Generator, rows: int, columns: int, heat: float) -> Tensor:
    return tensor(heat * rng.standard_normal((rows, columns))).softmax(1)


@given(POPULATIONS)
@EXAMPLES
def test_populations_meet_the_assumptions(case: Population) -> None:
    tokens = torch.arange(len(case.states))
    assert torch.equal(case.image[case.support][case.carrier], case.image)
    assert torch.equal(case.carrier[case.support], torch.arange(case.kept))
    assert torch.equal(case.support.unique(), case.support)
    assert set(case.image[case.support].tolist()) == set(case.image.tolist())
    assert bool((case.masses >= 0.5).all()) and len(tokens) == len(case.bonus_limit)


def test_flags_do_what_they_say() -> None:
    zero = population(1, 12, 4, 4, 3, 1.0, frozenset({"zero"}))
    assert int((zero.states == 0).all(1).sum()) > 0
    twins = population(1, 12, 4, 4, 1, 1.0, frozenset({"twins"}))
    assert len(twins.states.unique(dim=0)) < 12
    assert len(population(1, 12, 4, 4, 3, 1.0, frozenset()).image.unique()) == 3


def test_exhaustive_optimum() -> None:
    clients = tensor([[1.0, 0.9, 0.0], [0.0, 0.9, 1.0]])
    assert best_support(clients, 1).tolist() == [1]
    assert best_support(clients, 2).tolist() == [0, 2]
    assert value(clients, [0, 2]) == 2.0


def test_identity_judges_rounding_against_its_scale() -> None:
    off = Identity(tensor([1.0]), tensor([1.0 + 1e-6]))
    assert not off.holds() and off.holds(1e-5)
    assert off.gap.item() == pytest.approx(1e-6)
    assert Identity(off.lhs, off.rhs, scale=tensor(1e4)).holds()
    assert not Identity(tensor([float("nan")]), tensor([1.0])).holds()


def test_inequality_judges_rounding_against_its_scale() -> None:
    over = Inequality(tensor([1.0, 2.0]), tensor([1.0, 2.0 - 1e-6]))
    assert not over.holds() and over.holds(1e-5)
    assert over.slack.tolist() == pytest.approx([0.0, -1e-6])
    assert Inequality(over.lhs, over.rhs, scale=tensor(1e4)).holds()
    assert Inequality(tensor([1.0]), tensor([float("inf")])).holds()
    assert not Inequality(tensor([float("inf")]), tensor([1.0])).holds()
    assert not Inequality(tensor([float("nan")]), tensor([1.0])).holds()
