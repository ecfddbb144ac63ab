"""One test for each defect that a review of core/ found, so that none comes back."""

import pytest
import torch

from vicoset.core import banks, coverage, heads, kernels, messages, realise, support_lazy
from vicoset.core.coreset import Population, Reading, build_coreset
from vicoset.core.reference import select_plain
from vicoset.core.support import _select_dense, select_support
from vicoset.errors import ImageError, IndexRangeError, NonFiniteError, ShapeError

NAN = float("nan")


def sample(tokens=40, heads=4, queries=3):
    generator = torch.Generator().manual_seed(0)

    def draw(*shape):
        return torch.randn(*shape, generator=generator)

    readings = [
        Reading(
            (draw(heads, queries, tokens + 5) * 2).softmax(-1)[..., :tokens], draw(heads, tokens, 4)
        )
        for _ in range(2)
    ]
    places = torch.rand(tokens, 2, generator=generator)
    states = draw(tokens, 16)
    return Population(states, places, torch.zeros(tokens, dtype=torch.long)), readings


needs_numba = pytest.mark.skipif(kernels.compiled() is None, reason="numba is not installed")


@needs_numba
def test_compiled_scores_tell_apart_what_plain_scores_tell_apart():
    generator = torch.Generator().manual_seed(0)
    for _ in range(5):
        width, tokens = 12288, 12
        matrix = torch.zeros(tokens, tokens * width)
        for i in range(tokens):  # nearly equal totals, from few large or many small offers
            n = int(torch.randint(width // 2, width, (1,), generator=generator))
            nearly = 1 + 3e-5 * torch.randn((), generator=generator)
            matrix[i, i * width : i * width + n] = 1000.0 / n * nearly
        assert matrix.numel() >= support_lazy.COMPILE_FROM
        found = select_support(matrix.t(), 6, batch=1, pool_factor=tokens)
        assert found.order.tolist() == select_plain(matrix.t(), 6, batch=1, pool_factor=tokens)


@needs_numba
def test_compiled_gains_are_good_to_the_slack_over_very_many_clients():
    generator = torch.Generator().manual_seed(0)
    matrix = 0.1 * (1 + torch.rand(20, 1, generator=generator)).expand(-1, 60000).contiguous()
    gains, best, zero = torch.ones(20), torch.empty(60000), torch.zeros(60000)
    loops = kernels.compiled()
    exact = matrix.double().sum(1)
    loops.start(matrix.numpy(), gains.numpy(), best.numpy())
    assert ((gains - exact).abs() / exact).max() < kernels.SLACK / 2
    loops.gains(matrix.numpy(), best.numpy(), zero.numpy(), gains.numpy())
    assert ((gains - exact).abs() / exact).max() < kernels.SLACK / 2


def test_equal_tokens_tie_over_very_many_clients_on_several_threads():
    threads = torch.get_num_threads()
    torch.set_num_threads(2)
    try:
        generator = torch.Generator().manual_seed(0)
        for tokens in (4, 105):  # the last chunk held a single row, summed in another order
            for _ in range(6):
                matrix = torch.rand(40000, 1, generator=generator).expand(-1, tokens)
                gains = coverage.marginals(matrix, torch.zeros(40000))
                assert (gains == gains[0]).all()
                assert select_support(matrix, 1, batch=1, pool_factor=1).order.tolist() == [0]
                dense = _select_dense(matrix.t().contiguous(), [1], None, 1, 0.1)
                assert dense[0][0].tolist() == [0]
    finally:
        torch.set_num_threads(threads)


def test_a_tie_of_all_tokens_is_looked_at_in_chunks(monkeypatch):
    largest = []
    residual = support_lazy._Plain._residual

    def spy(self, rows):
        largest.append(len(rows))
        return residual(self, rows)

    monkeypatch.setattr(support_lazy._Plain, "_residual", spy)
    monkeypatch.setattr(support_lazy, "TIE_CHUNK", 1 << 12)
    monkeypatch.setattr(support_lazy, "CHUNK", 1 << 12)
    select_support(torch.full((64, 500), 0.5), 20, batch=2)
    assert max(largest) <= (1 << 12) // 64


def test_autocast_does_not_reach_the_mathematics():
    population, readings = sample()
    expected = build_coreset(population, readings, 9)
    q, k = torch.randn(4, 3, 8), torch.randn(2, 50, 8)
    where = torch.tensor([47, 48, 49]), torch.arange(5, 40)
    weight, probe = torch.randn(16, 32), messages.probe(16)
    features = banks.unit(population.states)
    calls = [
        lambda: messages.visual_attention(q, k, *where, scaling=1.0),
        lambda: messages.output_probe(weight, probe, 4),
        lambda: messages.message_coordinates(k, messages.output_probe(weight, probe, 4)),
        lambda: banks.projected_unit(population.states, banks.rademacher(16, 8)),
        lambda: banks.appearance_columns(features, None, population.image_ids, 1),
        lambda: heads.head_weights(torch.eye(4) + 0.1, torch.tensor([0, 1, 0, 1])),
    ]
    plain = [call() for call in calls]
    with torch.autocast("cpu", torch.bfloat16):
        found = build_coreset(population, readings, 9)
        for call, value in zip(calls, plain, strict=True):
            assert torch.equal(call(), value)
    assert torch.equal(found.states, expected.states)
    assert torch.equal(found.mass, expected.mass)
    assert found.gate.dtype == torch.float32


def test_tensors_that_record_gradients_are_selected_from():
    population, readings = sample()
    expected = build_coreset(population, readings, 9)
    recorded = population._replace(states=population.states.clone().requires_grad_())
    grounded = [Reading(*(t.clone().requires_grad_() for t in r)) for r in readings]
    assert torch.equal(build_coreset(recorded, readings, 9).indices, expected.indices)
    assert torch.equal(build_coreset(population, grounded, 9).indices, expected.indices)
    matrix = torch.rand(2048, 600)  # large enough for the compiled loops
    found = select_support(matrix.clone().requires_grad_(), 20)
    assert torch.equal(found.indices, select_support(matrix, 20).indices)
    assert not found.cover.requires_grad


def test_float16_is_lifted_wherever_it_enters():
    large = torch.full((1, 5, 4), 300.0).half()  # its square ends float16
    assert messages.mass_coordinate(large).tolist() == [300.0]
    assert messages.mass_coordinate(large * 0).item() == pytest.approx(1e-8)
    assert messages.atom_norms(large, torch.full((1,), 300.0).half()).isfinite().all()
    assert realise.cluster_mass(torch.ones(4000).half(), torch.zeros(4000).long(), 1) == 4000
    rms = realise.restore_rms(torch.full((1, 8), 400.0).half(), torch.full((1, 8), 500.0).half())
    assert torch.allclose(rms, torch.full((1, 8), 500.0))
    attention = (torch.randn(2, 3, 100).softmax(-1) * 1e-4).half()
    norms = torch.full((2, 100), 1e-2).half()
    rows, active = banks.grounded_rows(attention, norms)
    assert active.all()
    assert torch.allclose(rows.sum(-1), torch.ones(2, 3))
    half = torch.full((2,), 0.5).half(), messages.query_weights(3).half()
    wide = messages.energy(attention.float(), norms.float(), *(t.float() for t in half))
    assert torch.allclose(messages.energy(attention, norms, *half), wide, rtol=1e-3)
    gram = heads.view_gram(attention, torch.randn(2, 100, 4).half(), torch.ones(2).half())
    assert gram.dtype == torch.float32


@pytest.mark.parametrize("scale", [1e-10, 1e-19, 1e-22, 1e-25, 1e-30])
def test_energy_survives_an_image_that_is_hardly_read(scale):
    generator = torch.Generator().manual_seed(0)
    attention = torch.rand(2, 3, 50, generator=generator)
    norms = torch.rand(2, 50, generator=generator) + 0.1
    weights = torch.full((2,), 0.5), messages.query_weights(3)
    exact = messages.energy(attention.double(), norms.double(), *(w.double() for w in weights))
    found = messages.energy(attention * scale, norms, *weights)
    assert torch.allclose(found.double(), exact, atol=1e-5)


def test_nan_is_never_turned_into_a_number():
    states = torch.randn(6, 4)
    states[3] = NAN  # a discarded token: its carrier used to come back as if nothing had happened
    carrier = torch.tensor([0, 1, 0, 0, 1, 1])
    moved = realise.transport(states, torch.tensor([0, 1]), carrier, torch.ones(6))
    assert moved[0].isnan().all()
    assert moved[1].isfinite().all()
    attention = torch.rand(2, 3, 10)
    attention[0, 0, 0] = NAN
    weights = torch.full((2,), 0.5), messages.query_weights(3)
    assert messages.energy(attention, torch.ones(2, 10), *weights).isnan().all()
    assert coverage.ratio(torch.tensor(NAN), torch.tensor(NAN)).isnan()


@pytest.mark.parametrize("size", [(30, 10), (2048, 600)])
@pytest.mark.parametrize("value", [NAN, float("inf")])
def test_the_solver_refuses_a_matrix_that_is_not_finite(size, value):
    matrix = torch.rand(size)
    matrix[3, 4] = value
    with pytest.raises(NonFiniteError, match=r"matrix holds 1 non-finite.* first at \(3, 4\)"):
        select_support(matrix, 4)


def test_the_solver_refuses_image_ids_that_give_no_carrier():
    matrix = torch.rand(30, 10)
    with pytest.raises(ImageError, match="image 1 has no visual token"):
        select_support(matrix, 4, torch.zeros(10).long(), 2)
    with pytest.raises(ShapeError, match="image_ids has shape"):
        select_support(matrix, 4, torch.zeros(1).long(), 2)


def test_assignment_refuses_a_support_that_cannot_carry_every_token():
    states, places, ids = torch.randn(6, 4), torch.rand(6, 2), torch.tensor([0, 0, 0, 1, 1, 1])
    with pytest.raises(ImageError, match="image 1 has no kept token, so 3 tokens"):
        realise.assign(states, places, ids, torch.tensor([0, 1]))
    with pytest.raises(IndexRangeError, match="support is empty"):
        realise.assign(states, places, ids, torch.tensor([]).long())
    with pytest.raises(IndexRangeError, match="support is not strictly ascending"):
        realise.assign(states, places, ids, torch.tensor([4, 1]))


def test_no_query_is_refused_by_name():
    with pytest.raises(ShapeError, match="0 queries"):
        messages.query_weights(0)


def test_seeded_draws_stay_on_the_cpu_whatever_the_default_device_is():
    torch.set_default_device("meta")
    try:
        drawn = messages.probe(16), banks.rademacher(16)
    finally:
        torch.set_default_device(None)
    assert torch.equal(drawn[0], messages.probe(16))
    assert torch.equal(drawn[1], banks.rademacher(16))


def test_the_accelerator_path_reads_no_value():
    population, readings = sample()
    away = population._replace(
        **{n: getattr(population, n).to("meta") for n in population._fields[:3]}
    )
    distant = [Reading(*(t.to("meta") for t in r)) for r in readings]
    found = build_coreset(away, distant, 7)  # any host read raises on the meta device
    assert found.states.shape == (7, 16)
    assert found.coverage.rows.device.type == "meta"
