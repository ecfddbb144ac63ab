"""The facility objective F: what it is, how far a support is from the best one, its banks.

Throughout, ``clients`` is the weighted client matrix C-bar [M, N] with non-negative entries and
a support is a tensor of distinct token indices [K], possibly empty. Non-negativity is needed:
F(empty) = 0 is the starting point of every marginal.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from .statement import Identity, Inequality


def _cover(clients: Tensor, support: Tensor) -> Tensor:
    """max_{i in S} C_mi -> [M]; zero for the empty support."""
    if support.numel() == 0:
        return clients.new_zeros(clients.shape[0])
    return clients[:, support].amax(1)


def _attainable(clients: Tensor) -> Tensor:
    """F(V) -> scalar."""
    return clients.amax(1).sum()


def _marginals(clients: Tensor, cover: Tensor) -> Tensor:
    """Delta(i | S) -> [N] from the cover of S [M]."""
    return (clients - cover[:, None]).clamp_min(0).sum(0)


def _ratio(part: Tensor, whole: Tensor) -> Tensor:
    """The share part / whole, and 1 where there is nothing to attain."""
    return torch.where(whole > 0, part / torch.where(whole > 0, whole, 1), 1)


def normalisation(clients: Tensor) -> Identity:
    """F(empty) = 0, per client [M]."""
    empty = torch.empty(0, dtype=torch.long, device=clients.device)
    cover = _cover(clients, empty)
    return Identity(cover, torch.zeros_like(cover), scale=clients.amax())


def monotonicity(clients: Tensor, inner: Tensor, outer: Tensor) -> Inequality:
    """f_m(A) <= f_m(B) for A = ``inner`` [a] inside B = ``outer`` [b], per client [M]."""
    return Inequality(_cover(clients, inner), _cover(clients, outer), scale=clients.amax())


def marginal_form(clients: Tensor, support: Tensor, token: Tensor) -> Identity:
    """f_m(S + i) - f_m(S) = [C_mi - f_m(S)]_+ per client [M]; ``token`` [1] is i.

    The first line of eq:cond-submodular.
    """
    before = _cover(clients, support)
    after = _cover(clients, torch.cat([support, token]))
    rhs = (clients[:, token].squeeze(1) - before).clamp_min(0)
    return Identity(after - before, rhs, scale=clients.amax())


def submodularity(clients: Tensor, inner: Tensor, outer: Tensor, token: Tensor) -> Inequality:
    """The gain of ``token`` [1] on B = ``outer`` [b] is at most its gain on A = ``inner`` [a].

    Holds per client [M], hence for F, whenever A is inside B (eq:cond-submodular). The token
    may lie in B: its gain there is 0.
    """
    late, early = marginal_form(clients, outer, token), marginal_form(clients, inner, token)
    return Inequality(late.lhs, early.lhs, scale=clients.amax())


def residual_bound(clients: Tensor, support: Tensor, target: Tensor, budget: int) -> Inequality:
    """F(S*) - F(S_t) <= sum of the members' marginals <= U_t (eq:cond-greedy-residual).

    ``target`` [<= K] is S*, or any other set of at most K = ``budget`` tokens: nothing in the
    argument needs it to be optimal. U_t sums the K largest marginals at ``support`` [any].
    """
    cover = _cover(clients, support)
    gains = _marginals(clients, cover)
    upper = gains.topk(min(budget, gains.numel())).values.sum()
    # Tokens of the support have marginal 0, so the sum over S* equals the one over S* \ S_t.
    terms = {"members": gains[target].sum(), "upper": upper}
    lhs = _cover(clients, target).sum() - cover.sum()
    return Inequality(lhs, upper, terms, scale=_attainable(clients))


def batched_certificate(
    clients: Tensor, initial: Tensor, batches: Sequence[Tensor], target: Tensor, budget: int
) -> Inequality:
    """c_B F(S*) + (1 - c_B) F(S_0) <= F(S_T), c_B = 1 - prod_t (1 - q_t).

    eq:deployed-approximation; with F(S_0) >= 0 dropped, eq:cond-batched-bound. ``initial`` [any]
    is S_0, ``batches`` the B_t [b_t] in the order they entered, however they were chosen,
    ``target`` [<= K] is S*, K = ``budget``. Each batch must have at most K tokens: then
    q_t <= 1, without which the rounds do not chain. Rounds with U_t = 0 count as q_t = 0.
    """
    cover = _cover(clients, initial)
    start = cover.sum()
    shares: list[Tensor] = []
    uppers: list[Tensor] = []
    for batch in batches:
        gains = _marginals(clients, cover)
        upper = gains.topk(min(budget, gains.numel())).values.sum()
        grown = torch.maximum(cover, _cover(clients, batch))
        # The gain is summed per client: F(S_t + B_t) - F(S_t) as two totals would cancel.
        shares.append((grown - cover).sum() / torch.where(upper > 0, upper, 1))
        uppers.append(upper)
        cover = grown
    q = torch.stack(shares) if shares else start.new_zeros(0)
    certificate = 1 - (1 - q).prod()
    best = _cover(clients, target).sum()
    terms = {
        "certificate": certificate,
        "q": q,
        "upper": torch.stack(uppers) if uppers else start.new_zeros(0),
        "start": start,
        "best": best,
    }
    lhs = certificate * best + (1 - certificate) * start
    return Inequality(lhs, cover.sum(), terms, scale=_attainable(clients))


def final_certificate(clients: Tensor, support: Tensor, target: Tensor) -> Inequality:
    """F(S)/F(V) <= F(S)/F(S*) (eq:cond-final-cert); a ratio over nothing attainable is 1."""
    value = _cover(clients, support).sum()
    total, best = _attainable(clients), _cover(clients, target).sum()
    scale = torch.ones_like(total)
    return Inequality(_ratio(value, total), _ratio(value, best), scale=scale)


def bank_mixture(clients: Tensor, support: Tensor, bank: Tensor, banks: int) -> Identity:
    """F(S)/F(V) = sum_b omega_b c_b (eq:cond-saturation, eq:cond-bank-mixture).

    ``bank`` [M] is each row's bank, 0..``banks``-1. An unattainable bank (Z_b = 0) has
    saturation 1 and share 0; when nothing at all is attainable, both sides are 1.
    """
    covered = clients.new_zeros(banks).index_add(0, bank, _cover(clients, support))
    attainable = clients.new_zeros(banks).index_add(0, bank, clients.amax(1))
    total = attainable.sum()
    share = torch.where(total > 0, attainable / torch.where(total > 0, total, 1), 1 / banks)
    saturation = _ratio(covered, attainable)
    lhs = _ratio(_cover(clients, support).sum(), _attainable(clients))
    terms = {"share": share, "saturation": saturation}
    return Identity(lhs, (share * saturation).sum(), terms, scale=torch.ones_like(lhs))
