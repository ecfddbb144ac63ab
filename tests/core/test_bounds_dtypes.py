"""Every statement in float32: it stays in float32, and holds within its rounding."""

import torch
from hypothesis import given
from torch import Tensor

from tests.core.test_bounds_instances import (
    EXAMPLES,
    POPULATIONS,
    SEEDS,
    Population,
)
from vicoset.core import bounds

Statement = bounds.Identity | bounds.Inequality


def coverage(case: Population, clients: Tensor) -> list[Statement]:
    support, token = case.support, case.support[:1]
    bank = torch.arange(len(clients)) % 3
    return [
        bounds.normalisation(clients),
        bounds.monotonicity(clients, token, support),
        bounds.marginal_form(clients, token, token),
        bounds.submodularity(clients, token, support, token),
        bounds.residual_bound(clients, token, support, case.kept),
        bounds.batched_certificate(clients, token, [support], support, case.kept),
        bounds.final_certificate(clients, token, support),
        bounds.bank_mixture(clients, support, bank, 3),
    ]


def geometry(case: Population, clients: Tensor, points: Tensor) -> list[Statement]:
    x, support, carrier, image = case.features.float(), case.support, case.carrier, case.image
    h, m, limit = case.states.float(), case.masses.float(), case.bonus_limit.float()
    return [
        bounds.gibbs_identity(x, support, 0.2, image),
        bounds.coverage_to_quantisation(x, support, 0.2, 0.5, image),
        bounds.grounded_mode(clients, support, clients.new_ones(len(clients))),
        bounds.assignment_bound(x, support, carrier, limit, image),
        bounds.first_moment(h, carrier, m, case.kept),
        bounds.centroid_optimality(h, carrier, m, points),
        bounds.radial_split(h, support, carrier),
        bounds.pretransport_bound(h, support, carrier, m, limit, image),
        bounds.rms_bound(h, carrier, m, h[support], points, 0.5),
        bounds.rms_split(h, carrier, m, points),
        bounds.directional_quantisation(m, x, support, carrier),
    ]


def messages(case: Population, attention: Tensor, points: Tensor) -> list[Statement]:
    carrier, h, m = case.carrier, case.states.float(), case.masses.float()
    compact = attention[:, case.support]
    constant = bounds.local_lipschitz(h, points, carrier, h.sin(), points.sin())
    message, other = attention @ h, compact @ points
    message[0, 0] += 1
    return [
        bounds.message_decomposition(attention, compact, carrier, h, points, h),
        bounds.message_bound(attention, compact, carrier, h, points, h, m),
        bounds.softmax_mass_bound(attention, compact, carrier, other, message),
        bounds.state_to_message(attention, carrier, m, h, points, h.sin(), points.sin(), constant),
        bounds.message_budget(m, m, m),
        bounds.direction_magnitude(message, other),
        bounds.direction_lower_bounds(message, other),
        bounds.sign_blindness(h, (h[:, 0] >= 0) * 2.0 - 1.0, m[0]),
    ]


def decisions(case: Population, logits: Tensor) -> list[Statement]:
    m, moved = case.masses.float()[:4], logits.flip(-1)
    everything = torch.ones_like(logits, dtype=torch.bool)
    none, one = logits.new_zeros(0), logits.new_ones(())
    error = (logits[0] - moved[0]).norm()
    return [
        bounds.unrolled_recursion(m[0], m, m, m),
        bounds.innovation_bound(logits[0], moved[0], error, none, none, none, one),
        bounds.margin_lemma(logits, moved),
        bounds.flip_risk(logits, moved, everything, 0.1),
        bounds.observed_no_flip(logits, moved),
    ]


@given(POPULATIONS, SEEDS)
@EXAMPLES
def test_every_statement_in_float32(case: Population, seed: int) -> None:
    generator = torch.Generator().manual_seed(seed % 2**31)
    tokens, width = case.states.shape
    clients = torch.rand(4, tokens, generator=generator)
    points = torch.randn(case.kept, width, generator=generator)
    attention = torch.rand(2, tokens, generator=generator)
    statements = [
        *coverage(case, clients),
        *geometry(case, clients, points),
        *messages(case, attention, points),
        *decisions(case, torch.randn(3, 5, generator=generator)),
    ]
    for statement in statements:
        parts = [statement.lhs, statement.rhs, *statement.terms.values()]
        assert {part.dtype for part in parts} == {torch.float32}
        assert statement.holds(1e-3)
