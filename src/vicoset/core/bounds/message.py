"""Signed attention messages: exact decomposition, its bounds, direction and magnitude.

Shapes throughout: T queries of one head, ``attention`` a [T, N] (the visual columns of the native
softmax), ``compact`` a-bar [T, K], ``carrier`` pi [N] positions in the support list, ``full`` x
[N, d] and ``kept`` x-tilde [K, d] the normalised states that enter the value projection.

Nothing here is special to visual tokens. Appending the nonvisual keys, each its own carrier, to
both sides gives the statement about the *whole* attention output, which is the one a block's
text states depend on: compact keys change the softmax denominator, hence the nonvisual part too.
"""

from __future__ import annotations

import torch
from torch import Tensor

from .geometry import cluster_sum
from .statement import Identity, Inequality


def _projected(value: Tensor, bias: Tensor | None, states: Tensor) -> Tensor:
    projected = states @ value.T
    return projected if bias is None else projected + bias


def _grouped(attention: Tensor, carrier: Tensor, kept: int) -> Tensor:
    """M_gj = sum_{i in C_j} a_gi -> [T, K]."""
    return cluster_sum(attention.T, carrier, kept).T


def _magnitude(
    attention: Tensor,
    compact: Tensor,
    carrier: Tensor,
    full: Tensor,
    kept: Tensor,
    value: Tensor,
    bias: Tensor | None,
) -> Tensor:
    """The same sums over absolute values -> [T, r]: a rounding scale."""
    weight, offset = value.abs(), None if bias is None else bias.abs()
    source = _projected(weight, offset, full.abs() + kept[carrier].abs())
    return attention.abs() @ source + compact.abs() @ _projected(weight, offset, kept.abs())


def message_decomposition(
    attention: Tensor,
    compact: Tensor,
    carrier: Tensor,
    full: Tensor,
    kept: Tensor,
    value: Tensor,
    bias: Tensor | None = None,
) -> Identity:
    """y_g - y~_g = representation + mass, [T, r] (eq:cond-message-decomposition).

    ``value`` W_g^V [r, d]. Terms: ``representation`` sum_i a_gi W (x_i - x~_pi(i)) and ``mass``
    sum_j (M_gj - a-bar_gj) W x~_j. A value ``bias`` [r], which the printed form leaves out,
    cancels from the first and joins the second as W x~_j + bias.
    """
    lhs = attention @ _projected(value, bias, full) - compact @ _projected(value, bias, kept)
    moved = _grouped(attention, carrier, kept.shape[0]) - compact
    representation = attention @ ((full - kept[carrier]) @ value.T)
    mass = moved @ _projected(value, bias, kept)
    terms = {"representation": representation, "mass": mass}
    scale = _magnitude(attention, compact, carrier, full, kept, value, bias)
    return Identity(lhs, representation + mass, terms, scale)


def message_bound(
    attention: Tensor,
    compact: Tensor,
    carrier: Tensor,
    full: Tensor,
    kept: Tensor,
    value: Tensor,
    bias: Tensor | None = None,
) -> Inequality:
    """||y_g - y~_g|| <= ||W_g^V|| [R_g + H_S ||M_g - a-bar_g||_1], [T] (eq:cond-message-bound).

    Arguments as in `message_decomposition`; attention is non-negative. R_g is
    ``representation`` sum_i a_gi ||x_i - x~_pi(i)||, H_S is ``height`` max_j ||x~_j||. A value
    bias adds ||bias|| |sum_j (M_gj - a-bar_gj)|.
    """
    parts = message_decomposition(attention, compact, carrier, full, kept, value, bias)
    moved = _grouped(attention, carrier, kept.shape[0]) - compact
    errors = torch.linalg.vector_norm(full - kept[carrier], dim=-1)
    norm = torch.linalg.matrix_norm(value, 2)
    terms = {
        "operator_norm": norm,
        "representation": attention @ errors,
        "height": torch.linalg.vector_norm(kept, dim=-1).amax(),
        "mass_error": moved.abs().sum(1),
    }
    rhs = norm * (terms["representation"] + terms["height"] * terms["mass_error"])
    if bias is not None:
        rhs = rhs + torch.linalg.vector_norm(bias) * moved.sum(1).abs()
    scale = _magnitude(attention, compact, carrier, full, kept, value, bias)
    lhs = torch.linalg.vector_norm(parts.lhs, dim=-1)
    return Inequality(lhs, rhs, terms, torch.linalg.vector_norm(scale, dim=-1))


def _grouped_logits(logits: Tensor, carrier: Tensor, kept: int) -> Tensor:
    """u^F_gj = log sum_{i in C_j} exp s_gi for ``logits`` [T, N] -> [T, K]; -inf if unseen."""
    index = carrier.expand_as(logits)
    top = logits.new_full((logits.shape[0], kept), -torch.inf)
    top = top.scatter_reduce(1, index, logits, "amax")
    shift = torch.where(top.isinf(), 0, top)
    return _grouped((logits - shift.gather(1, index)).exp(), carrier, kept).log() + shift


def softmax_mass_bound(
    logits: Tensor,
    compact_logits: Tensor,
    carrier: Tensor,
    other: Tensor,
    compact_other: Tensor,
) -> Inequality:
    """||M_g - a-bar_g||_1 <= ||u_g^F - u_g^S||_inf per query [T] (eq:cond-softmax-bound).

    ``logits`` s^F [T, N] and ``compact_logits`` s^S [T, K] of the visual keys, -inf where a query
    cannot see the key; ``other`` and ``compact_other`` [T, J] of the nonvisual keys (attention
    sinks included), each a category of its own. The categories are the K clusters *and* these J
    singletons, and the maximum on the right runs over all of them; the left side is their visual
    part. A cluster that is seen without its carrier makes the right side infinite.

    The true constant is smaller: ``half_range`` (half of max - min of u^F - u^S) bounds even the
    distance over all categories (``all``), because a softmax ignores a common shift, and so does
    ``sharp`` = 2 tanh(range / 4), which two categories attain.
    """
    visual, kept = logits.shape[1], compact_logits.shape[1]
    native = torch.cat([logits, other], 1).softmax(1)
    grouped = torch.cat([_grouped(native[:, :visual], carrier, kept), native[:, visual:]], 1)
    realised = torch.cat([compact_logits, compact_other], 1).softmax(1)
    u_full = torch.cat([_grouped_logits(logits, carrier, kept), other], 1)
    u_compact = torch.cat([compact_logits, compact_other], 1)
    change = torch.where(u_full == u_compact, 0, u_full - u_compact)
    # What neither softmax sees has no part in a common shift.
    unseen = (u_full == u_compact) & u_full.isinf()
    most = change.masked_fill(unseen, -torch.inf).amax(1)
    span = (most - change.masked_fill(unseen, torch.inf).amin(1)).clamp_min(0.0)
    errors = (grouped - realised).abs()
    terms = {
        "all": errors.sum(1),
        "half_range": span / 2,
        "sharp": 2 * torch.tanh(span / 4),
    }
    finite = torch.where(u_full.isinf(), 0, u_full).abs().amax(1)
    scale = 1 + torch.maximum(finite, torch.where(u_compact.isinf(), 0, u_compact).abs().amax(1))
    return Inequality(errors[:, :kept].sum(1), change.abs().amax(1), terms, scale)


def local_lipschitz(
    states: Tensor, moved: Tensor, carrier: Tensor, full: Tensor, kept: Tensor
) -> Tensor:
    """The least L_N that serves the pairs (h_i, h~_pi(i)) -> scalar.

    ``states`` h [N, d] and ``moved`` h~ [K, d] before the normalisation, ``full`` and ``kept``
    after it. Equal states have equal images and ask for nothing.
    """
    inner = torch.linalg.vector_norm(states - moved[carrier], dim=-1)
    outer = torch.linalg.vector_norm(full - kept[carrier], dim=-1)
    return torch.where(inner > 0, outer / torch.where(inner > 0, inner, 1), 0).amax()


def state_to_message(
    attention: Tensor,
    carrier: Tensor,
    masses: Tensor,
    states: Tensor,
    moved: Tensor,
    full: Tensor,
    kept: Tensor,
    lipschitz: Tensor,
    floor: float = 0.5,
) -> Inequality:
    """R_g <= sqrt(1/floor) L_N s_g sqrt(E_post) per query [T] (eq:cond-state-message).

    ``masses`` m [N] must be at least ``floor``: deployed masses are at least 1/2, which gives the
    paper's sqrt(2). ``states`` h [N, d], ``moved`` h~ [K, d]; ``full`` = N(h), ``kept`` = N(h~);
    ``lipschitz`` L_N serves at least the pairs (h_i, h~_pi(i)), as `local_lipschitz` does. The
    middle of the chain, ``weighted`` = sqrt(sum_i a_gi^2 / m_i) L_N sqrt(E_post), is much smaller
    when attention is spread: up to sqrt(N) below the right side.
    """
    post = masses @ (states - moved[carrier]).square().sum(-1)
    reach = lipschitz * post.sqrt()
    total = attention.sum(1)
    errors = torch.linalg.vector_norm(full - kept[carrier], dim=-1)
    terms = {
        "weighted": (attention.square() / masses).sum(1).sqrt() * reach,
        "post": post,
        "attention": total,
    }
    size = torch.linalg.vector_norm(torch.cat([full, kept]), dim=-1).amax()
    return Inequality(attention @ errors, (1 / floor) ** 0.5 * total * reach, terms, total * size)


def message_budget(errors: Tensor, budgets: Tensor, weights: Tensor) -> Inequality:
    """(sum_g eta_g ||y_g - y~_g||^2)^(1/2) <= (sum_g eta_g B_g^2)^(1/2) -> scalar.

    eq:cond-stacked-message-budget. ``errors`` [G] message errors, ``budgets`` B_g [G] with
    errors <= budgets, ``weights`` eta_g >= 0 [G].
    """
    return Inequality((weights @ errors.square()).sqrt(), (weights @ budgets.square()).sqrt())


def _polar(message: Tensor, compact: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Squared relative error, alpha, kappa and 1 - kappa of two stacked messages."""
    y, z = message.flatten(), compact.flatten()
    size, other = torch.linalg.vector_norm(y), torch.linalg.vector_norm(z)
    y, z, ratio = y / size, z / torch.where(other > 0, other, 1), other / size
    relative = (message - compact).div(size).square().sum()
    # 1 - kappa from the unit vectors' difference: 1 - y.z would lose it when they nearly agree.
    return relative, ratio, y @ z, (y - z).square().sum() / 2


def direction_magnitude(message: Tensor, compact: Tensor) -> Identity:
    """||Y - Y~||^2 / ||Y||^2 = 1 + alpha^2 - 2 alpha kappa = (1 - alpha)^2 + 2 alpha (1 - kappa).

    eq:cond-direction-magnitude and eq:cond-message-polar. ``message`` Y and ``compact`` Y~ have one
    shape (weighted messages, stacked), Y != 0. The right side [2] holds both forms in this order.
    A zero Y~ has alpha = 0 and no direction; kappa then does not matter.
    """
    relative, alpha, kappa, _ = _polar(message, compact)
    expanded = 1 + alpha.square() - 2 * alpha * kappa
    polar = (1 - alpha).square() + 2 * alpha * (1 - kappa)
    terms = {"alpha": alpha, "kappa": kappa}
    return Identity(relative, torch.stack([expanded, polar]), terms, scale=1 + alpha.square())


def direction_lower_bounds(message: Tensor, compact: Tensor) -> Inequality:
    """|1 - alpha| and sqrt(2 alpha (1 - kappa)) <= ||Y - Y~|| / ||Y||, [2].

    From eq:cond-message-polar; arguments as in `direction_magnitude`.
    """
    relative, alpha, kappa, turn = _polar(message, compact)
    lhs = torch.stack([(1 - alpha).abs(), (2 * alpha * turn).sqrt()])
    terms = {"alpha": alpha, "kappa": kappa}
    return Inequality(lhs, relative.sqrt(), terms, scale=1 + alpha)


def directional_quantisation(
    energies: Tensor, atom_directions: Tensor, support: Tensor, carrier: Tensor
) -> Inequality:
    """||sum_i b_i - b^|| <= sqrt(2 E sum_i e_i [1 - d_i.d_pi(i)]) -> scalar.

    eq:cond-directional-quantization. ``energies`` e_i >= 0 [N], ``atom_directions`` d_i [N, r] of
    unit norm, atoms b_i = e_i d_i, ``support`` [K], ``carrier`` [N]. The middle of the chain is
    ``triangle`` = sum_i e_i ||d_i - d_pi(i)||.
    """
    change = atom_directions - atom_directions[support][carrier]
    squared = change.square().sum(-1)
    total = energies.sum()
    # For unit directions 1 - d.d' is half the squared chord, which keeps its digits near 0.
    rhs = (2 * total * (energies @ (squared / 2))).sqrt()
    terms = {"triangle": energies @ squared.sqrt(), "total": total}
    lhs = torch.linalg.vector_norm(energies @ change)
    return Inequality(lhs, rhs, terms, scale=total)


def sign_blindness(values: Tensor, signs: Tensor, mass_coordinate: Tensor) -> Identity:
    """Atoms [z_i; sigma] and [s_i z_i; sigma] have the same norms, whatever their sums, [N].

    Proposition 1 of the appendix (support and realisation are distinct): ``values`` [v, v] with
    ``signs`` [1, -1] turns {v, v} into {v, -v}; all carrier energies, hence all grounded rows and
    the objective, agree, while the sums (``sum``, ``flipped_sum``, both [r]) are 2v and 0.
    ``values`` z [N, r], ``signs`` +-1 [N], ``mass_coordinate`` sigma >= 0, a scalar.
    """
    flipped = signs[:, None] * values
    column = mass_coordinate.expand(values.shape[0], 1)
    norms = [torch.linalg.vector_norm(torch.cat([z, column], 1), dim=-1) for z in (values, flipped)]
    terms = {"sum": values.sum(0), "flipped_sum": flipped.sum(0)}
    return Identity(norms[0], norms[1], terms)
