"""Clusters by density peaks: centres are dense and far from whatever is denser (DPC-KNN).

Du et al., Study on density peaks clustering based on k-nearest neighbors, 2016, as SparseVLM uses
it.
"""

from __future__ import annotations

import torch
from torch import Tensor

from vicoset.core import checks

# Rows are equal but for rounding when their squared distance is this share of their squared
# lengths around the mean, or of those around zero.
_AROUND_MEAN, _AROUND_ZERO = 2.0**-20, 2.0**-40


def density_peaks(states: Tensor, image_ids: Tensor, groups: int) -> tuple[Tensor, Tensor]:
    """Centres [C], best first, and for each row its cluster [n], -1 where its image has none.

    Distances are Euclidean over sqrt(d); a row's density is exp(- mean of the squared distances to
    its C nearest, itself among them); its score is density times the distance to the nearest denser
    row, the largest distance where there is none. Of equally dense rows the earlier is denser.
    Rows of different images never meet.

    Args:
        states: [n, d].
        image_ids: [n].
        groups: C, 1 to n.
    """
    rows, device = len(states), states.device
    apart = image_ids[:, None] != image_ids[None]
    distance = _distances(checks.lift(states, "states")).masked_fill(apart, torch.inf)
    nearest = distance.topk(groups, dim=1, largest=False).values.square()
    reached = nearest.isfinite()
    density = (-nearest.where(reached, 0.0).sum(1) / reached.sum(1)).exp()
    place = torch.arange(rows, device=device)
    before = (density[None] > density[:, None]) | (
        (density[None] == density[:, None]) & (place[None] < place[:, None])
    )
    farthest = distance.where(~apart, 0.0).amax()
    lead = distance.masked_fill(~before, torch.inf).amin(1)
    score = lead.where(lead.isfinite(), farthest) * density
    centres = score.argsort(descending=True, stable=True)[:groups]
    near = distance[:, centres]
    owner = near.argmin(1).masked_fill(~near.isfinite().any(1), -1)
    return centres, owner.index_copy(0, centres, torch.arange(groups, device=device))


def _distances(states: Tensor) -> Tensor:
    """[n, n] Euclidean over sqrt(d); equal rows have distance 0."""
    centred = states - states.mean(0)
    own = centred.square().sum(1)
    least = _AROUND_MEAN * own + _AROUND_ZERO * states.square().sum(1)
    squared = own[:, None] + own[None] - 2 * centred @ centred.mT
    differ = squared > least[:, None] + least[None]
    return squared.where(differ, 0.0).div_(states.shape[1]).sqrt_()
