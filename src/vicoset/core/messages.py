"""What the prompt reads from the image: native attention on visual columns, and its messages.

Everything here is the visual slice of the model's own attention (eq:cond-native-message): the
softmax runs over all keys a query may see and only the visual columns are returned, so a row sums
to the share of attention that the image got, never to 1.
"""

from __future__ import annotations

import torch
from torch import Tensor

from vicoset.core import checks
from vicoset.core.queries import Queries, evenly_spaced, query_positions, query_weights
from vicoset.errors import DtypeError, SettingError, ShapeError

__all__ = [
    "Queries",
    "atom_norms",
    "energy",
    "evenly_spaced",
    "head_group",
    "mask_rows",
    "mass_coordinate",
    "message_coordinates",
    "output_probe",
    "probe",
    "query_positions",
    "query_weights",
    "visible_keys",
    "visual_attention",
]

MASS_FLOOR = 1e-8  # eps_mass in eq:mass-coordinate


def probe(width: int, rank: int = 4, seed: int = 0) -> Tensor:
    """P [d, r]: orthonormal columns from a seeded Gaussian QR, the same on every machine's CPU."""
    if not 1 <= rank <= width:
        raise SettingError(f"probe rank {rank} for width {width}; allowed are 1..{width}.")
    generator = torch.Generator(device="cpu").manual_seed(seed)
    gaussian = torch.randn(width, rank, generator=generator, dtype=torch.float32, device="cpu")
    basis: Tensor = torch.linalg.qr(gaussian, mode="reduced").Q
    return basis


@checks.full_precision
def output_probe(weight: Tensor, probe: Tensor, heads: int) -> Tensor:
    """O_h P for every head.

    Args:
        weight: [d, H*dh] weight of the output projection (as ``nn.Linear`` stores it).
        probe: P [d, r].
        heads: H.

    Returns:
        [H, dh, r].
    """
    sizes = checks.shape(probe, "probe", "d r")
    sizes = checks.shape(weight, "weight", "d HD", **sizes)
    if heads < 1 or sizes["HD"] % heads:
        raise ShapeError(
            f"weight has {sizes['HD']} input columns for {heads} heads; allowed are head counts "
            f"that divide {sizes['HD']}."
        )
    columns = checks.lift(weight, "weight").t() @ probe.to(checks.compute_dtype(weight.dtype))
    return columns.reshape(heads, -1, sizes["r"])


def visible_keys(
    query_positions: Tensor,
    length: int,
    key_valid: Tensor | None = None,
    sliding_window: int | None = None,
) -> Tensor:
    """[T, L] bool: which keys each query sees without a mask (causal, padding, window).

    Args:
        query_positions: [T] sequence indices.
        length: L.
        key_valid: [L] bool, False on padding.
        sliding_window: a query at s sees the keys s - window + 1 .. s.
    """
    distance = query_positions[:, None] - torch.arange(length, device=query_positions.device)
    visible = distance >= 0
    if sliding_window is not None:
        visible &= distance < sliding_window
    if key_valid is not None:
        visible &= key_valid
    return visible


def mask_rows(mask: Tensor, query_positions: Tensor, length: int) -> tuple[Tensor, Tensor | None]:
    """The queries' rows of a native attention mask.

    Args:
        mask: [Lq, Lk], [1 or H, Lq, Lk] or [1, 1 or H, Lq, Lk]; boolean (True = visible) or
            additive; Lk >= L is cropped (static caches hand over their whole buffer).
        query_positions: [T].
        length: L.

    Returns:
        visible [1 or H, T, L] bool and the additive bias of the same shape, None for boolean masks.
    """
    if mask.ndim == 4 and mask.shape[0] == 1:
        mask = mask[0]
    if mask.ndim == 2:
        mask = mask[None]
    if mask.ndim != 3 or mask.shape[-1] < length:
        raise ShapeError(
            f"mask has shape {list(mask.shape)}; expected [Lq, Lk], [1 or H, Lq, Lk] or "
            f"[1, 1 or H, Lq, Lk] with Lk >= {length}. Pass one sample's native mask."
        )
    if mask.dtype != torch.bool and not mask.is_floating_point():
        raise DtypeError(
            f"mask is {str(mask.dtype).removeprefix('torch.')}; allowed are bool (True = visible) "
            "and floats (added to the scores). Pass mask.bool() where ones mean visible."
        )
    rows = mask.index_select(1, query_positions)[..., :length]
    if rows.dtype == torch.bool:
        return rows, None
    # Libraries write "invisible" as the dtype's lowest number, and sums of two of those as -inf.
    visible = rows > torch.finfo(rows.dtype).min / 2
    return visible, rows.masked_fill(~visible, 0.0)


@checks.full_precision
def visual_attention(
    queries: Tensor,
    keys: Tensor,
    query_positions: Tensor,
    visual: Tensor,
    *,
    scaling: float,
    mask: Tensor | None = None,
    key_valid: Tensor | None = None,
    sliding_window: int | None = None,
    softcap: float | None = None,
    sinks: Tensor | None = None,
) -> Tensor:
    """A_h: the visual columns of the native softmax, for the query rows only.

    A mask, when given, is the whole truth about visibility; without one, attention is causal.
    A query that sees no key at all gets a zero row.

    Args:
        queries: [H, T, dh] query vectors of the T prompt rows, position encoding applied.
        keys: [Hkv, L, dh] key vectors of the whole sequence; head h reads h // (H / Hkv).
        query_positions: [T] sequence indices of the query rows.
        visual: [N] sequence indices of the visual tokens.
        scaling: factor on the scores.
        mask: native mask, see :func:`mask_rows`.
        key_valid: [L] bool, False on padding.
        sliding_window: width of the layer's window.
        softcap: c in ``c * tanh(score / c)``, applied before the mask.
        sinks: [H] one extra logit per head, in the denominator only.

    Returns:
        [H, T, N] in the compute dtype.
    """
    sizes = checks.shape(queries, "queries", "H T dh")
    sizes = checks.shape(keys, "keys", "Hkv L dh", **sizes)
    sizes = checks.shape(query_positions, "query_positions", "T", **sizes)
    heads, length = sizes["H"], sizes["L"]
    group = head_group(heads, sizes["Hkv"])
    checks.shape(visual, "visual", "N")
    if key_valid is not None:
        checks.shape(key_valid, "key_valid", "L", **sizes)
    if sinks is not None:
        checks.shape(sinks, "sinks", "H", **sizes)
    if mask is None:
        visible = visible_keys(query_positions, length, key_valid, sliding_window)[None]
        bias = None
    elif key_valid is not None or sliding_window is not None:
        raise ShapeError(
            "mask came together with key_valid or sliding_window; allowed is one of the two, since "
            "a native mask already holds padding and window. Drop key_valid and sliding_window."
        )
    else:
        visible, bias = mask_rows(mask, query_positions, length)
        if visible.shape[0] not in (1, heads):
            raise ShapeError(f"mask has {visible.shape[0]} heads; allowed are 1 and {heads}.")
    q, k = checks.lift(queries, "queries"), checks.lift(keys, "keys")
    out = q.new_empty(heads, sizes["T"], len(visual))
    for kv in range(sizes["Hkv"]):  # one group at a time: [H/Hkv, T, L] scores, never [H, T, L]
        mine = slice(kv * group, (kv + 1) * group)
        scores = (q[mine] @ k[kv].t()).mul_(scaling)
        if softcap is not None:
            scores = scores.div_(softcap).tanh_().mul_(softcap)
        own = mine if visible.shape[0] == heads else slice(0, 1)
        if bias is not None:
            scores = scores + bias[own]
        scores = scores.masked_fill_(~visible[own], float("-inf"))
        total = scores.logsumexp(-1, keepdim=True)
        if sinks is not None:
            total = torch.logaddexp(total, sinks[mine, None, None].to(total.dtype))
        total = total.masked_fill(total == float("-inf"), 0.0)
        out[mine] = scores.index_select(-1, visual).sub_(total).exp_()
    return out


def head_group(heads: int, key_heads: int) -> int:
    """Query heads per key/value head."""
    if key_heads < 1 or heads % key_heads:
        raise ShapeError(
            f"{heads} query heads over {key_heads} key/value heads; allowed are key/value head "
            f"counts that divide {heads}."
        )
    return heads // key_heads


@checks.full_precision
def message_coordinates(values: Tensor, output_probe: Tensor) -> Tensor:
    """Z_h = (V_h O_h) P, the probed value of every visual token.

    Args:
        values: [Hkv, N, dh] value vectors of the visual tokens.
        output_probe: [H, dh, r], see :func:`output_probe`.

    Returns:
        [H, N, r].
    """
    sizes = checks.shape(values, "values", "Hkv N dh")
    sizes = checks.shape(output_probe, "output_probe", "H dh r", **sizes)
    group = head_group(sizes["H"], sizes["Hkv"])
    v = checks.lift(values, "values")
    grouped = output_probe.to(v.dtype).reshape(sizes["Hkv"], group, sizes["dh"], sizes["r"])
    return torch.einsum("knd,kgdr->kgnr", v, grouped).flatten(0, 1)


def mass_coordinate(messages: Tensor) -> Tensor:
    """sigma [H]: the homogeneous coordinate, RMS of Z_h, at least 1e-8 (eq:mass-coordinate).

    Args:
        messages: Z [H, N, r].
    """
    checks.shape(messages, "messages", "H N r")
    lifted = checks.lift(messages, "messages")
    return lifted.square().mean((1, 2)).sqrt().clamp_min(MASS_FLOOR)


def atom_norms(messages: Tensor, mass: Tensor) -> Tensor:
    """n_h[i] = ||[Z_h[i]; sigma_h]||: a message atom's norm is A_h[t,i] * n_h[i].

    Args:
        messages: Z [H, N, r].
        mass: sigma [H].

    Returns:
        [H, N].
    """
    checks.shape(mass, "mass", "H", **checks.shape(messages, "messages", "H N r"))
    lifted, mass = checks.lift(messages, "messages"), checks.lift(mass, "mass")
    return (lifted.square().sum(-1) + mass.square()[:, None]).sqrt()


@checks.full_precision
def energy(attention: Tensor, norms: Tensor, head_weights: Tensor, query_weights: Tensor) -> Tensor:
    """e_i / mean(e), the grounded energy of every token (eq:cond-grounded-energy).

    Args:
        attention: A [H, T, N] of the current view.
        norms: n [H, N].
        head_weights: omega [H].
        query_weights: nu [T].

    Returns:
        [N], mean 1; all ones when no query reads the image.
    """
    sizes = checks.shape(attention, "attention", "H T N")
    checks.shape(norms, "norms", "H N", **sizes)
    checks.shape(head_weights, "head_weights", "H", **sizes)
    checks.shape(query_weights, "query_weights", "T", **sizes)
    atoms = checks.lift(attention, "attention") * checks.lift(norms, "norms")[:, None]
    # Scaled before it is squared: squares vanish where the image is hardly read at all.
    peak = atoms.amax()
    atoms = atoms.div_(torch.where(peak == 0, 1.0, peak)).square_()
    read = torch.einsum("htn,t->hn", atoms, query_weights.to(atoms.dtype))
    total = torch.einsum("hn,h->n", read, head_weights.to(atoms.dtype)).sqrt()
    mean = total.mean()
    return torch.where(mean == 0, 1.0, total / torch.where(mean == 0, 1.0, mean))
