"""Inner loops of the CPU solver, compiled by numba where it is installed (extra ``cpu``).

Compiled, a round reads each number once and stores nothing on the way, which torch operations on
whole matrices cannot do. Its sums are rough, added in another order than elsewhere; where a
decision would hang on the last bits, a round says so and decides nothing.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from typing import Any, NamedTuple

SLACK = 1e-5  # values closer than this, relatively, are not told apart by rough sums
SCORE_LIMIT = 1 << 22  # most pairs of candidate and client that the scoring loop takes on
BLOCK = 64  # clients that are skipped together once they are done
DECIDED, UNDECIDED, EXHAUSTED = 0, 1, 2


class Kernels(NamedTuple):
    """The compiled loops; tensors come as numpy views.

    Attributes:
        start: (offers [N, M], gains [N], best [M]) fills in the first gains and the largest offers.
        refresh: (offers, best, cover [M], gains, need) recomputes gains in place, largest bound
            first, until the ``need`` largest are up to date; the others stay upper bounds.
        choose: (offers, cover, gains, pool, size, temperature, epsilon, picks [size]) scores the
            pool and writes the picks; returns (one of the states above, number of picks).
        enter: (offers, cover, gains, picks, keep) moves picks into the support; returns q_t.
    """

    start: Callable[..., None]
    refresh: Callable[..., None]
    choose: Callable[..., tuple[int, int]]
    enter: Callable[..., float]


@lru_cache(maxsize=1)
def compiled() -> Kernels | None:
    """The loops, compiled for a dtype at its first use; None without numba."""
    try:
        import numba
        import numpy as np
    except ImportError:
        return None
    jit = numba.njit(fastmath=True, nogil=True)

    @jit
    def start(offers: Any, gains: Any, best: Any) -> None:
        best[:] = 0
        for token in range(offers.shape[0]):
            offer = offers[token]
            total = best.dtype.type(0)
            for client in range(offers.shape[1]):
                total += offer[client]
                best[client] = max(best[client], offer[client])
            gains[token] = total

    @jit
    def open_ranges(best: Any, cover: Any) -> Any:
        """Ranges of clients, in whole blocks, to which some token can still add something."""
        clients = cover.shape[0]
        ranges = np.empty(((clients + BLOCK - 1) // BLOCK, 2), dtype=np.int64)
        count = 0
        for begin in range(0, clients, BLOCK):
            end = min(begin + BLOCK, clients)
            if (cover[begin:end] < best[begin:end]).any():
                if count and ranges[count - 1, 1] == begin:
                    ranges[count - 1, 1] = end
                else:
                    ranges[count, 0], ranges[count, 1] = begin, end
                    count += 1
        return ranges[:count]

    @jit
    def gain(offer: Any, cover: Any) -> Any:
        zero = cover.dtype.type(0)
        total = zero
        for client in range(cover.shape[0]):
            total += max(offer[client] - cover[client], zero)
        return total

    @jit
    def refresh(offers: Any, best: Any, cover: Any, gains: Any, need: int) -> None:
        ranges = open_ranges(best, cover)
        largest = np.zeros(need, dtype=cover.dtype)  # the need largest up-to-date gains so far
        least = 0  # where the smallest of them stands
        for token in np.argsort(-gains):
            if gains[token] <= largest[least]:
                return  # no bound behind this one can reach the top; zero gains never need to
            total = cover.dtype.type(0)
            offer = offers[token]
            for n in range(len(ranges)):  # slices, so that the inner loop becomes vector code
                part = slice(ranges[n, 0], ranges[n, 1])
                total += gain(offer[part], cover[part])
            gains[token] = total
            if total > largest[least]:
                largest[least] = total
                least = int(largest.argmin())

    @jit
    def score(offers: Any, cover: Any, candidates: Any, temperature: Any, epsilon: Any) -> Any:
        """Responsibility scores of the candidates; empty when there are too many pairs."""
        zero = cover.dtype.type(0)
        best = np.zeros_like(cover)
        for token in candidates:
            offer = offers[token]
            for client in range(cover.shape[0]):
                best[client] = max(best[client], offer[client] - cover[client])
        alive = np.flatnonzero(best > zero)
        pairs = len(candidates) * len(alive)
        if pairs > SCORE_LIMIT:
            return np.empty(0, dtype=cover.dtype)
        best = best[alive]
        sharp = cover.dtype.type(1) / (best * temperature + epsilon)
        # A candidate without residual takes the same share of a client as any other such one.
        bottom = np.exp(-best * sharp)
        total = bottom * cover.dtype.type(len(candidates))
        where = np.empty(pairs, dtype=np.int32)
        weight = np.empty(pairs, dtype=cover.dtype)
        ends = np.empty(len(candidates), dtype=np.int64)
        count = 0
        for p in range(len(candidates)):
            offer = offers[candidates[p]]
            for a in range(len(alive)):
                residual = offer[alive[a]] - cover[alive[a]]
                if residual > zero:
                    share = np.exp((residual - best[a]) * sharp[a])
                    total[a] += share - bottom[a]
                    where[count] = a
                    weight[count] = share * residual
                    count += 1
            ends[p] = count
        scores = np.empty(len(candidates), dtype=cover.dtype)
        begin = 0
        for p in range(len(candidates)):
            value = zero
            for n in range(begin, ends[p]):
                value += weight[n] / total[where[n]]
            scores[p] = value
            begin = ends[p]
        return scores

    @jit
    def choose(
        offers: Any,
        cover: Any,
        gains: Any,
        pool: int,
        size: int,
        temperature: Any,
        epsilon: Any,
        picks: Any,
    ) -> tuple[int, int]:
        limit = gains.dtype.type(0)
        if len(gains) > pool:
            limit = np.partition(gains, len(gains) - pool)[len(gains) - pool]
        limit = limit * gains.dtype.type(1 - SLACK)
        candidates = np.flatnonzero((gains >= limit) & (gains > 0))
        if len(candidates) == 0:
            return EXHAUSTED, 0
        if len(candidates) > pool:
            return UNDECIDED, 0
        if len(candidates) <= size:
            picks[: len(candidates)] = candidates
            return DECIDED, len(candidates)
        dtype = gains.dtype.type
        scores = score(offers, cover, candidates, dtype(temperature), dtype(epsilon))
        if len(scores) == 0:
            return UNDECIDED, 0
        order = np.argsort(-scores)
        if scores[order[size]] >= scores[order[size - 1]] * (1 - SLACK):
            return UNDECIDED, 0
        picks[:] = candidates[np.sort(order[:size])]
        return DECIDED, size

    @jit
    def enter(offers: Any, cover: Any, gains: Any, picks: Any, keep: int) -> float:
        cut = len(gains) - keep
        largest = np.partition(gains, cut)[cut:] if cut > 0 else gains
        possible = 0.0
        for gain in largest:
            possible += max(gain, 0.0)
        better = cover.copy()
        for token in picks:
            offer = offers[token]
            for client in range(cover.shape[0]):
                better[client] = max(better[client], offer[client])
        gained = (better - cover).sum()
        cover[:] = better
        gains[picks] = -1
        return min(gained / possible, 1.0) if possible > 0 else 0.0

    return Kernels(start, refresh, choose, enter)
