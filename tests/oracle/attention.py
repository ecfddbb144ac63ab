"""Budget, queries, the visual columns of the native attention, atoms and energy.

Symbols: N visual tokens, T queries, H query heads, Hkv key/value heads, dh head width,
d model width, L sequence length, r probe rank.
"""

import math

import numpy as np


def realised_keep(keep, tokens, images=1):
    """The number of tokens kept, K = min(N, max(K_r, I)).

    keep: an int is a count; a float in (0, 1] is a fraction of `tokens`, rounded half up, at
    least 1. Returns an int.
    """
    fraction = isinstance(keep, float)
    requested = max(1, math.floor(keep * tokens + 0.5)) if fraction else int(keep)
    return min(tokens, max(requested, images))


def evenly_spaced(count, limit):
    """At most `limit` of the indices 0..count-1, evenly spaced. Returns [min(count, limit)]."""
    if count <= limit:
        return np.arange(count)
    return np.array([((2 * j + 1) * count) // (2 * limit) for j in range(limit)], dtype=np.int64)


def query_positions(text, visual, max_queries=128):
    """The text rows that act as queries.

    text [S] ascending sequence indices, visual [N] sequence indices. Returns (positions [T],
    potential): the chosen rows and the number of text rows that see at least one visual token.
    """
    first = min(int(j) for j in visual)
    rows = [int(s) for s in text if int(s) > first]
    potential = len(rows)
    if potential > max_queries:
        others, terminal = rows[:-1], rows[-1]
        rows = [others[j] for j in evenly_spaced(len(others), max_queries - 1)] + [terminal]
    return np.array(rows, dtype=np.int64), potential


def query_weights(queries, terminal=2.0):
    """Query weights nu [T]: the last one counts `terminal`, the others 1; they sum to 1."""
    weights = np.ones(queries)
    if queries:
        weights[-1] = terminal
        weights = weights / weights.sum()
    return weights


def _visible(position, length, key_valid, sliding_window):
    """Which keys a query at sequence index `position` sees without a mask. Returns [L] bool."""
    seen = np.zeros(length, dtype=bool)
    for j in range(min(position + 1, length)):
        valid = key_valid is None or bool(key_valid[j])
        near = sliding_window is None or position - j < sliding_window
        seen[j] = valid and near
    return seen


def _mask_row(mask, head, position, length):
    """One query's row of a mask. Returns (visible [L] bool, bias [L])."""
    mask = np.asarray(mask)
    while mask.ndim < 4:
        mask = mask[None]
    row = mask[0, head if mask.shape[1] > 1 else 0, position, :length]
    if row.dtype == np.bool_:
        return row.copy(), np.zeros(length)
    visible = row > np.finfo(row.dtype).min / 2
    return visible, np.where(visible, row, 0).astype(np.float64)


def visual_attention(
    q,
    k,
    query_positions,
    visual,
    scaling,
    mask=None,
    key_valid=None,
    sliding_window=None,
    softcap=None,
    sinks=None,
):
    """The visual columns of the native softmax over every key a query sees.

    q [H, T, dh], k [Hkv, L, dh], query_positions [T], visual [N], mask [Lq, Lk], [1|H, Lq, Lk]
    or [1, 1|H, Lq, Lk] (boolean or additive), key_valid [L] bool, sinks [H].
    Returns A [H, T, N]. A query that sees no key has a zero row.
    """
    if mask is not None and not (key_valid is None and sliding_window is None):
        raise ValueError("a mask is the whole truth: key_valid and sliding_window must be None")
    q, k = np.asarray(q, dtype=np.float64), np.asarray(k, dtype=np.float64)
    heads, queries, _ = q.shape
    shared, length = heads // k.shape[0], k.shape[1]
    visual = np.asarray(visual, dtype=np.int64)
    seen_by = [_visible(int(s), length, key_valid, sliding_window) for s in query_positions]
    A = np.zeros((heads, queries, len(visual)))
    # eq:cond-native-message, one head and one query at a time
    for h in range(heads):
        for t in range(queries):
            scores = scaling * (k[h // shared] @ q[h, t])
            if softcap is not None:
                scores = softcap * np.tanh(scores / softcap)
            visible = seen_by[t]
            if mask is not None:
                visible, bias = _mask_row(mask, h, int(query_positions[t]), length)
                scores = scores + bias
            if not visible.any():
                continue
            top = scores[visible].max()
            if sinks is not None:
                top = max(top, float(sinks[h]))
            exponent = np.where(visible, scores - top, -np.inf)
            row = np.exp(exponent)
            total = row.sum()
            if sinks is not None:
                total += math.exp(float(sinks[h]) - top)
            A[h, t] = (row / total)[visual]
    return A


def output_probe(weight, P, heads):
    """The probe seen through each head's output projection, O_h P.

    weight [d, H * dh] (an output projection as a linear layer stores it), P [d, r].
    Returns [H, dh, r].
    """
    weight, P = np.asarray(weight, dtype=np.float64), np.asarray(P, dtype=np.float64)
    width = weight.shape[1] // heads
    return np.stack([weight[:, h * width : (h + 1) * width].T @ P for h in range(heads)])


def message_coordinates(v, output_probe):
    """Z_h = V_h (O_h P): v [Hkv, N, dh], output_probe [H, dh, r]. Returns Z [H, N, r]."""
    v, output_probe = np.asarray(v, dtype=np.float64), np.asarray(output_probe, dtype=np.float64)
    heads = output_probe.shape[0]
    shared = heads // v.shape[0]
    return np.stack([v[h // shared] @ output_probe[h] for h in range(heads)])


def mass_coordinate(Z):
    """The homogeneous coordinate sigma [H] of Z [H, N, r] (eq:cond-mass-coordinate)."""
    heads, tokens, rank = Z.shape
    sigma = np.zeros(heads)
    for h in range(heads):
        frobenius = math.sqrt(float((Z[h] ** 2).sum()))
        sigma[h] = max(frobenius / math.sqrt(tokens * rank), 1e-8)
    return sigma


def atom_norms(Z, sigma):
    """n_h[i] = ||[Z_h[i]; sigma_h]||: Z [H, N, r], sigma [H]. Returns [H, N]."""
    norms = np.zeros(Z.shape[:2])
    for h in range(Z.shape[0]):
        norms[h] = np.sqrt((Z[h] ** 2).sum(axis=1) + sigma[h] ** 2)
    return norms


def energy(A, norms, head_weights, query_weights):
    """Message energy of each token, divided by its mean (eq:cond-grounded-energy).

    A [H, T, N], norms [H, N], head_weights [H], query_weights [T]. Returns [N]; all ones when
    the mean is 0.
    """
    heads, queries, tokens = A.shape
    squared = np.zeros(tokens)
    for h in range(heads):
        for t in range(queries):
            squared += head_weights[h] * query_weights[t] * (A[h, t] * norms[h]) ** 2
    e = np.sqrt(squared)
    mean = e.sum() / tokens
    return e / mean if mean > 0 else np.ones(tokens)
