"""Assignment, gates, masses, centroids and RMS restoration."""

import math

import numpy as np

from .banks import unit_states

GAP_SCALE, GAP_POWER, GAP_MARGIN = 0.08, 8, 0.05
SPATIAL_WEIGHT, SPATIAL_TEMPERATURE = 0.5, 0.02
POPULATION_STRENGTH = 0.5


def _candidates(support, image_ids):
    """The support tokens of every image, ascending: {image: [tokens]}."""
    found = {}
    for j in sorted(int(j) for j in support):
        found.setdefault(int(image_ids[j]), []).append(j)
    return found


def cosine_gaps(states, support, image_ids):
    """delta [N]: best minus second-best cosine to the candidates; 0 with one candidate.

    states [N, d], support [K], image_ids [N]. Selected tokens have no gap; their entry is 0.
    """
    x, by_image = unit_states(states), _candidates(support, image_ids)
    chosen = {int(j) for j in support}
    gaps = np.zeros(len(x))
    for i in range(len(x)):
        if i in chosen:
            continue
        candidates = by_image[int(image_ids[i])]
        cosines = sorted((x[candidates] * x[i]).sum(axis=1), reverse=True)
        if len(cosines) > 1:
            gaps[i] = cosines[0] - cosines[1]
    return gaps


def separability(gaps, support):
    """s_x from the mean gap over discarded tokens (eq:cond-population-gate): gaps [N] -> float."""
    chosen = {int(j) for j in support}
    discarded = [float(gaps[i]) for i in range(len(gaps)) if i not in chosen]
    if not discarded:
        return 0.0
    mean = math.fsum(discarded) / len(discarded)
    return 1.0 - math.exp(-((mean / GAP_SCALE) ** GAP_POWER))


def local_gates(gaps):
    """g_i = clamp(1 - delta_i / 0.05, 0, 1): gaps [N]. Returns [N]."""
    return np.clip(1.0 - gaps / GAP_MARGIN, 0.0, 1.0)


def assign(states, coordinates, support, image_ids, gaps, s_x):
    """The carrier of every token (eq:cond-assignment).

    states [N, d], coordinates [N, D], support [K], image_ids [N], gaps [N]. Returns
    (carrier [N], token indices; margin [N], the lead of the carrier's score over the best
    candidate that differs from it in state or place, inf without one).
    """
    x, gates, by_image = unit_states(states), local_gates(gaps), _candidates(support, image_ids)
    chosen = {int(j) for j in support}
    carrier, margin = np.zeros(len(x), dtype=np.int64), np.full(len(x), math.inf)
    for i in range(len(x)):
        if i in chosen:
            carrier[i] = i
            continue
        candidates = by_image[int(image_ids[i])]
        distance = ((coordinates[candidates] - coordinates[i]) ** 2).sum(axis=1)
        kappa = (x[candidates] * x[i]).sum(axis=1)
        kappa = kappa + SPATIAL_WEIGHT * s_x * gates[i] * np.exp(-distance / SPATIAL_TEMPERATURE)
        best = 0
        for n in range(1, len(candidates)):
            if kappa[n] > kappa[best]:
                best = n
        carrier[i] = j = candidates[best]
        same = (x[candidates] == x[j]).all(axis=1)
        same &= (coordinates[candidates] == coordinates[j]).all(axis=1)
        if not same.all():
            margin[i] = kappa[best] - kappa[~same].max()
    return carrier, margin


def masses(s_x, energy):
    """m_i = (1 - 0.5 s_x) + 0.5 s_x e_i: energy [N], mean one. Returns [N], all positive."""
    strength = POPULATION_STRENGTH * s_x
    return (1.0 - strength) + strength * np.asarray(energy, dtype=np.float64)


def centroids(states, m, carrier, support):
    """Cluster masses and centroids (eq:cond-transport): returns (M [K], c [K, d]).

    states [N, d], m [N], carrier [N], support [K] ascending.
    """
    states = np.asarray(states, dtype=np.float64)
    M, c = np.zeros(len(support)), np.zeros((len(support), states.shape[1]))
    row = {int(j): n for n, j in enumerate(support)}
    for i in range(len(states)):
        n = row[int(carrier[i])]
        M[n] += m[i]
        c[n] += m[i] * states[i]
    return M, c / M[:, None]


def rms(u):
    """Root mean square of a vector u [d]."""
    return math.sqrt(float((u**2).mean()))


def restore(u, reference):
    """R_j(u): u [d] at the RMS of the carrier's own state, reference [d]; it when rms(u) = 0."""
    size = rms(u)
    if size == 0:
        return np.array(reference, dtype=np.float64)
    return u * (rms(reference) / size)


def transport(states, c, support, tau=1.0):
    """h~_j = R_j((1 - tau) h_j + tau c_j): states [N, d], c [K, d], support [K] -> [K, d]."""
    states = np.asarray(states, dtype=np.float64)
    out = [restore((1 - tau) * states[j] + tau * c[n], states[j]) for n, j in enumerate(support)]
    return np.stack(out)


def realise(states, coordinates, support, image_ids, energy, tau=1.0):
    """The whole realisation of an ascending support [K].

    states [N, d], coordinates [N, D], image_ids [N], energy [N]. Returns a dictionary: gaps [N],
    s_x, gates [N], carrier [N], margin [N], m [N], M [K], c [K, d], states [K, d].
    """
    gaps = cosine_gaps(states, support, image_ids)
    s_x = separability(gaps, support)
    carrier, margin = assign(states, coordinates, support, image_ids, gaps, s_x)
    m = masses(s_x, energy)
    M, c = centroids(states, m, carrier, support)
    return {
        "gaps": gaps,
        "s_x": s_x,
        "gates": local_gates(gaps),
        "carrier": carrier,
        "margin": margin,
        "m": m,
        "M": M,
        "c": c,
        "states": transport(states, c, support, tau),
    }
