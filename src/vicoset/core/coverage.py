"""The facility objective F(S) = sum over clients of the best offer in S, and what certifies it."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from vicoset.core import checks
from vicoset.core.clients import Clients

CHUNK = 1 << 22  # elements of a temporary, so that no N x K or M x K is ever allocated whole


class BankReport(NamedTuple):
    """Coverage by bank; every field is [banks], in the order of ``names``.

    Attributes:
        names: the banks.
        nominal: beta_b, the mass a bank was given.
        rows: M_b, its potential clients.
        active: clients that carry mass.
        deployed: beta^_b, the mass of active rows.
        attainable: Z_b = F_b(V).
        share: omega_b = Z_b / sum Z, the effective share.
        covered: F_b(S).
        saturation: c_b = F_b(S) / Z_b, 1 where nothing is attainable.
    """

    names: tuple[str, ...]
    nominal: Tensor
    rows: Tensor
    active: Tensor
    deployed: Tensor
    attainable: Tensor
    share: Tensor
    covered: Tensor
    saturation: Tensor


def cover(matrix: Tensor, support: Tensor) -> Tensor:
    """What a support covers of each client: max over S of C[m, i], [M]; zeros for an empty one.

    Args:
        matrix: C [M, N].
        support: [K] indices.
    """
    best = matrix.new_zeros(matrix.shape[0])
    step = max(1, CHUNK // max(1, matrix.shape[0]))
    for start in range(0, len(support), step):
        part = support[start : start + step]
        best = torch.maximum(best, matrix.index_select(1, part).amax(1))
    return best


def facility(matrix: Tensor, support: Tensor) -> Tensor:
    """F(S), a scalar tensor."""
    return cover(matrix, support).sum()


def marginals(matrix: Tensor, covered: Tensor) -> Tensor:
    """What each token would add: sum over clients of [C[m, i] - cover_m]_+, [N].

    Args:
        matrix: C [M, N].
        covered: [M] from :func:`cover`.
    """
    checks.shape(covered, "covered", "M", **checks.shape(matrix, "matrix", "M N"))
    offers = matrix.t()
    step = max(3, CHUNK // max(1, matrix.shape[0]))
    # No chunk of one row: torch adds up a lone long row in another order.
    parts = torch.tensor_split(offers, max(1, -(-len(offers) // step)))
    return torch.cat([(part - covered).clamp_min_(0.0).sum(1) for part in parts])


def deficits(matrix: Tensor, covered: Tensor) -> Tensor:
    """What no token of the support brings: max_i C[m, i] - cover_m, [M]."""
    checks.shape(covered, "covered", "M", **checks.shape(matrix, "matrix", "M N"))
    return matrix.amax(1) - covered


def ratio(covered: Tensor, attainable: Tensor) -> Tensor:
    """F(S)/F(V), a lower bound on F(S)/F(S*) (eq:cond-final-cert); 1 when nothing is attainable."""
    nothing = attainable == 0  # NaN is something, and stays NaN
    return torch.where(nothing, 1.0, covered / torch.where(nothing, 1.0, attainable))


def batch_certificate(progress: Tensor) -> Tensor:
    """c_B = 1 - prod(1 - q_t) (eq:deployed-approximation); 0 without rounds."""
    return 1.0 - (1.0 - progress).prod()


def bank_report(clients: Clients, covered: Tensor) -> BankReport:
    """Coverage by bank, from what the solver covered of each client [M]."""
    attainable = clients.attainable()
    by_bank = clients.bank_sums(covered)
    total = attainable.sum()
    return BankReport(
        names=tuple(bank.name for bank in clients.banks),
        nominal=attainable.new_tensor([bank.mass for bank in clients.banks]),
        rows=torch.tensor(
            [bank.stop - bank.start for bank in clients.banks], device=attainable.device
        ),
        active=clients.active(),
        deployed=clients.deployed_mass(),
        attainable=attainable,
        share=attainable / torch.where(total == 0, 1.0, total),
        covered=by_bank,
        saturation=ratio(by_bank, attainable),
    )
