"""What a picture shows: which tokens of one image were kept, and where the others went."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from vicoset.errors import ImageError, IndexRangeError, ShapeError
from vicoset.view.cells import Floats, Ints, boxes


@dataclass(frozen=True, eq=False)
class Support:
    """The tokens of one image behind one boundary.

    Attributes:
        cells: [N, 4] (left, top, right, bottom) of every token, in the frame [0, 1].
        kept: [N] bool.
        carrier: [N] the token that carries each token, itself for a kept one, -1 where it was
            deleted; None where nobody recorded it.
        mass: [N] the mass each token brings; None where nobody recorded it.
    """

    cells: Floats
    kept: NDArray[np.bool_]
    carrier: Ints | None = None
    mass: Floats | None = None

    @property
    def tokens(self) -> int:
        """N."""
        return len(self.kept)

    def shows(
        self,
        rectangles: Sequence[tuple[float, float, float, float]],
        frame: tuple[float, float, float, float],
    ) -> list[bool]:
        """Whether a kept token's own cell holds the middle of each rectangle.

        Args:
            rectangles: (left, top, right, bottom) in pixels, such as the evidence of an answer.
            frame: the part of the image that the tokens cover, in its pixels.
        """
        left, top, right, bottom = frame
        mine = self.cells[self.kept]
        found = []
        for a, b, c, d in rectangles:
            x = ((a + c) / 2 - left) / (right - left)
            y = ((b + d) / 2 - top) / (bottom - top)
            across = (mine[:, 0] <= x) & (x < mine[:, 2])
            found.append(bool((across & (mine[:, 1] <= y) & (y < mine[:, 3])).any()))
        return found

    @classmethod
    def of(
        cls,
        coordinates: ArrayLike,
        indices: ArrayLike,
        carrier: ArrayLike | None = None,
        mass: ArrayLike | None = None,
        image_ids: ArrayLike | None = None,
        image: int = 0,
    ) -> Support:
        """The support of one image of a request.

        Args:
            coordinates: [N, 2] cell centres (y, x) in [0, 1] of the request's visual tokens.
            indices: [K] kept tokens.
            carrier: [N] position among the kept of each token's carrier, -1 for a deleted token.
            mass: [N].
            image_ids: [N] which image each token belongs to; one image without it.
            image: which one to show.
        """
        places = np.asarray(coordinates, np.float64)
        chosen = np.asarray(indices, np.int64)
        if places.ndim != 2 or places.shape[1] != 2:
            raise ImageError(
                f"coordinates of shape {list(places.shape)} describe no still image; allowed are "
                "[N, 2], (y, x) of each token. A video has no single picture to draw on."
            )
        tokens = len(places)
        owners = np.zeros(tokens, np.int64) if image_ids is None else np.asarray(image_ids)
        carried = None if carrier is None else np.asarray(carrier, np.int64)
        weights = None if mass is None else np.asarray(mass, np.float64)
        _check(tokens, chosen, {"image_ids": owners, "carrier": carried, "mass": weights})
        kept = np.zeros(tokens, np.bool_)
        kept[chosen] = True
        if carried is not None:
            carried = np.where(carried < 0, -1, chosen[carried])
        mine = np.flatnonzero(owners == image)
        if not len(mine):
            raise ImageError(
                f"image={image} of a request with the images {sorted(set(owners.tolist()))}; "
                "allowed is one of those."
            )
        place = np.full(tokens + 1, -1, np.int64)  # the last one stands for "deleted"
        place[mine] = np.arange(len(mine))
        return cls(
            cells=boxes(places[mine]),
            kept=kept[mine],
            carrier=None if carried is None else place[carried[mine]],
            mass=None if weights is None else weights[mine],
        )


def _check(tokens: int, indices: Ints, rows: dict[str, NDArray[Any] | None]) -> None:
    """Raise when the parts do not belong together."""
    if indices.ndim != 1 or not len(indices) or indices.min() < 0 or indices.max() >= tokens:
        raise IndexRangeError(
            f"kept indices {indices[:8].tolist()}... of {tokens} tokens; allowed are one or more "
            f"from 0 to {tokens - 1}. Give the coordinates of all tokens, kept or not."
        )
    for name, row in rows.items():
        if row is not None and row.shape != (tokens,):
            raise ShapeError(
                f"{name} has shape {list(row.shape)} beside {tokens} coordinates; allowed is "
                f"[{tokens}], an entry a token."
            )
    carrier = rows["carrier"]
    if carrier is not None and (carrier.max() >= len(indices) or carrier.min() < -1):
        raise IndexRangeError(
            f"carriers go from {carrier.min()} to {carrier.max()} with {len(indices)} kept tokens; "
            f"allowed are positions 0 to {len(indices) - 1} among the kept, and -1."
        )
