"""From message errors to the winner: propagation, candidate margins, flips.

Logits are finite. A winner is the lowest index of the largest logit.
"""

from __future__ import annotations

import torch
from torch import Tensor

from .statement import Identity, Inequality

ROOT_TWO = 2.0**0.5


def unrolled_recursion(
    initial: Tensor, growth: Tensor, injection: Tensor, message_errors: Tensor
) -> Identity:
    """The recursion e <- a_l e + b_l eps_l and its closed form -> scalar (eq:cond-unrolled-state).

    ``initial`` e_p, ``growth`` a_l [B], ``injection`` b_l [B], ``message_errors`` eps_l [B] for the
    B = L - p blocks after the boundary. Term ``after`` [B] is A_{l+1:L-1}, what becomes of an
    error that enters at block l. All are non-negative.
    """
    error = initial
    for a, b, epsilon in zip(growth, injection, message_errors, strict=True):
        error = a * error + b * epsilon
    blocks = growth.shape[0]
    later = torch.cat([growth[1:], growth.new_ones(1)])[:blocks]
    after = later.flip(0).cumprod(0).flip(0)
    closed = initial * growth.prod() + (injection * message_errors * after).sum()
    return Identity(error, closed, {"after": after})


def centred_distortion(full: Tensor, compact: Tensor, candidates: Tensor | None = None) -> Tensor:
    """d_C = ||H_C (z^F - z^S)|| over the last axis of ``full``, ``compact`` [..., V] -> [...].

    ``candidates`` [..., V] bool is the set C; all of V when None.
    """
    shift = full - compact
    if candidates is None:
        candidates = torch.ones_like(shift, dtype=torch.bool)
    count = candidates.sum(-1, keepdim=True).clamp_min(1)
    mean = torch.where(candidates, shift, 0).sum(-1, keepdim=True) / count
    centred = torch.where(candidates, shift - mean, 0)
    norm: Tensor = torch.linalg.vector_norm(centred, dim=-1)
    return norm


def _rounded_up(
    distortion: Tensor, full: Tensor, compact: Tensor, candidates: Tensor | None = None
) -> Tensor:
    """``distortion`` [...] with room for the rounding of its shifts, their mean and the margins.

    Whatever is certified with it is true of the logits as given, also where a margin equals
    sqrt(2) d_C exactly or a large common shift swallowed digits.
    """
    shift = (full - compact).abs()
    if candidates is not None:
        shift = torch.where(candidates, shift, 0)
    unit: float = torch.finfo(shift.dtype).eps * shift.shape[-1] ** 0.5
    return distortion + 8 * unit * shift.amax(-1)


def innovation_bound(
    full: Tensor,
    compact: Tensor,
    initial: Tensor,
    growth: Tensor,
    injection: Tensor,
    message_errors: Tensor,
    output_constant: Tensor,
) -> Inequality:
    """d_C <= L_o [e_p A_{p:L-1} + sum_l b_l eps_l A_{l+1:L-1}] -> scalar.

    eq:cond-innovation-bound. ``full``, ``compact`` [C] are candidate logits, the rest as in
    `unrolled_recursion`. It holds when block l is a_l-Lipschitz in the text state and
    b_l-Lipschitz in the message, on the two executions, and the head L_o-Lipschitz. The
    message must be everything attention brings from a changed key set, the nonvisual part with
    its changed denominator included.
    """
    error = unrolled_recursion(initial, growth, injection, message_errors).rhs
    lhs, rhs = centred_distortion(full, compact), output_constant * error
    size = torch.maximum(full.abs().amax(), compact.abs().amax())
    return Inequality(lhs, rhs, {"state_error": error}, scale=torch.maximum(rhs, size))


def interface_budget(
    initial: Tensor,
    growth: Tensor,
    injection: Tensor,
    message_errors: Tensor,
    output_constant: Tensor,
    margin: Tensor,
) -> Inequality:
    """sqrt(2) L_o [e_p A + sum_l b_l eps_l A] <= gamma_ab (eq:cond-interface-budget).

    A condition rather than a theorem: where it is strict, the ordering of the pair with Full's
    ``margin`` gamma_ab > 0 cannot change. With budgets B_l for eps_l it is eq:cond-composed-budget.
    """
    error = unrolled_recursion(initial, growth, injection, message_errors).rhs
    return Inequality(ROOT_TWO * output_constant * error, margin, {"state_error": error})


def _differences(logits: Tensor) -> Tensor:
    """z_a - z_b for all pairs: [..., C] -> [..., C, C]."""
    return logits[..., :, None] - logits[..., None, :]


def margin_lemma(full: Tensor, compact: Tensor) -> Inequality:
    """|(z_a^S - z_b^S) - (z_a^F - z_b^F)| <= sqrt(2) d_C for all pairs in C (eq:cond-margin-bound).

    ``full``, ``compact`` [..., C] candidate logits; the left side is [..., C, C].
    """
    distortion = centred_distortion(full, compact)
    moved = (_differences(compact) - _differences(full)).abs()
    size = torch.maximum(full.abs().amax(-1), compact.abs().amax(-1))[..., None, None]
    return Inequality(
        moved, ROOT_TWO * distortion[..., None, None], {"distortion": distortion}, scale=size
    )


def pair_stability(full: Tensor, compact: Tensor) -> Inequality:
    """d_C < gamma_ab / sqrt(2) implies z_a^S > z_b^S, as 0/1 indicators [..., C, C] (Lemma 1).

    ``full``, ``compact`` [..., C] candidate logits. Certified pairs on the left, preserved ones on
    the right; d_C is rounded up, so the implication holds without a tolerance.
    """
    distortion = _rounded_up(centred_distortion(full, compact), full, compact)
    certified = _differences(full) > ROOT_TWO * distortion[..., None, None]
    preserved = _differences(compact) > 0
    return Inequality(certified.to(full.dtype), preserved.to(full.dtype))


def flip_risk(full: Tensor, compact: Tensor, candidates: Tensor, eta: float) -> Inequality:
    """{a^S != a^F} lies inside {a^S not in C} or {d_C > eta} or {Gamma_C^F <= sqrt(2) eta}.

    ``full``, ``compact`` [..., V]; ``candidates`` C [..., V] bool must contain Full's winner;
    eta > 0. Sides and events (``escape``, ``distortion``, ``thin_margin``) are 0/1 indicators
    [...]; their means over a population are the probabilities of eq:cond-flip-risk, and the sum
    of the three means is its right side. Gamma_C^F is Full's least margin inside C, infinite for
    one candidate. d_C is rounded up, so the inclusion holds without a tolerance.
    """
    winner, other = full.argmax(-1, keepdim=True), compact.argmax(-1, keepdim=True)
    rivals = candidates.scatter(-1, winner, False)
    best_rival = full.masked_fill(~rivals, -torch.inf).amax(-1)
    margin = full.gather(-1, winner).squeeze(-1) - best_rival
    escape = ~candidates.gather(-1, other).squeeze(-1)
    distortion = centred_distortion(full, compact, candidates)
    distortion = _rounded_up(distortion, full, compact, candidates)
    events = {
        "escape": escape,
        "distortion": distortion > eta,
        "thin_margin": margin <= ROOT_TWO * eta,
    }
    anything = events["escape"] | events["distortion"] | events["thin_margin"]
    flipped = (winner != other).squeeze(-1)
    terms = {name: event.to(full.dtype) for name, event in events.items()}
    return Inequality(flipped.to(full.dtype), anything.to(full.dtype), terms)


def winner_candidates(full: Tensor, compact: Tensor, top: int = 32) -> Tensor:
    """C^win = Top_k(z^F) union Top_k(z^S) as a mask [..., V]."""
    count = min(top, full.shape[-1])
    mask = torch.zeros_like(full, dtype=torch.bool)
    for logits in (full, compact):
        # The winner by index as well: at ties topk may return another of the equal entries.
        mask = mask.scatter(-1, logits.topk(count, dim=-1).indices, True)
        mask = mask.scatter(-1, logits.argmax(-1, keepdim=True), True)
    return mask


def observed_no_flip(
    full: Tensor, compact: Tensor, candidates: Tensor | None = None, top: int = 32
) -> Inequality:
    """The ratio rho < 1 implies a^S = a^F, as 0/1 indicators [...] (eq:cond-observed-certificate).

    ``full``, ``compact`` [..., V], V >= 2. ``candidates`` [..., V] bool must contain both winners;
    C^win of ``top`` logits each when None. rho = sqrt(2) d_C / Gamma with Gamma the Full top-two
    margin over the whole vocabulary; a tie at Full's top gives rho = inf and certifies nothing.
    A smaller set gives a smaller rho, so the two winners alone are the strongest choice. The
    left side rounds d_C up: a rho within rounding of 1 certifies nothing.
    """
    if candidates is None:
        candidates = winner_candidates(full, compact, top)
    best = full.topk(2, dim=-1).values
    margin = best[..., 0] - best[..., 1]
    distortion = centred_distortion(full, compact, candidates)
    ratio = ROOT_TWO * distortion / torch.where(margin > 0, margin, 1)
    rho = torch.where(margin > 0, ratio, torch.inf)
    certified = ROOT_TWO * _rounded_up(distortion, full, compact, candidates) < margin
    same = full.argmax(-1) == compact.argmax(-1)
    terms = {"rho": rho, "distortion": distortion, "margin": margin}
    return Inequality(certified.to(full.dtype), same.to(full.dtype), terms)
