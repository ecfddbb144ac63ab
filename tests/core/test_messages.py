"""Native attention on visual columns, queries, messages and energy against the oracle."""

from collections import Counter

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from tests import oracle
from tests.core.helpers import AGREE, FEW, close, tensor
from tests.instances import attention_cases, population_cases
from vicoset.core import messages
from vicoset.errors import SettingError, ShapeError


def attention(case, dtype=torch.float64):
    mask = tensor(case.mask)  # in its own dtype: that says which numbers mean invisible
    return messages.visual_attention(
        tensor(case.q, dtype),
        tensor(case.k, dtype),
        tensor(case.query_positions),
        tensor(case.visual),
        scaling=case.scaling,
        **{**case.options, "mask": mask, "key_valid": tensor(case.key_valid)}
        | {"sinks": tensor(case.sinks, dtype)},
    )


def expected_attention(case):
    return oracle.visual_attention(
        case.q, case.k, case.query_positions, case.visual, case.scaling, **case.options
    )


def test_attention_equals_the_oracle():
    seen = Counter()

    @AGREE
    @given(attention_cases())
    def check(case):
        A = attention(case)
        assert A.dtype == torch.float64
        close(A, expected_attention(case), floor=0)
        assert bool((A.sum(-1) <= 1 + 1e-12).all()) and bool((A >= 0).all())
        seen.update(name for name, value in case.options.items() if value is not None)
        seen["additive"] += case.mask is not None and case.mask.dtype != np.bool_
        seen["grouped"] += len(case.k) < len(case.q)
        seen["zero row"] += not bool(A.any(-1).all())

    check()
    # Every form of visibility was met often.
    names = ("mask", "key_valid", "sliding_window", "softcap", "sinks", "additive", "grouped")
    assert all(seen[name] > 40 for name in (*names, "zero row")), seen


@given(attention_cases())
@AGREE
def test_attention_in_float32_is_close_to_the_oracle(case):
    A = attention(case, torch.float32)
    assert A.dtype == torch.float32
    # Scores up to about 100 carry float32 rounding of about 1e-5, and so do their exponentials.
    close(A, expected_attention(case), rtol=2e-4, floor=2e-5)


@given(attention_cases())
@AGREE
def test_messages_equal_the_oracle(case):
    probed = messages.output_probe(tensor(case.weight), tensor(case.P), len(case.q))
    expected = oracle.output_probe(case.weight, case.P, len(case.q))
    close(probed, expected)
    Z = messages.message_coordinates(tensor(case.v), tensor(expected))
    close(Z, oracle.message_coordinates(case.v, expected))
    half = messages.message_coordinates(
        tensor(case.v, torch.float32),
        messages.output_probe(tensor(case.weight, torch.float32), tensor(case.P), len(case.q)),
    )
    assert half.dtype == torch.float32
    close(half, oracle.message_coordinates(case.v, expected), rtol=1e-4, floor=1e-5)


@given(population_cases())
@AGREE
def test_atoms_equal_the_oracle(case):
    for A, Z in case.views:
        sigma = messages.mass_coordinate(tensor(Z))
        close(sigma, oracle.mass_coordinate(Z), floor=0)
        norms = messages.atom_norms(tensor(Z), sigma)
        close(norms, oracle.atom_norms(Z, oracle.mass_coordinate(Z)), floor=0)
        low = messages.atom_norms(
            tensor(Z, torch.float32), messages.mass_coordinate(tensor(Z, torch.float32))
        )
        close(low, norms.numpy(), rtol=1e-5, floor=0)
        # The norm factorises: A n is the norm of the atom A [Z; sigma].
        atom = tensor(A)[..., None] * torch.cat(
            [tensor(Z), sigma[:, None, None].expand(*Z.shape[:2], 1)], -1
        ).unsqueeze(1)
        close(atom.norm(dim=-1), (tensor(A) * norms[:, None]).numpy(), floor=0)


def test_energy_equals_the_oracle():
    seen = Counter()

    @AGREE
    @given(population_cases(), st.data())
    def check(case, data):
        A, Z = case.views[0]
        heads, queries, _ = A.shape
        # Weights the oracle would never produce alike: any nonnegative ones are allowed.
        grid = st.integers(0, 8)
        omega = np.array(data.draw(st.lists(grid, min_size=heads, max_size=heads))) / 8
        nu = np.array(data.draw(st.lists(grid, min_size=queries, max_size=queries))) / 8
        norms = oracle.atom_norms(Z, oracle.mass_coordinate(Z))
        expected = oracle.energy(A, norms, omega, nu)
        actual = messages.energy(tensor(A), tensor(norms), tensor(omega), tensor(nu))
        close(actual, expected, floor=0)
        low = torch.float32
        half = messages.energy(*(tensor(x, low) for x in (A, norms, omega, nu)))
        assert half.dtype == low
        close(half, expected, rtol=1e-4, floor=1e-6)
        seen["varied"] += bool(np.ptp(expected) > 0)
        seen["fallback"] += bool((expected == 1).all())

    check()
    assert seen["varied"] > 1000 and seen["fallback"] > 20, seen


@given(st.integers(0, 5000), st.one_of(st.integers(1, 40), st.integers(1, 5000)))
@AGREE
def test_evenly_spaced_equals_the_oracle(count, limit):
    found = messages.evenly_spaced(count, limit)
    assert found.dtype == torch.int64
    assert found.tolist() == oracle.evenly_spaced(count, limit).tolist()
    assert len(found) == min(count, limit)
    assert bool((found[1:] > found[:-1]).all()) and (
        not count or 0 <= found[0] <= found[-1] < count
    )


@st.composite
def layouts(draw):
    """Text and visual rows, disjoint and ascending, with text after the first visual row."""
    kinds = draw(st.lists(st.sampled_from("tvx"), min_size=1, max_size=300))
    kinds = [*kinds[: len(kinds) // 2], "v", *kinds[len(kinds) // 2 :], "t"]
    rows = {kind: [i for i, k in enumerate(kinds) if k == kind] for kind in "tv"}
    most = draw(st.one_of(st.integers(1, 10), st.integers(1, 300)))
    return np.array(rows["t"]), np.array(rows["v"]), most


def test_query_positions_equal_the_oracle():
    seen = Counter()

    @AGREE
    @given(layouts())
    def check(layout):
        text, visual, most = layout
        found = messages.query_positions(tensor(text), tensor(visual), most)
        expected, potential = oracle.query_positions(text, visual, most)
        assert found.positions.tolist() == expected.tolist()
        assert found.potential == potential
        assert found.bounded == (potential > most)
        assert found.positions[-1] == text[-1]  # the prompt-terminal row is the decision query
        seen["bounded"] += found.bounded
        seen["text before"] += bool(text[0] < visual[0])

    check()
    assert min(seen["bounded"], seen["text before"], 2000 - seen["bounded"]) > 200, seen


@given(attention_cases(max_tokens=60), st.integers(1, 16))
@AGREE
def test_query_positions_of_attention_cases_equal_the_oracle(case, most):
    found = messages.query_positions(tensor(case.text), tensor(case.visual), most)
    expected, potential = oracle.query_positions(case.text, case.visual, most)
    assert (found.positions.tolist(), found.potential) == (expected.tolist(), potential)


def test_query_positions_take_128_rows_by_default():
    found = messages.query_positions(torch.arange(1, 400), torch.tensor([0]))
    assert len(found.positions) == 128 and found.potential == 399 and found.bounded


@given(st.integers(1, 300), st.floats(0.01, 100))
@AGREE
def test_query_weights_equal_the_oracle(queries, terminal):
    found = messages.query_weights(queries, terminal, dtype=torch.float64)
    close(found, oracle.query_weights(queries, terminal), floor=0)
    close(messages.query_weights(queries, terminal), found.numpy(), rtol=1e-6, floor=0)


def test_the_terminal_query_counts_twice_by_default():
    assert messages.query_weights(3, dtype=torch.float64).tolist() == [0.25, 0.25, 0.5]


@pytest.mark.parametrize(("width", "rank"), [(4, 4), (64, 4), (896, 4), (4096, 4), (16, 1)])
def test_the_probe_is_the_seeded_gaussian_qr(width, rank):
    P = messages.probe(width, rank)
    draw = torch.Generator().manual_seed(0)
    gaussian = torch.randn(width, rank, generator=draw, dtype=torch.float32)
    assert P.shape == (width, rank) and P.dtype == torch.float32
    assert torch.allclose(P.T @ P, torch.eye(rank), atol=1e-5)
    # The same column space, Q as it comes: Q' G is upper triangular and Q Q' G is G.
    triangle = P.T @ gaussian
    assert torch.allclose(P @ triangle, gaussian, atol=1e-4)
    assert float(triangle.tril(-1).abs().max()) < 1e-4
    assert torch.equal(P, messages.probe(width, rank, 0))
    assert rank == width or not torch.allclose(P, messages.probe(width, rank, 1))


@given(attention_cases(max_tokens=60))
@FEW
def test_text_keys_take_their_share_of_the_softmax(case):
    """Over all keys the rows sum to one; the visual columns are a slice of that, as they are."""
    every = np.arange(case.k.shape[1])
    options = {**case.options, "sinks": None}
    full = messages.visual_attention(
        tensor(case.q),
        tensor(case.k),
        tensor(case.query_positions),
        tensor(every),
        scaling=case.scaling,
        **{name: tensor(v) if isinstance(v, np.ndarray) else v for name, v in options.items()},
    )
    total = full.sum(-1)
    assert bool(((total - 1).abs() < 1e-12).logical_or(total == 0).all())
    if case.sinks is None:
        assert torch.equal(full[..., tensor(case.visual)], attention(case))


@pytest.mark.parametrize("shape", [(9, 9), (1, 9, 9), (4, 9, 9), (1, 1, 9, 9), (1, 4, 9, 12)])
def test_a_causal_mask_in_any_shape_equals_no_mask(shape):
    q, k = torch.randn(4, 3, 8), torch.randn(2, 9, 8)
    rows, visual = torch.tensor([4, 6, 8]), torch.arange(1, 6)
    plain = messages.visual_attention(q, k, rows, visual, scaling=0.3)
    seen = torch.ones(shape, dtype=torch.bool).tril()
    lowest = torch.finfo(torch.bfloat16).min
    for hidden, dtype in [(lowest, torch.bfloat16), (-torch.inf, torch.float16)]:
        added = torch.zeros(shape, dtype=dtype).masked_fill(~seen, hidden)
        for mask in (seen, added):
            masked = messages.visual_attention(q, k, rows, visual, scaling=0.3, mask=mask)
            assert torch.allclose(masked, plain, rtol=1e-6, atol=0)


def test_no_text_after_the_image_is_refused():
    with pytest.raises(ShapeError, match=r"no text token follows the image.*behind the image"):
        messages.query_positions(torch.tensor([0, 1]), torch.tensor([2, 3]))


@pytest.mark.parametrize("most", [0, -1])
def test_a_bound_below_one_query_is_refused(most):
    with pytest.raises(SettingError, match=f"max_queries={most}; allowed are counts from 1"):
        messages.query_positions(torch.tensor([5]), torch.tensor([2]), most)


@pytest.mark.parametrize("rank", [0, 9])
def test_a_probe_wider_than_the_model_is_refused(rank):
    with pytest.raises(SettingError, match=rf"rank {rank} for width 8; allowed are 1..8"):
        messages.probe(8, rank)
