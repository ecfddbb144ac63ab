"""The accelerator path is one graph: no break, no host read, no data-dependent shape."""

import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode

from tests.core.test_support import dense
from vicoset.core import realise, support
from vicoset.core.support import select_support

HOST_READS = ("_local_scalar_dense", "nonzero", "masked_select", "equal", "unique", "is_nonzero")


class NoHostRead(TorchDispatchMode):
    """Raises at every operation that has to bring a value to the host."""

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        name = func.overloadpacket.__name__
        indexed = name in ("index", "index_put", "index_put_") and any(
            i is not None and i.dtype == torch.bool for i in args[1]
        )
        if indexed or any(name.startswith(word) for word in HOST_READS):
            raise AssertionError(f"{func} reads from the device")
        return func(*args, **(kwargs or {}))


def sample(tokens=96, images=2, clients=150):
    torch.manual_seed(3)
    ids = torch.arange(tokens) * images // tokens
    matrix = torch.rand(clients, tokens) ** 6
    matrix[:, 5] = matrix[:, 4]
    states, places = torch.randn(tokens, 24), torch.rand(tokens, 2)
    return matrix, ids, states, places


def on_the_accelerator(monkeypatch):
    """Make the dispatch take the accelerator's branches, on CPU tensors."""
    monkeypatch.setattr(torch.compiler, "is_compiling", lambda: True)


def test_a_host_read_would_be_seen():
    for read in (
        lambda t: t.sum().item(),
        torch.nonzero,
        lambda t: t[t > 0.5],
        lambda t: bool(t[0]),
    ):
        with pytest.raises(AssertionError, match="reads from the device"), NoHostRead():
            read(torch.rand(4))


@pytest.mark.parametrize("images", [1, 2])
@pytest.mark.parametrize("keep", [2, 16, 41, 95])
def test_the_solver_reads_nothing_from_the_device(images, keep, monkeypatch):
    matrix, ids, *_ = sample(images=images)
    expected = select_support(matrix, keep, ids, images)
    on_the_accelerator(monkeypatch)
    with NoHostRead():
        found = select_support(matrix, keep, ids, images)
    assert torch.equal(found.order, expected.order)
    assert torch.equal(found.cover, expected.cover)


def test_assignment_and_transport_read_nothing_from_the_device(monkeypatch):
    matrix, ids, states, places = sample()
    kept = select_support(matrix, 20, ids, 2).indices
    mass = torch.rand(len(states)) + 0.5
    expected = realise.assign(states, places, ids, kept)
    on_the_accelerator(monkeypatch)
    with NoHostRead():
        found = realise.assign(states, places, ids, kept)
        moved = realise.transport(states, kept, found.carrier, mass)
    assert torch.equal(found.carrier, expected.carrier)
    assert torch.equal(found.margin, expected.margin) and torch.equal(found.gate, expected.gate)
    assert torch.equal(moved, realise.transport(states, kept, expected.carrier, mass))


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_the_solver_compiles_as_one_graph():
    matrix, ids, *_ = sample()
    compiled = torch.compile(select_support, fullgraph=True, backend="aot_eager")
    found = compiled(matrix, 41, ids, 2)
    expected = select_support(matrix, 41, ids, 2)
    order, progress, cover = dense(matrix, 41, ids, 2)
    assert torch.equal(found.order, expected.order) and torch.equal(found.order, order)
    assert torch.equal(found.cover, cover)
    torch.testing.assert_close(found.progress, progress)
    torch._dynamo.reset()


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_assignment_and_transport_compile_as_one_graph():
    matrix, ids, states, places = sample()
    kept = select_support(matrix, 20, ids, 2).indices
    mass = torch.rand(len(states)) + 0.5

    def whole(states, places, ids, kept, mass):
        assignment = realise.assign(states, places, ids, kept)
        return assignment.carrier, realise.transport(states, kept, assignment.carrier, mass)

    compiled = torch.compile(whole, fullgraph=True, backend="aot_eager")
    carrier, moved = compiled(states, places, ids, kept, mass)
    expected, plainly = whole(states, places, ids, kept, mass)
    assert torch.equal(carrier, expected)
    torch.testing.assert_close(moved, plainly)
    torch._dynamo.reset()


def test_the_dense_path_is_the_one_that_compiles(monkeypatch):
    called = []
    monkeypatch.setattr(support, "select_lazy", lambda *a: called.append(a))
    on_the_accelerator(monkeypatch)
    select_support(torch.rand(9, 12), 4)
    assert not called
