"""Random instances for property tests.

An instance is a frozen dataclass of float64 arrays that numpy builds from a seed, sizes and a set
of flags. A Hypothesis strategy draws only those, so drawing is cheap and a failing example prints
as the call that rebuilds it.

Every case has nondecreasing image ids and at least one token per image.
"""

import itertools
import math
from dataclasses import dataclass, field

import numpy as np
from hypothesis import strategies as st

DYADIC = np.array([0.0, 0.25, 0.5, 1.0])
SIGNED_DYADIC = np.array([-1.0, -0.5, -0.25, 0.0, 0.25, 0.5, 1.0])

ATTENTION_FLAGS = (
    "padding",  # left padding: key_valid, or baked into the mask
    "window",  # a sliding window, or baked into the mask
    "softcap",
    "sinks",
    "boolean",  # an explicit boolean mask
    "additive",  # an explicit additive mask, with finite biases on visible keys
    "blind",  # some queries see no key at all
    "between",  # text between the images
    "late",  # fewer queries than text rows
    "ties",  # dyadic queries and keys
    "twins",  # some visual tokens share key and value
    "equal",  # all visual tokens share key and value
    "zero",  # some visual keys and values are exactly zero
)
POPULATION_FLAGS = (
    "ties",  # dyadic states and attention
    "twins",  # some tokens are copies of others
    "equal",  # all tokens are alike
    "zero_states",  # some states are exactly zero
    "zero_rows",  # some attention rows are exactly zero
    "zero_heads",  # some heads see nothing
    "zero_values",  # some heads write nothing into the probe
    "same_heads",  # some heads are copies of others
    "peaked",  # attention close to one token per row
    "video",  # coordinates (t, y, x)
    "opposite",  # some states are the exact negative of others
)
CLIENT_KINDS = ("dense", "peaked", "sparse", "dyadic", "equal", "zero")
CLIENT_FLAGS = (
    "twins",  # some columns are copies of others
    "twin_rows",  # some rows are copies of others
    "zero_rows",  # some clients want nothing
    "zero_columns",  # some tokens serve nobody
    "small",  # all values scaled by 2^-20
)
GRAM_FLAGS = ("ties", "same_heads", "zero_heads", "scaled", "opposite")


class _Recipe:
    """Prints a case as the call that rebuilds it."""

    def __repr__(self):
        name, arguments = self.recipe
        shown = ", ".join(f"{key}={value!r}" for key, value in arguments.items())
        return f"{name}({shown})"

    def _repr_pretty_(self, printer, cycle):
        """How Hypothesis prints a failing example."""
        printer.text(repr(self))


@dataclass(frozen=True, repr=False)
class AttentionCase(_Recipe):
    """One block's view of one prompt, before the attention is computed."""

    q: np.ndarray  # [H, T, dh]
    k: np.ndarray  # [Hkv, L, dh]
    v: np.ndarray  # [Hkv, N, dh], the values of the visual tokens
    weight: np.ndarray  # [d, H * dh], output projection
    P: np.ndarray  # [d, r], orthonormal probe
    query_positions: np.ndarray  # [T]
    visual: np.ndarray  # [N]
    text: np.ndarray  # [S], every real text row
    image_ids: np.ndarray  # [N]
    images: int
    scaling: float
    mask: np.ndarray | None  # [Lq, Lk], [1|H, Lq, Lk] or [1, 1|H, Lq, Lk]
    key_valid: np.ndarray | None  # [L] bool
    sliding_window: int | None
    softcap: float | None
    sinks: np.ndarray | None  # [H]
    recipe: tuple = field(compare=False)

    @property
    def options(self):
        """The optional arguments of visual_attention."""
        names = ("mask", "key_valid", "sliding_window", "softcap", "sinks")
        return {name: getattr(self, name) for name in names}


@dataclass(frozen=True, repr=False)
class PopulationCase(_Recipe):
    """Boundary states, places, views and a support: everything after the attention."""

    states: np.ndarray  # [N, d]
    coordinates: np.ndarray  # [N, D], cell centres in [0, 1]
    image_ids: np.ndarray  # [N]
    images: int
    views: tuple  # (A [H, T, N], Z [H, N, r]) per view; the current one first
    keep: int  # requested
    kept: int  # K = min(N, max(keep, images))
    support: np.ndarray  # [K] ascending, every image present
    energy: np.ndarray  # [N], nonnegative, mean one
    recipe: tuple = field(compare=False)

    @property
    def tokens(self):
        return len(self.states)

    @property
    def history(self):
        """How many completed views there are."""
        return len(self.views) - 1


@dataclass(frozen=True, repr=False)
class ClientCase(_Recipe):
    """A client matrix drawn directly, cut into up to three banks."""

    C: np.ndarray  # [M, N], nonnegative
    image_ids: np.ndarray  # [N]
    images: int
    keep: int
    kept: int
    batch: int
    pool_factor: int
    spans: tuple  # (start, stop) row range of each bank
    recipe: tuple = field(compare=False)


@dataclass(frozen=True, repr=False)
class GramCase(_Recipe):
    """Head patterns and their Gram matrix."""

    patterns: np.ndarray  # [H, F]
    gram: np.ndarray  # [H, H]
    recipe: tuple = field(compare=False)


def _image_ids(rng, tokens, images):
    """Nondecreasing image ids [N] with every image present."""
    cuts = np.sort(rng.choice(np.arange(1, tokens), size=images - 1, replace=False))
    return np.repeat(np.arange(images), np.diff(np.concatenate([[0], cuts, [tokens]])))


def _some(rng, count, share=0.3):
    """A random boolean choice [count], never empty."""
    chosen = rng.random(count) < share
    chosen[rng.integers(count)] = True
    return chosen


def _donors(rng, count, share=0.5):
    """Where each of `count` items copies from, [count]; itself for most, chains resolved."""
    source = np.arange(count)
    for i in range(1, count):
        if rng.random() < share:
            source[i] = source[rng.integers(i)]
    return source


def _values(rng, shape, dyadic):
    """Signed values: normal, or from a tiny dyadic set."""
    return rng.choice(SIGNED_DYADIC, size=shape) if dyadic else rng.standard_normal(shape)


def _probe(rng, width, rank=4):
    """A random orthonormal probe [width, rank]."""
    return np.linalg.qr(rng.standard_normal((width, rank)))[0]


def _coordinates(rng, image_ids, axes):
    """Cell centres of a grid of each image's own [N, axes], filled row by row."""
    out = np.zeros((len(image_ids), axes))
    for image in np.unique(image_ids):
        own = np.flatnonzero(image_ids == image)
        sides = [int(rng.integers(1, 4))] if axes == 3 else []
        plane = math.ceil(len(own) / math.prod(sides))
        rows = int(rng.integers(1, math.isqrt(plane) + 2))
        sides += [rows, math.ceil(plane / rows)]
        cells = np.array(list(np.ndindex(*sides)), dtype=np.float64)[: len(own)]
        out[own] = (cells + 0.5) / np.array(sides, dtype=np.float64)
    return out


def _layout(rng, image_ids, images, queries, flags):
    """Sequence layout: (visual [N], text [S], pad, L), with at least `queries` rows that see."""
    position = pad = int(rng.integers(1, 6)) if "padding" in flags else 0
    visual, text = [], []

    def write(rows, count):
        nonlocal position
        rows.extend(range(position, position + count))
        position += count

    write(text, int(rng.integers(0, 4)))
    between = 0
    for image in range(images):
        write(visual, int((image_ids == image).sum()))
        if image + 1 < images and "between" in flags:
            gap = int(rng.integers(0, 3))
            write(text, gap)
            between += gap
    extra = int(rng.integers(1, 5)) if "late" in flags else 0
    write(text, max(1, queries - between) + extra)
    return np.array(visual), np.array(text), pad, position


def _full_mask(rng, heads, length, pad, window, blind, additive):
    """An explicit mask in one of its accepted shapes, possibly with more keys than `length`."""
    wide = length + int(rng.integers(0, 3))
    lead = [(), (1,), (heads,), (1, 1), (1, heads)][rng.integers(5)]
    row, column = np.arange(length)[:, None], np.arange(wide)[None, :]
    visible = (column <= row) & (column >= pad)
    if window is not None:
        visible &= row - column < window
    visible[blind] = False
    visible = np.broadcast_to(visible, lead + visible.shape).copy()
    if lead and lead[-1] > 1:
        visible &= rng.random(visible.shape) < 0.8
    if not additive:
        return visible
    dtype = [np.float64, np.float32][rng.integers(2)]
    bias = rng.choice([0.0, 0.0, -0.5, 1.0], size=visible.shape).astype(dtype)
    hidden = [np.finfo(dtype).min, -np.inf, np.finfo(dtype).min / 2][rng.integers(3)]
    return np.where(visible, bias, dtype(hidden))


def attention_case(seed, tokens, images, heads, kv_heads, queries, width, model_width, flags=()):
    """Build an AttentionCase; `width` is dh, `model_width` is d."""
    recipe = ("attention_case", dict(locals()))
    rng, flags = np.random.default_rng(seed), frozenset(flags)
    image_ids = _image_ids(rng, tokens, images)
    visual, text, pad, length = _layout(rng, image_ids, images, queries, flags)
    seeing = text[text > visual.min()]
    chosen = np.append(rng.choice(seeing[:-1], size=queries - 1, replace=False), seeing[-1])
    query_positions = np.sort(chosen)

    q = _values(rng, (heads, queries, width), "ties" in flags)
    k = _values(rng, (kv_heads, length, width), "ties" in flags)
    v = _values(rng, (kv_heads, tokens, width), "ties" in flags)
    source = _donors(rng, tokens) if "twins" in flags else np.arange(tokens)
    source = np.zeros(tokens, dtype=int) if "equal" in flags else source
    k[:, visual], v = k[:, visual[source]], v[:, source]
    if "zero" in flags:
        gone = _some(rng, tokens)
        k[:, visual[gone]] = v[:, gone] = 0.0

    blind = np.zeros(length, dtype=bool)
    if "blind" in flags:
        blind[query_positions[_some(rng, queries)]] = True
    window = int(rng.integers(1, length + 1)) if "window" in flags else None
    key_valid = np.arange(length) >= pad if "padding" in flags else None
    mask = None
    if flags & {"boolean", "additive", "blind"}:
        mask = _full_mask(rng, heads, length, pad, window, blind, "additive" in flags)
        key_valid = window = None
    return AttentionCase(
        q=q,
        k=k,
        v=v,
        weight=_values(rng, (model_width, heads * width), "ties" in flags),
        P=_probe(rng, model_width),
        query_positions=query_positions,
        visual=visual,
        text=text,
        image_ids=image_ids,
        images=images,
        scaling=float(rng.choice([width**-0.5, 1.0, 0.25])),
        mask=mask,
        key_valid=key_valid,
        sliding_window=window,
        softcap=float(rng.choice([1.0, 5.0, 50.0])) if "softcap" in flags else None,
        sinks=rng.standard_normal(heads) if "sinks" in flags else None,
        recipe=recipe,
    )


def _view(rng, heads, queries, tokens, rank, flags):
    """One view's A [H, T, N] (rows sum to at most 1) and Z [H, N, r], before copies."""
    if "ties" in flags:
        scale = 2.0 ** -math.ceil(math.log2(tokens))
        A = rng.choice(DYADIC, size=(heads, queries, tokens)) * scale
    else:
        logits = rng.standard_normal((heads, queries, tokens)) * (8.0 if "peaked" in flags else 1.0)
        A = np.exp(logits - logits.max(axis=2, keepdims=True))
        A *= rng.uniform(0.05, 1.0, size=(heads, queries, 1)) / A.sum(axis=2, keepdims=True)
    Z = _values(rng, (heads, tokens, rank), "ties" in flags)
    if "zero_rows" in flags:
        A[_some(rng, heads * queries).reshape(heads, queries)] = 0.0
    if "zero_heads" in flags:
        A[_some(rng, heads)] = 0.0
    if "zero_values" in flags:
        Z[_some(rng, heads)] = 0.0
    return A, Z


def _support(rng, image_ids, images, kept):
    """A random ascending support [kept] in which every image is present."""
    anchors = [int(rng.choice(np.flatnonzero(image_ids == image))) for image in range(images)]
    others = np.setdiff1d(np.arange(len(image_ids)), anchors)
    return np.sort(np.concatenate([anchors, rng.choice(others, kept - images, replace=False)]))


def population_case(
    seed, tokens, images, heads, queries, model_width, history, keep, rank=4, flags=()
):
    """Build a PopulationCase with 1 + history views; `model_width` is d."""
    recipe = ("population_case", dict(locals()))
    rng, flags = np.random.default_rng(seed), frozenset(flags)
    image_ids = _image_ids(rng, tokens, images)
    coordinates = _coordinates(rng, image_ids, 3 if "video" in flags else 2)
    states = _values(rng, (tokens, model_width), "ties" in flags)
    if "ties" not in flags:
        states = states * np.exp(0.5 * rng.standard_normal((tokens, 1))) + rng.standard_normal()

    source = _donors(rng, tokens) if "twins" in flags else np.arange(tokens)
    source = np.zeros(tokens, dtype=int) if "equal" in flags else source
    states = states[source]
    if "twins" in flags:
        stacked = (rng.random(tokens) < 0.5) & (image_ids == image_ids[source])
        coordinates = np.where(stacked[:, None], coordinates[source], coordinates)
    if "opposite" in flags:
        pairs = rng.permutation(tokens)[: 2 * (tokens // 2)].reshape(2, -1)
        states[pairs[0]] = -states[pairs[1]]
    if "zero_states" in flags:
        states[_some(rng, tokens)] = 0.0

    shared = _donors(rng, heads) if "same_heads" in flags else np.arange(heads)
    views = []
    for _ in range(1 + history):
        A, Z = _view(rng, heads, queries, tokens, rank, flags)
        A, Z = A[shared][:, :, source], Z[shared][:, source]
        # copies may push a row over 1
        views.append((A / np.maximum(A.sum(axis=2, keepdims=True), 1.0), Z))

    energy = rng.uniform(0.0, 2.0, size=tokens)[source]
    kept = min(tokens, max(keep, images))
    return PopulationCase(
        states=states,
        coordinates=coordinates,
        image_ids=image_ids,
        images=images,
        views=tuple(views),
        keep=keep,
        kept=kept,
        support=_support(rng, image_ids, images, kept),
        energy=energy / energy.mean(),
        recipe=recipe,
    )


def client_case(
    seed, clients, tokens, images, keep, kind="dense", batch=16, pool_factor=4, flags=()
):
    """Build a ClientCase of the given kind, [clients, tokens]."""
    recipe = ("client_case", dict(locals()))
    rng, flags = np.random.default_rng(seed), frozenset(flags)
    shape = (clients, tokens)
    if kind == "dense":
        C = rng.uniform(0.0, 1.0, size=shape) / clients
    elif kind == "peaked":
        logits = 4.0 * rng.standard_normal(shape)
        C = np.exp(logits - logits.max(axis=1, keepdims=True))
        C /= C.sum(axis=1, keepdims=True) * clients
    elif kind == "sparse":
        C = rng.exponential(size=shape) * (rng.random(shape) < rng.choice([0.02, 0.1, 0.3]))
    elif kind == "dyadic":
        C = rng.choice(DYADIC, size=shape) * (rng.random(shape) < rng.choice([0.05, 0.3, 0.9]))
    elif kind == "equal":
        C = np.repeat(rng.uniform(0.0, 1.0, size=(clients, 1)), tokens, axis=1)
    elif kind == "zero":
        C = np.zeros(shape)
    else:
        raise ValueError(f"kind is one of {CLIENT_KINDS}, not {kind!r}")

    if "twin_rows" in flags:
        C = C[_donors(rng, clients)]
    if "zero_rows" in flags:
        C[_some(rng, clients)] = 0.0
    if "zero_columns" in flags:
        C[:, _some(rng, tokens)] = 0.0
    if "twins" in flags:
        C = C[:, _donors(rng, tokens)]
    if "small" in flags:
        C = C * 2.0**-20
    cuts = [0, *np.sort(rng.integers(0, clients + 1, size=2)).tolist(), clients]
    return ClientCase(
        C=np.ascontiguousarray(C),
        image_ids=_image_ids(rng, tokens, images),
        images=images,
        keep=keep,
        kept=min(tokens, max(keep, images)),
        batch=batch,
        pool_factor=pool_factor,
        spans=tuple(itertools.pairwise(cuts)),
        recipe=recipe,
    )


def gram_case(seed, heads, features, flags=()):
    """Build a GramCase from `heads` patterns of `features` entries."""
    recipe = ("gram_case", dict(locals()))
    rng, flags = np.random.default_rng(seed), frozenset(flags)
    patterns = _values(rng, (heads, features), "ties" in flags)
    if "opposite" not in flags:
        patterns = np.abs(patterns)
    if "same_heads" in flags:
        patterns = patterns[_donors(rng, heads)]
    if "scaled" in flags:
        patterns = patterns * 2.0 ** rng.integers(-6, 7, size=(heads, 1))
    if "zero_heads" in flags:
        patterns[_some(rng, heads)] = 0.0
    return GramCase(patterns=patterns, gram=patterns @ patterns.T, recipe=recipe)


seeds = st.integers(0, 2**32 - 1)
head_counts = st.sampled_from([1, 1, 2, 2, 3, 4, 4, 6, 8, 8])


def token_counts(most=400):
    """N in 1..most: mostly small, above 150 about one time in four."""
    ranges = [(1, 4), (2, 12), (5, 24), (9, 40), (17, 64), (33, 150), (151, 400), (320, 400)]
    ranges = [(low, min(high, most)) for low, high in ranges if low <= most]
    return st.one_of([st.integers(low, high) for low, high in ranges])


def _flags(names, most=3):
    return st.lists(st.sampled_from(names), max_size=most, unique=True).map(
        lambda drawn: tuple(sorted(drawn))
    )


@st.composite
def _keeps(draw, tokens):
    """A requested keep in 1..N: a few tokens, a typical budget, or nearly everything."""
    quarter, half = tokens // 4, tokens // 2
    ranges = [(1, 4), (5, 32), (17, 64), (5, tokens), (quarter, half), (half, tokens - 1)]
    low, high = draw(st.sampled_from([*ranges, (tokens - 3, tokens)]))
    low, high = max(1, min(low, tokens - 1)), max(1, min(high, tokens))
    return draw(st.integers(low, high))


@st.composite
def attention_cases(draw, max_tokens=400):
    """AttentionCase over every flag, grouped queries or not."""
    tokens = draw(token_counts(max_tokens))
    heads = draw(head_counts)
    return attention_case(
        seed=draw(seeds),
        tokens=tokens,
        images=draw(st.integers(1, min(4, tokens))),
        heads=heads,
        kv_heads=draw(st.sampled_from([g for g in range(1, heads + 1) if heads % g == 0])),
        queries=draw(st.integers(1, 12)),
        width=draw(st.sampled_from([4, 8])),
        model_width=draw(st.integers(8, 24)),
        flags=draw(_flags(ATTENTION_FLAGS, most=4)),
    )


@st.composite
def population_cases(draw, max_tokens=400):
    """PopulationCase over every flag, with no, one or two completed views."""
    tokens = draw(token_counts(max_tokens))
    return population_case(
        seed=draw(seeds),
        tokens=tokens,
        images=draw(st.integers(1, min(4, tokens))),
        heads=draw(head_counts),
        queries=draw(st.integers(1, 12)),
        model_width=draw(st.integers(8, 24)),
        history=draw(st.integers(0, 2)),
        keep=draw(_keeps(tokens)),
        flags=draw(_flags(POPULATION_FLAGS)),
    )


@st.composite
def client_cases(draw, max_tokens=400, max_clients=900):
    """ClientCase of every kind; the deployed solver setting (16, 4) is the most frequent."""
    tokens = draw(token_counts(max_tokens))
    return client_case(
        seed=draw(seeds),
        clients=draw(
            st.one_of([st.integers(min(low, max_clients), max_clients) for low in (1, 40, 300)])
        ),
        tokens=tokens,
        images=draw(st.integers(1, min(4, tokens))),
        keep=draw(_keeps(tokens)),
        kind=draw(st.sampled_from(("dense", "peaked", "sparse", "dyadic", *CLIENT_KINDS))),
        batch=draw(st.sampled_from([16, 16, 16, 1, 2, 5, 8])),
        pool_factor=draw(st.sampled_from([4, 4, 4, 1, 2])),
        flags=draw(_flags(CLIENT_FLAGS, most=2)),
    )


@st.composite
def gram_cases(draw):
    """GramCase with 1..8 heads."""
    return gram_case(
        seed=draw(seeds),
        heads=draw(st.integers(1, 8)),
        features=draw(st.integers(1, 60)),
        flags=draw(_flags(GRAM_FLAGS)),
    )
