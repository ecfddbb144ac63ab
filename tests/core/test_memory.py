"""What is never allocated whole: N x N, N x K and M x N beyond the client matrix itself."""

import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from vicoset.core import banks, coverage, heads, realise

N, K, D, CHUNK = 6000, 1500, 64, 1 << 17


class Largest(TorchDispatchMode):
    """Records the elements of the largest storage that any operation returned."""

    def __init__(self):
        super().__init__()
        self.elements = 0

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        result = func(*args, **(kwargs or {}))
        given = {
            t.untyped_storage().data_ptr()
            for t in tree_leaves((args, kwargs))
            if isinstance(t, torch.Tensor)
        }
        for made in tree_leaves(result):
            # Views and in-place results live in a storage that was there before.
            if isinstance(made, torch.Tensor) and made.untyped_storage().data_ptr() not in given:
                size = made.untyped_storage().nbytes() // made.element_size()
                self.elements = max(self.elements, size)
        return result


@pytest.fixture(autouse=True)
def small_chunks(monkeypatch):
    monkeypatch.setattr(realise, "CHUNK", CHUNK)
    monkeypatch.setattr(coverage, "CHUNK", CHUNK)
    monkeypatch.setattr(banks, "ROW_CHUNK", 256)
    monkeypatch.setattr(heads, "TOKEN_CHUNK", 256)


@pytest.fixture(scope="module")
def sample():
    draw = torch.Generator().manual_seed(0)
    states = torch.randn(N, D, generator=draw)
    places = torch.rand(N, 2, generator=draw)
    support = torch.randperm(N, generator=draw)[:K].sort().values
    return states, places, support


def largest(work, *arguments, **options):
    with Largest() as seen:
        work(*arguments, **options)
    return seen.elements


def test_the_recorder_sees_what_is_allocated():
    x = torch.ones(300, 2)
    assert largest(lambda: (x @ x.T).exp_().t()[:2].sum()) == 300 * 300
    assert largest(lambda: x.t()) == 0


@pytest.mark.parametrize("images", [1, 3])
def test_assignment_allocates_no_tokens_by_carriers(sample, images):
    states, places, support = sample
    ids = torch.arange(N) * images // N
    # Gates wide open, so that every token is looked at again with its place.
    options = {"gate_scale": 1e-3, "margin": 10.0, "images": images}
    seen = largest(realise.assign, states, places, ids, support, **options)
    # The carriers' directions, K x d, are the only other matrix.
    assert seen <= max(CHUNK, K * D, 2 * N) < N * K / 50


def test_transport_allocates_the_carriers_and_a_chunk(sample):
    states, _, support = sample
    carrier = torch.arange(N) % K
    seen = largest(realise.transport, states, support, carrier, torch.ones(N))
    assert seen <= max(CHUNK, K * D) < N * D / 2


def test_marginals_and_cover_allocate_a_chunk_of_the_matrix(sample):
    support = sample[2]
    matrix = torch.rand(N, 1000).t()
    covered = coverage.cover(matrix, support[:5])
    assert largest(coverage.marginals, matrix, covered) <= CHUNK
    assert largest(coverage.cover, matrix, support) <= CHUNK


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_projection_allocates_its_result_and_a_chunk(dtype):
    """States wider than the projection are never lifted or normalised whole."""
    states, projection = torch.ones(N, 512, dtype=dtype), banks.rademacher(512)
    assert largest(banks.projected_unit, states, projection) == N * 128 < N * 512


def test_the_gram_of_heads_allocates_no_pattern():
    A, Z = torch.rand(8, 16, N), torch.randn(8, N, 4)
    seen = largest(heads.view_gram, A, Z, torch.ones(8))
    assert seen <= 8 * N * 5 < 8 * 16 * N  # the atoms' coordinates; patterns would be T times that
