import itertools

import numpy as np
import pytest

from tests import zoo
from vicoset.view.cells import boxes, labels, pixels


def raster(
    rows: int, columns: int, area: tuple[float, float, float, float] = (0, 0, 1, 1)
) -> np.ndarray:
    """Cell centres (y, x) of a grid over an area (left, top, right, bottom)."""
    left, top, right, bottom = area
    return np.array(
        [
            (top + (i + 0.5) / rows * (bottom - top), left + (j + 0.5) / columns * (right - left))
            for i, j in itertools.product(range(rows), range(columns))
        ]
    )


@pytest.mark.parametrize(("rows", "columns"), [(1, 1), (1, 7), (7, 1), (3, 5), (36, 36)])
def test_a_grid_tiles_its_frame(rows: int, columns: int) -> None:
    found = boxes(raster(rows, columns))
    left, top, right, bottom = found.T
    assert np.allclose(right - left, 1 / columns) and np.allclose(bottom - top, 1 / rows)
    page = labels(pixels(found, (0, 0, 97, 61)), (97, 61), np.arange(rows * columns))
    assert (page >= 0).all()  # no gaps, though 97 and 61 are no multiples
    assert set(page.ravel().tolist()) == set(range(rows * columns))


def test_pixels_are_those_of_the_grid() -> None:
    found = pixels(boxes(raster(2, 3)), (10, 20, 40, 40))
    assert found.tolist() == [
        [10, 20, 20, 30],
        [20, 20, 30, 30],
        [30, 20, 40, 30],
        [10, 30, 20, 40],
        [20, 30, 30, 40],
        [30, 30, 40, 40],
    ]


def test_rasters_over_one_frame_have_cells_of_their_own_size() -> None:
    # A base view, then four tiles of a finer grid, row by row, then a thumbnail.
    tiles = [(0, 0, 0.5, 0.5), (0.5, 0, 1, 0.5), (0, 0.5, 0.5, 1), (0.5, 0.5, 1, 1)]
    parts = [raster(2, 2), *(raster(3, 3, tile) for tile in tiles), raster(4, 4)]
    found = boxes(np.concatenate(parts))
    sizes = np.concatenate([np.full(4, 1 / 2), np.full(36, 1 / 6), np.full(16, 1 / 4)])
    assert np.allclose(found[:, 2] - found[:, 0], sizes)
    assert np.allclose(found[:, 3] - found[:, 1], sizes)


def test_the_smaller_cell_lies_on_top() -> None:
    page = labels(np.array([[1, 1, 2, 2], [0, 0, 4, 4]]), (4, 4), np.array([7, 9]))
    assert page[1, 1] == 7 and (page == 9).sum() == 15


@pytest.mark.parametrize("family", ["qwen2_5_vl", "llava", "llava_next", "internvl"])
def test_the_families_own_coordinates_cover_their_images(family: str) -> None:
    from tests.runtime.helpers import compressed, model_of
    from vicoset.api import Compaction

    model, seen = model_of(family), []
    batch = zoo.prompt(model, family)

    def keep(done: Compaction) -> None:
        seen.append(done.scene.coordinates.numpy())

    with compressed(model, "random@1", keep=3, watch=keep):
        model(**batch)
    cells = boxes(seen[0].astype(np.float64))
    page = labels(pixels(cells, (0, 0, 200, 200)), (200, 200), np.arange(len(cells)))
    assert (page >= 0).mean() > 0.98
    centres = (cells[:, 1] + cells[:, 3]) / 2, (cells[:, 0] + cells[:, 2]) / 2
    assert np.allclose(np.stack(centres, 1), seen[0], atol=0.02)
