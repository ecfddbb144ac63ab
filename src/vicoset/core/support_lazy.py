"""The solver on a CPU: the same support, without looking where nothing can have changed.

Gains only fall (F is submodular), so a gain computed in an earlier round is an upper bound, and a
token whose bound cannot reach the pool is left alone. Rounds run in compiled loops (``kernels``)
where numba is installed, on rough sums; a round whose outcome hangs on the last bits is decided
here, exactly as the dense path decides it.
"""

from __future__ import annotations

import torch
from torch import Tensor

from vicoset.core.kernels import DECIDED, SLACK, UNDECIDED, Kernels, compiled
from vicoset.core.scores import EPSILON, responsibility_scores, round_progress

CHUNK = 1 << 17  # elements per step: temporaries of half a MiB stay in a core's cache
STEP = 256  # tokens brought up to date before the floor is looked at again


def select_lazy(
    offers: Tensor,
    sizes: list[int],
    first: Tensor | None,
    pool: int,
    temperature: float,
) -> tuple[list[Tensor], list[Tensor], Tensor]:
    """Arguments and result as in ``support._select_dense``.

    Marginals that were not looked at again enter q_t as their bounds, so that q_t and the
    certificate may come out a little low, never too high.
    """
    loops = compiled()
    state = _Plain(offers) if loops is None else _Compiled(offers, loops)
    free = torch.ones(len(offers), dtype=torch.bool)
    keep = sum(sizes)
    if first is not None:
        keep += len(first)
        free[first] = False
        state.enter(first, keep)
    entered: list[Tensor] = []
    progress: list[float] = []
    for done, size in enumerate(sizes):
        if done or first is not None:
            state.refresh(pool)
        picks = state.choose(pool, size, temperature, opening=not done and first is None)
        if not len(picks):  # nothing left to gain: the lowest free indices
            entered.append(free.nonzero()[: sum(sizes[done:]), 0])
            progress += [0.0] * (len(sizes) - done)
            break
        free[picks] = False
        if len(picks) < size:
            rest = free.nonzero()[: size - len(picks), 0]
            free[rest] = False
            picks = torch.cat([picks, rest]).sort().values
        entered.append(picks)
        progress.append(state.enter(picks, keep))
    return entered, list(offers.new_tensor(progress)), state.cover


class _Plain:
    """Cover and gains of a run, in torch operations.

    Attributes:
        cover: [M].
        gains: [N] upper bounds; negative for chosen tokens.
    """

    def __init__(self, offers: Tensor) -> None:
        self.offers = offers
        self.cover = offers.new_zeros(offers.shape[1])
        self.gains = offers.sum(1)

    def refresh(self, need: int) -> None:
        """Recompute gains until the ``need`` largest are up to date."""
        gains = self.gains
        stale = gains > 0
        rows = gains.topk(min(2 * need, len(gains))).indices
        rows = rows[stale[rows]]
        known = gains.new_empty(0)
        while len(rows):
            steps = torch.split(rows, max(1, CHUNK // max(1, len(self.cover))))
            fresh = torch.cat([self._residual(step).sum(1) for step in steps])
            gains[rows] = fresh
            stale[rows] = False
            known = torch.cat([known, fresh])
            known = known.topk(min(need, len(known))).values
            floor = known[-1] * (1.0 - SLACK) if len(known) == need else known.new_zeros(())
            rows = (stale & (gains >= floor)).nonzero()[:, 0]
            if len(rows) > STEP:
                rows = rows[gains[rows].topk(STEP).indices]

    def choose(self, pool: int, size: int, temperature: float, opening: bool) -> Tensor:
        """The tokens that enter, ascending; fewer than ``size`` when no more of them gain."""
        last = self.gains.topk(min(pool, len(self.gains))).values[-1]
        candidates = ((self.gains >= last * (1.0 - SLACK)) & (self.gains > 0)).nonzero()[:, 0]
        residual = self._residual(candidates)
        if len(candidates) > pool:
            chosen = _largest(residual.sum(1), pool)
            candidates, residual = candidates[chosen], residual[chosen]
        if len(candidates) <= size:
            return candidates
        return candidates[_largest(responsibility_scores(residual, temperature), size)]

    def enter(self, picks: Tensor, keep: int) -> float:
        """Move picks into the support; q_t."""
        better = torch.maximum(self.cover, self.offers.index_select(0, picks).amax(0))
        progress = round_progress(better, self.cover, self.gains.topk(keep).values)
        self.cover = better
        self.gains[picks] = -1.0
        return float(progress)

    def _residual(self, rows: Tensor) -> Tensor:
        return self.offers.index_select(0, rows).sub_(self.cover).clamp_min_(0.0)


class _Compiled(_Plain):
    """The same by compiled loops; torch decides what they leave undecided."""

    def __init__(self, offers: Tensor, loops: Kernels) -> None:
        self.offers, self.loops = offers, loops
        self.cover = offers.new_zeros(offers.shape[1])
        self.gains = offers.new_empty(len(offers))
        self.best = torch.empty_like(self.cover)
        loops.start(offers.numpy(), self.gains.numpy(), self.best.numpy())
        self.views = (offers.numpy(), self.cover.numpy(), self.gains.numpy())

    def refresh(self, need: int) -> None:
        offers, cover, gains = self.views
        self.loops.refresh(offers, self.best.numpy(), cover, gains, need)

    def choose(self, pool: int, size: int, temperature: float, opening: bool) -> Tensor:
        if not opening:  # on an empty cover every residual is positive, which torch does faster
            picks = self.cover.new_empty(size, dtype=torch.int64)
            state, count = self.loops.choose(
                *self.views, pool, size, temperature, EPSILON, picks.numpy()
            )
            if state != UNDECIDED:
                return picks[:count] if state == DECIDED else picks[:0]
        return super().choose(pool, size, temperature, opening)

    def enter(self, picks: Tensor, keep: int) -> float:
        return self.loops.enter(*self.views, picks.numpy(), keep)


def _largest(values: Tensor, count: int) -> Tensor:
    """Where the ``count`` largest stand, ascending; ties to the lowest index."""
    return values.sort(descending=True, stable=True).indices[:count].sort().values
