"""The supports of a request, collected while it runs."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from vicoset.errors import RuntimeStateError
from vicoset.view.cells import Floats, Ints
from vicoset.view.support import Support

if TYPE_CHECKING:
    from torch import Tensor

    from vicoset.api import Compaction


class _Stage(NamedTuple):
    coordinates: Floats
    image_ids: Ints
    indices: Ints
    carrier: Ints
    mass: Floats


class Watcher:
    """Give one to ``compress(..., watch=)``; it keeps what pictures of the latest prompt need."""

    def __init__(self) -> None:
        self._rows: dict[int, list[_Stage]] = {}
        self._last = (-1, -1)

    def __call__(self, done: Compaction) -> None:
        """Keep a compaction; a boundary or row that does not ascend begins a new prompt."""
        now = (done.stage.boundary, done.row)
        if now <= self._last:
            self._rows.clear()
        self._last = now
        self._rows.setdefault(done.row, []).append(
            _Stage(
                coordinates=_floats(done.scene.coordinates),
                image_ids=_whole(done.scene.image_ids),
                indices=_whole(done.selection.indices),
                carrier=_whole(done.realisation.carrier),
                mass=_floats(done.realisation.mass),
            )
        )

    @property
    def rows(self) -> tuple[int, ...]:
        """Rows of the latest prompt that were compressed."""
        return tuple(sorted(self._rows))

    def support(self, image: int = 0, row: int = 0) -> Support:
        """What became of an image behind the last stage.

        Args:
            image: of the row.
            row: of the batch.
        """
        if row not in self._rows:
            raise RuntimeStateError(
                f"row {row} of the latest prompt was not compressed, so there is nothing to draw; "
                f"compressed were the rows {list(self.rows)}. Run a prompt with an image and K < N."
            )
        first, *later = self._rows[row]
        indices, carrier, mass = first.indices, first.carrier, first.mass
        for stage in later:
            mass = _handed_on(carrier, mass, stage.mass)
            indices = indices[stage.indices]
            carrier = np.where(carrier < 0, -1, stage.carrier[carrier])
        return Support.of(first.coordinates, indices, carrier, mass, first.image_ids, image)


def _handed_on(carrier: Ints, mass: Floats, later: Floats) -> Floats:
    """What each token brings to the next stage: its share in what its carrier brings.

    Args:
        carrier: [N] of the stages so far, -1 for a deleted token.
        mass: [N].
        later: [K] mass of the carriers at the next stage.
    """
    alive = carrier >= 0
    totals = np.bincount(carrier[alive], mass[alive], minlength=len(later))
    share = np.divide(later, totals, out=np.zeros_like(later), where=totals > 0)
    return np.where(alive, mass * share[carrier], 0.0)


def _floats(tensor: Tensor) -> Floats:
    return np.array(tensor.detach().cpu().double().numpy(), np.float64)


def _whole(tensor: Tensor) -> Ints:
    return np.array(tensor.detach().cpu().long().numpy(), np.int64)
