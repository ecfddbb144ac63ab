"""Inner loops of the CPU solver, compiled by numba where it is installed (extra ``cpu``).

Compiled, a loop reads each number once and stores nothing on the way, which torch operations on
whole matrices cannot do. Its sums are rough, added in another order than elsewhere, and therefore
only good for decisions that do not hang on the last bits.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import lru_cache
from typing import Any, NamedTuple

SLACK = 1e-5  # values closer than this, relatively, are not told apart by rough sums
SCORE_LIMIT = 1 << 22  # most pairs of candidate and client that the scoring loop takes on
BLOCK = 64  # clients that are skipped together once they are done
SPAN = 4096  # clients added up in the matrix's own dtype; spans add up in float64


class Kernels(NamedTuple):
    """The compiled loops; tensors come as numpy views.

    Attributes:
        start: (offers [N, M], gains [N], best [M]) fills in the first gains and the largest offers.
        gains: (offers, best, cover [M], gains) recomputes the positive gains in place.
        refresh: (offers, best, cover, gains, order [N], need) recomputes gains in place along
            ``order`` (falling bounds) until the ``need`` largest are up to date.
        score: (offers, cover, candidates [P], temperature, epsilon, scores [P]) fills in the
            responsibility scores; False when there are too many pairs for it.
        enter: (offers, cover, picks) raises the cover in place; returns what it gained.
    """

    start: Callable[..., None]
    gains: Callable[..., None]
    refresh: Callable[..., None]
    score: Callable[..., bool]
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
    def first_gain(offer: Any, best: Any) -> Any:
        total = best.dtype.type(0)
        for client in range(best.shape[0]):
            total += offer[client]
            best[client] = max(best[client], offer[client])
        return total

    @jit
    def start(offers: Any, gains: Any, best: Any) -> None:
        best[:] = 0
        for token in range(offers.shape[0]):
            total = 0.0
            for begin in range(0, offers.shape[1], SPAN):
                end = min(begin + SPAN, offers.shape[1])
                total += first_gain(offers[token, begin:end], best[begin:end])
            gains[token] = total

    @jit
    def open_ranges(best: Any, cover: Any, ranges: Any) -> int:
        """Ranges of clients, in whole blocks, to which some token can still add something."""
        clients = cover.shape[0]
        count = 0
        for begin in range(0, clients, BLOCK):
            end = min(begin + BLOCK, clients)
            is_open = False
            for client in range(begin, end):
                if cover[client] < best[client]:
                    is_open = True
                    break
            if is_open and count and ranges[count - 1, 1] == begin:
                ranges[count - 1, 1] = end
            elif is_open:
                ranges[count, 0] = begin
                ranges[count, 1] = end
                count += 1
        return count

    @jit
    def gain(offer: Any, cover: Any) -> Any:
        zero = cover.dtype.type(0)
        total = zero
        for client in range(cover.shape[0]):
            total += max(offer[client] - cover[client], zero)
        return total

    @jit
    def token_gain(offer: Any, cover: Any, ranges: Any, count: int) -> Any:
        total = 0.0
        for r in range(count):  # slices, so that the inner loop becomes vector code
            for begin in range(ranges[r, 0], ranges[r, 1], SPAN):
                end = min(begin + SPAN, ranges[r, 1])
                total += gain(offer[begin:end], cover[begin:end])
        return total

    @jit
    def gains_of(offers: Any, best: Any, cover: Any, gains: Any) -> None:
        ranges = np.empty((cover.shape[0] // BLOCK + 1, 2), dtype=np.int64)
        count = open_ranges(best, cover, ranges)
        for token in range(offers.shape[0]):
            if gains[token] > 0:
                gains[token] = token_gain(offers[token], cover, ranges, count)

    @jit
    def refresh(offers: Any, best: Any, cover: Any, gains: Any, order: Any, need: int) -> None:
        ranges = np.empty((cover.shape[0] // BLOCK + 1, 2), dtype=np.int64)
        count = open_ranges(best, cover, ranges)
        # A heap of the need largest up-to-date gains so far, the smallest of them on top.
        largest = np.zeros(need, dtype=cover.dtype)
        for n in range(order.shape[0]):
            token = order[n]
            if gains[token] <= largest[0]:
                return  # no bound behind this one can reach the top; zero gains never need to
            total = token_gain(offers[token], cover, ranges, count)
            gains[token] = total
            if total > largest[0]:
                hole = 0
                while 2 * hole + 1 < need:
                    child = 2 * hole + 1
                    if child + 1 < need and largest[child + 1] < largest[child]:
                        child += 1
                    if largest[child] >= total:
                        break
                    largest[hole] = largest[child]
                    hole = child
                largest[hole] = total

    @jit
    def score(
        offers: Any, cover: Any, candidates: Any, temperature: Any, epsilon: Any, scores: Any
    ) -> bool:
        zero = cover.dtype.type(0)
        pool, clients = candidates.shape[0], cover.shape[0]
        best = np.zeros(clients, dtype=cover.dtype)
        for p in range(pool):
            offer = offers[candidates[p]]
            for client in range(clients):
                best[client] = max(best[client], offer[client] - cover[client])
        alive = np.empty(clients, dtype=np.int64)
        count = 0
        for client in range(clients):
            if best[client] > zero:
                alive[count] = client
                count += 1
        if pool * count > SCORE_LIMIT:
            return False
        sharp = np.empty(count, dtype=cover.dtype)
        bottom = np.empty(count, dtype=cover.dtype)
        total = np.empty(count, dtype=cover.dtype)
        for a in range(count):
            high = best[alive[a]]
            sharp[a] = 1 / (high * temperature + epsilon)
            # A candidate without residual takes the same share as any other such one.
            bottom[a] = math.exp(-high * sharp[a])
            total[a] = bottom[a] * pool
        where = np.empty(pool * count, dtype=np.int32)
        weight = np.empty(pool * count, dtype=cover.dtype)
        ends = np.empty(pool, dtype=np.int64)
        pairs = 0
        for p in range(pool):
            offer = offers[candidates[p]]
            for a in range(count):
                client = alive[a]
                residual = offer[client] - cover[client]
                if residual > zero:
                    share = math.exp((residual - best[client]) * sharp[a])
                    total[a] += share - bottom[a]
                    where[pairs] = a
                    weight[pairs] = share * residual
                    pairs += 1
            ends[p] = pairs
        begin = 0
        for p in range(pool):
            value = 0.0  # in float64: one long chain of float32 additions drifts past SLACK
            for n in range(begin, ends[p]):
                value += weight[n] / total[where[n]]
            scores[p] = value
            begin = ends[p]
        return True

    @jit
    def enter(offers: Any, cover: Any, picks: Any) -> float:
        before = cover.copy()
        for p in range(picks.shape[0]):
            offer = offers[picks[p]]
            for client in range(cover.shape[0]):
                cover[client] = max(cover[client], offer[client])
        gained = 0.0
        for client in range(cover.shape[0]):
            gained += cover[client] - before[client]
        return gained

    return Kernels(start, gains_of, refresh, score, enter)
