"""Where the visual tokens of a row lie: in their images, and in the sequence."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from vicoset.models.layout import Layout

CLOSE = 1e-5  # two coordinates that are the same cell centre


@dataclass(frozen=True)
class ImageRecord:
    """One image or video of a row.

    Attributes:
        tokens: its visual tokens.
        grid: (rows, columns) or (frames, rows, columns) when they are all its cells in row-major
            order; None otherwise.
        coordinates: [tokens][axes] where there is no grid; None where there is one.
        runs: (first position, count) of each unbroken stretch in the sequence, padding not counted.
    """

    tokens: int
    grid: tuple[int, ...] | None
    coordinates: tuple[tuple[float, ...], ...] | None
    runs: tuple[tuple[int, int], ...]

    def to_json(self) -> dict[str, Any]:
        """A JSON object without what is None."""
        return {name: value for name, value in vars(self).items() if value is not None}


def images_of(layout: Layout, places: Tensor) -> tuple[ImageRecord, ...]:
    """The images of a row.

    Args:
        layout: of the prompt.
        places: [N] sequence positions of the visual tokens, padding not counted, on the CPU.
    """
    sizes = torch.bincount(layout.image_ids, minlength=layout.images).tolist()
    found = []
    for own, spots in zip(
        torch.split(layout.coordinates, sizes), torch.split(places, sizes), strict=True
    ):
        grid = _grid(own)
        coordinates = None if grid else tuple(tuple(map(_short, c)) for c in own.tolist())
        found.append(ImageRecord(len(own), grid, coordinates, _runs(spots)))
    return tuple(found)


def places_of(layout: Layout, attended: Tensor) -> Tensor:
    """[N] sequence positions of a row's visual tokens, padding not counted.

    Args:
        layout: of the prompt.
        attended: [L] bool, on the CPU.
    """
    return (attended.cumsum(0) - 1)[layout.visual]


def positions_of(given: Any, visual: Tensor, row: int, rows: int) -> Tensor:
    """[axes, N] multimodal positions of a row's visual tokens; one axis for plain positions.

    Args:
        given: what the decoder got: [3, B, L], [4, B, L] (the first is the text's), [B, L], None.
        visual: [N] positions in the row as it came.
        row: which row.
        rows: B.
    """
    if not isinstance(given, Tensor):
        return visual[None]
    if given.ndim == 3:
        given = given[-3:]
        own = given[:, row if given.shape[1] == rows else 0]
    else:
        own = given.reshape(-1, given.shape[-1])
        own = own[row if len(own) == rows else 0][None]
    found: Tensor = own[:, visual.to(own.device)]
    return found


def _grid(coordinates: Tensor) -> tuple[int, ...] | None:
    """The grid whose cell centres these are, in row-major order."""
    first = coordinates[0]
    if not bool((first > 0).all()):
        return None
    counts = [max(1, round(0.5 / value)) for value in first.tolist()]
    if torch.tensor(counts).prod() != len(coordinates):
        return None
    axes = [(torch.arange(n, dtype=torch.float32) + 0.5) / n for n in counts]
    cells = torch.stack(torch.meshgrid(*axes, indexing="ij"), -1).flatten(0, -2)
    return tuple(counts) if bool((cells - coordinates).abs().amax() < CLOSE) else None


def _runs(places: Tensor) -> tuple[tuple[int, int], ...]:
    breaks = ((places[1:] - places[:-1]) != 1).nonzero()[:, 0] + 1
    return tuple((int(run[0]), len(run)) for run in torch.tensor_split(places, breaks))


def _short(value: float) -> float:
    return float(f"{value:.9g}")
