"""The support map of a record, drawn again without the model that made it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from PIL import Image

from vicoset.errors import ImageError, UnreadableError
from vicoset.view.cells import Floats
from vicoset.view.support import Support

CELL = 12  # pixels of a cell where there is no image to draw on
_PAPER = (214, 219, 224)


def support_of(record: Mapping[str, Any], image: int = 0, stage: int = -1) -> Support:
    """The support of one image, as a record has it.

    Carriers and masses are there for the first stage of a record that was audited in full.

    Args:
        record: a line of a file, as :func:`vicoset.runtime.record_lines.read` gives it.
        image: of the row.
        stage: which compaction; the last one by default.
    """
    try:
        stages = record["stages"]
        if not stages:
            raise ImageError(
                "this record has no stage: nothing was compressed, so there is no support to draw; "
                "allowed are records with K < N."
            )
        chosen = stages[stage]
        first = chosen is stages[0]
        places = np.concatenate([_places(record["images"][0]), *map(_places, record["images"][1:])])
        owners = [n for n, one in enumerate(record["images"]) for _ in range(one["tokens"])]
        realised = chosen.get("realised", {}) if first else {}
        return Support.of(
            places,
            chosen["indices"],
            realised.get("carrier"),
            realised.get("mass"),
            owners,
            image,
        )
    except (KeyError, TypeError, IndexError, AttributeError) as error:
        raise UnreadableError(
            f"this record does not say what a support map needs ({type(error).__name__}: {error}). "
            "Look at it with `vicoset verify`."
        ) from error


def sheet_of(record: Mapping[str, Any], image: int = 0) -> Image.Image:
    """A plain page in the shape of an image's grid, for a record without its picture.

    Args:
        record: as for :func:`support_of`.
        image: of the row.
    """
    grid = record["images"][image].get("grid", [16, 16])
    return Image.new("RGB", (grid[-1] * CELL, grid[-2] * CELL), _PAPER)


def _places(image: Mapping[str, Any]) -> Floats:
    """[tokens, axes] of an image's tokens."""
    if "coordinates" in image:
        return np.asarray(image["coordinates"], np.float64)
    axes = [(np.arange(count) + 0.5) / count for count in image["grid"]]
    cells: Floats = np.stack(np.meshgrid(*axes, indexing="ij"), -1).reshape(-1, len(axes))
    return cells
