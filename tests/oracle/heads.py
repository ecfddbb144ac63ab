"""Head contribution patterns, their Gram matrix, clusters and weights."""

import math

import numpy as np

GRID = 2.0**16  # comparisons between heads use values rounded to the nearest multiple of 2^-16


def view_patterns(A, Z, sigma):
    """The flattened atoms of every head in one view, scaled to unit mean atom norm.

    A [H, T, N], Z [H, N, r], sigma [H]. Returns [H, T * N * (r + 1)]. A head whose mean atom
    norm is zero stays zero. The queries are not weighted.
    """
    heads, queries, tokens = A.shape
    patterns = []
    for h in range(heads):
        vectors = np.concatenate([Z[h], np.full((tokens, 1), sigma[h])], axis=1)
        # eq:cond-grounded-client, u_i = A[t, i] [Z_i; sigma]
        atoms = np.stack([A[h, t][:, None] * vectors for t in range(queries)])
        mean = np.sqrt((atoms**2).sum(axis=2)).mean()
        patterns.append((atoms / mean if mean > 0 else 0.0 * atoms).reshape(-1))
    return np.stack(patterns)


def view_gram(A, Z, sigma):
    """Inner products of the heads' patterns in one view. Same arguments; returns [H, H]."""
    patterns = view_patterns(A, Z, sigma)
    heads = len(patterns)
    gram = np.zeros((heads, heads))
    for h in range(heads):
        for g in range(heads):
            gram[h, g] = (patterns[h] * patterns[g]).sum()
    return gram


def head_gram(view_grams, masses):
    """Gram matrix of the concatenated patterns (eq:cond-head-pattern before normalisation).

    view_grams: one [H, H] per view; masses [views]. Returns [H, H].
    """
    total = np.zeros_like(np.asarray(view_grams[0], dtype=np.float64))
    for gram, mass in zip(view_grams, masses, strict=True):
        total = total + mass * gram
    return total


def _norms(gram):
    """Pattern norms [H] from the diagonal of a Gram matrix [H, H]."""
    return np.array([math.sqrt(max(float(gram[h, h]), 0.0)) for h in range(len(gram))])


def _cosines(gram):
    """Cosines [H, H] between patterns; 0 where one of the two heads is inactive."""
    norms = _norms(gram)
    heads = len(norms)
    cosines = np.zeros((heads, heads))
    for h in range(heads):
        for g in range(heads):
            if norms[h] > 0 and norms[g] > 0:
                cosines[h, g] = gram[h, g] / (norms[h] * norms[g])
    return cosines


def head_clusters(gram, most=4):
    """Farthest-first cosine clusters of the heads: gram [H, H]. Returns cluster [H] int64.

    Numbers follow the order in which the centres were found; ties go to the lowest head and to
    the earliest centre; inactive heads join cluster 0.
    """
    norms = _norms(gram)
    heads = len(norms)
    clusters = np.zeros(heads, dtype=np.int64)
    if norms.max() == 0:
        return clusters
    size = np.rint(norms / norms.max() * GRID)
    alike = np.rint(_cosines(gram) * GRID)
    active = [h for h in range(heads) if norms[h] > 0]

    first = active[0]
    for h in active:
        if size[h] > size[first]:
            first = h
    centres = [first]
    while len(centres) < most:
        rest = [h for h in active if h not in centres]
        if not rest:
            break
        nearest = {h: max(alike[h, c] for c in centres) for h in rest}
        centres.append(min(rest, key=lambda h: (nearest[h], h)))

    for h in active:
        best = 0
        for number in range(1, len(centres)):
            if alike[h, centres[number]] > alike[h, centres[best]]:
                best = number
        clusters[h] = best
    return clusters


def head_weights(gram, clusters, dispersion=0.05):
    """Head weights omega [H], sum 1 (eq:cond-head-weight): gram [H, H], clusters [H].

    Every nonempty cluster gets the same mass; inside it a head weighs 1 / (d_h + dispersion).
    """
    cosines = _cosines(gram)
    weights = np.zeros(len(cosines))
    numbers = sorted({int(c) for c in clusters})
    for number in numbers:
        members = [h for h in range(len(cosines)) if clusters[h] == number]
        # With s the sum of the members' unit patterns, mu = s / ||s||, u_h . mu = u_h . s / ||s||.
        squared = math.fsum(cosines[h, g] for h in members for g in members)
        raw = {}
        for h in members:
            along = math.fsum(cosines[h, g] for g in members)
            projection = along / math.sqrt(squared) if squared > 0 else 0.0
            raw[h] = 1.0 / (max(1.0 - projection, 0.0) + dispersion)
        total = math.fsum(raw.values())
        for h in members:
            weights[h] = raw[h] / total / len(numbers)
    return weights
