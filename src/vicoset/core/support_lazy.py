"""The solver on a CPU: the same support, without looking where nothing can have changed.

Gains only fall (F is submodular), so a gain computed in an earlier round is an upper bound, and a
token whose bound cannot reach the pool (or the K largest, for the certificate) is left alone.
Where numba is installed, compiled loops (``kernels``) do the work on rough sums; a cut between
values too close to tell is decided here, exactly as the dense path decides it.
"""

from __future__ import annotations

import torch
from torch import Tensor

from vicoset.core import checks
from vicoset.core.kernels import SLACK, Kernels, compiled
from vicoset.core.scores import EPSILON, responsibility_scores, round_progress

CHUNK = 1 << 17  # elements per step: temporaries of half a MiB stay in a core's cache
TIE_CHUNK = 1 << 20  # the same where a pool is cut: as a rule one step
STEP = 256  # tokens brought up to date before the floor is looked at again
COMPILE_FROM = 1 << 20  # matrices below this many elements are not worth compiling for


def select_lazy(
    offers: Tensor,
    sizes: list[int],
    first: Tensor | None,
    pool: int,
    temperature: float,
) -> tuple[list[Tensor], list[Tensor], Tensor]:
    """Arguments and result as in ``support._select_dense``."""
    loops = compiled() if offers.numel() >= COMPILE_FROM else None
    state = _Plain(offers) if loops is None else _Compiled(offers, loops)
    if not bool(state.gains.isfinite().all()):
        checks.finite({"matrix": offers.t()})
    free = torch.ones(len(offers), dtype=torch.bool, device=offers.device)
    keep = sum(sizes)
    if first is not None:
        keep += len(first)
        free[first] = False
        state.enter(first, keep)
    entered: list[Tensor] = []
    progress: list[float] = []
    for done, size in enumerate(sizes):
        if done or first is not None:
            state.refresh(max(pool, keep))
        picks = state.choose(pool, size, temperature)
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
            fresh = self._exact(rows, CHUNK)
            gains[rows] = fresh
            stale[rows] = False
            known = torch.cat([known, fresh])
            known = known.topk(min(need, len(known))).values
            floor = known[-1] * (1.0 - SLACK) if len(known) == need else known.new_zeros(())
            rows = (stale & (gains >= floor)).nonzero()[:, 0]
            if len(rows) > STEP:
                rows = rows[gains[rows].topk(STEP).indices]

    def choose(self, pool: int, size: int, temperature: float) -> Tensor:
        """The tokens that enter, ascending; fewer than ``size`` when no more of them gain."""
        last = self.gains.topk(min(pool, len(self.gains))).values[-1]
        candidates = ((self.gains >= last * (1.0 - SLACK)) & (self.gains > 0)).nonzero()[:, 0]
        if len(candidates) > pool:
            exact = self._exact(candidates, TIE_CHUNK)
            candidates = candidates[_largest(exact, pool)]
        if len(candidates) <= size:
            return candidates
        return self._best(candidates, size, temperature)

    def enter(self, picks: Tensor, keep: int) -> float:
        """Move picks into the support; q_t."""
        better = torch.maximum(self.cover, self.offers.index_select(0, picks).amax(0))
        progress = round_progress(better, self.cover, self.gains.topk(keep).values)
        self.cover = better
        self.gains[picks] = -1.0
        return float(progress)

    def _best(self, candidates: Tensor, size: int, temperature: float) -> Tensor:
        """The ``size`` candidates with the largest scores, ascending."""
        scores = responsibility_scores(self._residual(candidates), temperature)
        return candidates[_largest(scores, size)]

    def _exact(self, rows: Tensor, chunk: int) -> Tensor:
        """Gains of rows as the dense path adds them up, in chunks."""
        step = max(3, chunk // max(1, len(self.cover)))
        parts = max(1, -(-len(rows) // step))
        # No chunk of one row: torch adds up a lone long row in another order.
        exact = self.gains.new_empty(len(rows))
        for part, out in zip(rows.tensor_split(parts), exact.tensor_split(parts), strict=True):
            torch.sum(self._residual(part), 1, out=out)
        return exact

    def _residual(self, rows: Tensor) -> Tensor:
        return self.offers.index_select(0, rows).sub_(self.cover).clamp_min_(0.0)


class _Compiled(_Plain):
    """The same by compiled loops.

    They run on one thread: a round takes a fraction of a millisecond, and handing half of it to
    another thread was slower at every size that was measured.
    """

    def __init__(self, offers: Tensor, loops: Kernels) -> None:
        self.offers, self.loops = offers, loops
        self.cover = offers.new_zeros(offers.shape[1])
        self.gains = offers.new_empty(len(offers))
        self.rounds = 0
        self.best = torch.empty_like(self.cover)
        loops.start(offers.numpy(), self.gains.numpy(), self.best.numpy())

    def refresh(self, need: int) -> None:
        arrays = self.offers.numpy(), self.best.numpy(), self.cover.numpy(), self.gains.numpy()
        if self.rounds == 1:  # bounds from an empty cover rule nothing out
            self.loops.gains(*arrays)
            return
        order = self.gains.argsort(descending=True)
        self.loops.refresh(*arrays, order.numpy(), need)

    def enter(self, picks: Tensor, keep: int) -> float:
        possible = float(self.gains.topk(keep).values.clamp_min(0.0).sum())
        gained = self.loops.enter(self.offers.numpy(), self.cover.numpy(), picks.numpy())
        self.gains[picks] = -1.0
        self.rounds += 1
        return min(gained / possible, 1.0) if possible > 0 else 0.0

    def _best(self, candidates: Tensor, size: int, temperature: float) -> Tensor:
        scores = self.gains.new_empty(len(candidates))
        kind = scores.numpy().dtype.type
        # On an empty cover every residual is positive, and torch scores those faster.
        arrays = (self.offers.numpy(), self.cover.numpy(), candidates.numpy())
        numbers = (kind(temperature), kind(EPSILON))
        if self.rounds and self.loops.score(*arrays, *numbers, scores.numpy()):
            top = scores.topk(size + 1)
            if top.values[-1] < top.values[-2] * (1.0 - SLACK):
                return candidates[top.indices[:-1].sort().values]
        return super()._best(candidates, size, temperature)


def _largest(values: Tensor, count: int) -> Tensor:
    """Where the ``count`` largest stand, ascending; ties to the lowest index."""
    return values.sort(descending=True, stable=True).indices[:count].sort().values
