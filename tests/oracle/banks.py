"""Grounded, appearance and spatial clients, and the client matrix with its bookkeeping.

A bank is a dictionary: name; rows [M_b, N], each a distribution over tokens or exactly zero;
masses [M_b], the mass of each row; active [M_b] bool; nominal, the configured bank mass.
"""

import math

import numpy as np

from .attention import evenly_spaced

GROUNDED_MASS, APPEARANCE_MASS, SPATIAL_MASS = 1.0, 0.5, 0.25
LANDMARK_GRIDS = {2: (16, 16), 3: (4, 8, 8)}


def view_masses(history):
    """Masses [1 + history] of the current view and of `history` completed views, in that order."""
    if history == 0:
        return np.array([1.0])
    return np.array([0.5] + [0.5 / history] * history)


def _bank(name, rows, masses, nominal, tokens):
    """A bank from lists of rows ([N] each) and row masses; all-zero rows are inactive."""
    rows = np.stack(rows) if rows else np.zeros((0, tokens))
    active = np.array([bool((row > 0).any()) for row in rows], dtype=bool)
    masses = np.array(masses, dtype=np.float64)
    return {"name": name, "rows": rows, "masses": masses, "active": active, "nominal": nominal}


def grounded_bank(views, head_weights, query_weights, masses, row_mass="balanced"):
    """Grounded clients (eq:cond-grounded-client), rows ordered by view, head, query.

    views: one pair (A [H, T, N], norms [H, N]) per view, the current one first, then history in
    ascending layer order; head_weights [H], query_weights [T], masses [views].
    """
    rows, weights = [], []
    for (A, norms), beta in zip(views, masses, strict=True):
        heads, queries, tokens = A.shape
        for h in range(heads):
            for t in range(queries):
                atoms = A[h, t] * norms[h]
                total = atoms.sum()
                rows.append(atoms / total if total > 0 else np.zeros(tokens))
                if row_mass == "balanced":
                    weights.append(beta * head_weights[h] * query_weights[t])
                elif row_mass == "uniform":
                    weights.append(beta / (heads * queries))
                else:
                    raise ValueError(f"row_mass is 'balanced' or 'uniform', not {row_mass!r}")
    return _bank("grounded", rows, weights, GROUNDED_MASS, views[0][0].shape[2])


def unit_states(states):
    """States divided by their norms: states [N, d]. Returns [N, d]; a zero state stays zero."""
    out = np.zeros_like(np.asarray(states, dtype=np.float64))
    for i, state in enumerate(states):
        norm = math.sqrt(float((state**2).sum()))
        if norm > 0:
            out[i] = state / norm
    return out


def gibbs(logits, allowed):
    """Softmax of logits [N] over the allowed [N] bool tokens, zero elsewhere. Returns [N]."""
    weights = np.where(allowed, np.exp(np.minimum(logits - logits[allowed].max(), 0.0)), 0.0)
    return weights / weights.sum()


def appearance_bank(states, image_ids, signs=None, limit=4096, temperature=0.2):
    """Appearance clients (eq:cond-aux-clients): every token looks for its like in its image.

    states [N, d], image_ids [N]. Up to N = limit every token is a client, at full width. Beyond,
    unit states are projected by signs [d, 128] (entries +-1), scaled by 1 / sqrt(128) and
    normalised again, and `limit` evenly spaced tokens are clients.
    """
    image_ids = np.asarray(image_ids)
    tokens = len(states)
    x = unit_states(states)
    if tokens > limit:
        x = unit_states(x @ np.asarray(signs, dtype=np.float64) / math.sqrt(signs.shape[1]))
    clients = evenly_spaced(tokens, limit)
    rows = []
    for m in clients:
        cosines = (x * x[m]).sum(axis=1)
        rows.append(gibbs(cosines / temperature, image_ids == image_ids[m]))
    weights = [APPEARANCE_MASS / len(clients)] * len(clients)
    return _bank("appearance", rows, weights, APPEARANCE_MASS, tokens)


def landmarks(axes):
    """Cell centres of [0, 1]^axes, row-major: [256, 2] on a 16 x 16 grid, [256, 3] on 4 x 8 x 8."""
    grid = LANDMARK_GRIDS[axes]
    cells = np.array(list(np.ndindex(*grid)), dtype=np.float64)
    return (cells + 0.5) / np.array(grid, dtype=np.float64)


def spatial_bank(coordinates, image_ids, images, temperature=0.02):
    """Spatial clients (eq:cond-aux-clients): every landmark of every image, image-major.

    coordinates [N, D] in [0, 1], image_ids [N].
    """
    coordinates = np.asarray(coordinates, dtype=np.float64)
    image_ids = np.asarray(image_ids)
    points = landmarks(coordinates.shape[1])
    rows = []
    for image in range(images):
        own = image_ids == image
        for point in points:
            distance = ((coordinates - point) ** 2).sum(axis=1)
            rows.append(gibbs(-distance / temperature, own))
    weights = [SPATIAL_MASS / len(rows)] * len(rows)
    return _bank("spatial", rows, weights, SPATIAL_MASS, len(coordinates))


def client_matrix(banks):
    """Stack banks, given in the order grounded, appearance, spatial, into one client matrix.

    Returns (C [M, N], books), one book per bank (eq:cond-coverage, eq:cond-effective-bank-mass):
    name, start and stop (its rows in C), rows M_b, active, nominal beta_b, deployed beta^_b,
    attainable Z_b, share omega_b (0 when nothing is attainable in any bank).
    """
    blocks, books, start = [], [], 0
    for bank in banks:
        block = bank["masses"][:, None] * bank["rows"]
        blocks.append(block)
        count = len(block)
        books.append(
            {
                "name": bank["name"],
                "start": start,
                "stop": start + count,
                "rows": count,
                "active": int(bank["active"].sum()),
                "nominal": bank["nominal"],
                "deployed": math.fsum(bank["masses"][bank["active"]]),
                "attainable": math.fsum(row.max() for row in block),
            }
        )
        start += count
    total = math.fsum(book["attainable"] for book in books)
    for book in books:
        book["share"] = book["attainable"] / total if total > 0 else 0.0
    return np.concatenate(blocks), books
