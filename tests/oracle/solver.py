"""Facility-location coverage, the batched responsibility solver and its references.

C [M, N] is a nonnegative client matrix. Sums over clients run along contiguous rows of the
transposed matrix, so that identical columns always receive identical sums.
"""

import itertools
import math

import numpy as np

POOL_EPSILON = 1e-30


def cover(C, support):
    """What each client gets from the support: max over i in S of C[m, i]. Returns [M]."""
    best = np.zeros(C.shape[0])
    for i in support:
        best = np.maximum(best, C[:, i])
    return best


def facility(C, support):
    """F(S), the total cover (eq:cond-coverage); 0 for the empty support. Returns a float."""
    return math.fsum(cover(C, support))


def _residuals(C, covered):
    """R transposed: [N, M], R[m, i] = [C[m, i] - covered[m]]_+ (eq:cond-responsibility)."""
    return np.maximum(np.ascontiguousarray(C.T) - covered, 0.0)


def marginals(C, covered):
    """The gain of every single token over a cover [M] (eq:cond-submodular). Returns [N]."""
    return _residuals(C, covered).sum(axis=1)


def deficits(C, covered):
    """What each client still misses: its best entry minus its cover [M]. Returns [M]."""
    return np.array([row.max() for row in C]) - covered


def ratio(C, support):
    """F(S) / F(V) (eq:cond-final-cert); 1 when F(V) = 0."""
    whole = facility(C, range(C.shape[1]))
    return facility(C, support) / whole if whole > 0 else 1.0


def bank_ratios(C, support, spans):
    """c_b = F_b(S) / Z_b for every bank (eq:cond-bank-mixture). spans: (start, stop) row ranges."""
    return np.array([ratio(C[start:stop], support) for start, stop in spans])


def certificate(q):
    """c_B = 1 - prod(1 - q_t) (eq:cond-batched-bound); 0 without rounds. q: the q_t [rounds]."""
    left = 1.0
    for value in q:
        left *= 1.0 - value
    return 1.0 - left


def _descending(values, among):
    """The indices `among`, by decreasing value; equal values by increasing index."""
    return sorted(among, key=lambda i: (-values[i], i))


def _column_classes(C):
    """A number per column, equal for exactly equal columns. Returns [N]."""
    numbers = {}
    columns = np.ascontiguousarray(C.T)
    return np.array([numbers.setdefault(column.tobytes(), len(numbers)) for column in columns])


def _margin(values, inside, outside, classes):
    """How clearly a cut separates two groups of tokens, as a share of the largest value.

    The smallest values[i] - values[j] over i inside, j outside of different classes [N]; equal
    columns cannot be told apart and do not count. inf when there is nothing to compare.
    """
    if not inside or not outside:
        return math.inf
    within = np.array([values[i] for i in inside])
    beyond = np.array([values[j] for j in outside])
    gaps = within[:, None] - beyond[None, :]
    gaps = gaps[classes[inside][:, None] != classes[outside][None, :]]
    scale = within.max()
    if not gaps.size:
        return math.inf
    return float(gaps.min() / scale) if scale > 0 else 0.0


def pool_responsibilities(Rp, temperature=0.1):
    """rho, the softmax over the pool of Rp / (temperature * rowmax + eps): Rp [M, P] -> [M, P]."""
    largest = Rp.max(axis=1, keepdims=True)
    logits = Rp / (temperature * largest + POOL_EPSILON)
    weights = np.exp(logits - logits.max(axis=1, keepdims=True))
    return weights / weights.sum(axis=1, keepdims=True)


def _pool_scores(R, pool, temperature):
    """s_i = sum_m rho[m, i] R[m, i] for the pool: R [N, M] (transposed). Returns {token: score}."""
    Rp = R[pool].T
    shares = np.ascontiguousarray((pool_responsibilities(Rp, temperature) * Rp).T)
    return dict(zip(pool, (float(s) for s in shares.sum(axis=1)), strict=True))


def _anchors(C, image_ids, images):
    """S_0: nothing for one image, else each image's best single token. Returns (tokens, margin)."""
    tokens = C.shape[1]
    if images == 1:
        return [], math.inf
    gains, classes = marginals(C, np.zeros(C.shape[0])), _column_classes(C)
    anchors, margin = [], math.inf
    for image in range(images):
        ranked = _descending(gains, [i for i in range(tokens) if image_ids[i] == image])
        anchors.append(ranked[0])
        margin = min(margin, _margin(gains, ranked[:1], ranked[1:], classes))
    return anchors, margin


def _round(C, classes, support, kept, batch, pool_factor, temperature):
    """One round of the solver on top of a support (list). Returns its log, None without gain."""
    covered = cover(C, support)
    R = _residuals(C, covered)
    gains = R.sum(axis=1)
    taken = set(support)
    ranked = [i for i in range(len(gains)) if gains[i] > 0 and i not in taken]
    ranked = _descending(gains, ranked)
    if not ranked:
        return None
    pool = ranked[: pool_factor * batch]
    scores = _pool_scores(R, pool, temperature)
    order = _descending(scores, pool)
    size = min(batch, kept - len(support), len(pool))
    entered = order[:size]
    reachable = math.fsum(gains[i] for i in ranked[:kept])
    gained = facility(C, support + entered) - math.fsum(covered)
    return {
        "entered": entered,
        "pool": pool,
        "gains": gains,
        "scores": scores,
        "U": reachable,
        "gained": gained,
        "q": gained / reachable,
        "gain_margin": _margin(gains, pool, ranked[len(pool) :], classes),
        "score_margin": _margin(scores, entered, order[size:], classes),
    }


def select(C, kept, image_ids=None, images=1, batch=16, pool_factor=4, temperature=0.1):
    """The batched responsibility solver (eq:cond-responsibility).

    C [M, N], kept K >= images, image_ids [N]. Returns a dictionary:
    support [K] ascending; entry [K], tokens in the order they entered; anchors S_0; rounds, one
    log per round (entered, pool, gains [N], scores, U, gained, q, gain_margin, score_margin);
    filled, tokens added without gain; q [rounds]; c_B; value F(S); anchor_margin.
    A margin near 0 marks a cut between different columns that rounding could decide otherwise.
    """
    C = np.asarray(C, dtype=np.float64)
    tokens = C.shape[1]
    kept = min(kept, tokens)
    anchors, anchor_margin = _anchors(C, image_ids, images)
    entry, rounds, classes = list(anchors), [], _column_classes(C)
    while len(entry) < kept:
        log = _round(C, classes, entry, kept, batch, pool_factor, temperature)
        if log is None:
            break
        rounds.append(log)
        entry = entry + log["entered"]
    taken = set(entry)
    free = [i for i in range(tokens) if i not in taken]
    filled = free[: kept - len(entry)]
    entry = entry + filled
    q = [log["q"] for log in rounds]
    return {
        "support": np.array(sorted(entry), dtype=np.int64),
        "entry": np.array(entry, dtype=np.int64),
        "anchors": anchors,
        "rounds": rounds,
        "filled": filled,
        "q": np.array(q),
        "c_B": certificate(q),
        "value": facility(C, entry),
        "anchor_margin": anchor_margin,
    }


def best_support(C, kept, image_ids=None, images=1):
    """The best support by trying every one of them; for small N only.

    With several images, only supports that meet every image count. Returns (support [K], F(S*));
    equal values: the first support in lexicographic order.
    """
    best, value = None, -math.inf
    for support in itertools.combinations(range(C.shape[1]), kept):
        if images > 1 and len({int(image_ids[i]) for i in support}) < images:
            continue
        found = facility(C, support)
        if found > value:
            best, value = support, found
    return np.array(best, dtype=np.int64), value


def greedy(C, kept, image_ids=None, images=1):
    """Sequential exact greedy from the same anchors, one token at a time, ties to the lowest index.

    Without gain it fills with the lowest free indices. Returns (entry [K] in order, values [K],
    F after each token).
    """
    anchors, _ = _anchors(C, image_ids, images)
    entry = list(anchors)
    values = [facility(C, entry[: n + 1]) for n in range(len(entry))]
    while len(entry) < kept:
        gains = marginals(C, cover(C, entry))
        taken = set(entry)
        free = [i for i in range(C.shape[1]) if i not in taken]
        entry.append(_descending(gains, free)[0])
        values.append(facility(C, entry))
    return np.array(entry, dtype=np.int64), np.array(values)
