import colorsys

import numpy as np

from tests.view.test_cells import raster
from vicoset.view.cells import boxes
from vicoset.view.colours import borders, by_place


def test_the_hue_is_the_direction_from_the_middle() -> None:
    cells = boxes(raster(9, 9))
    inks = by_place(cells)
    assert inks.shape == (81, 3) and inks.min() >= 0 and inks.max() <= 255
    for cell, ink in zip(cells, inks, strict=True):
        x, y = (cell[0] + cell[2]) / 2 - 0.5, (cell[1] + cell[3]) / 2 - 0.5
        far = min(np.hypot(x, y), 0.5) * 2
        hue = float(np.arctan2(y, x) / (2 * np.pi)) % 1.0
        told = colorsys.hsv_to_rgb(hue, 0.35 + 0.6 * far, 0.85)
        assert np.abs(ink - 255 * np.array(told)).max() <= 1


def test_near_places_have_near_colours_and_opposite_ones_do_not() -> None:
    inks = by_place(boxes(raster(30, 30))).reshape(30, 30, 3)
    edge = np.concatenate([inks[0], inks[:, -1], inks[-1, ::-1], inks[::-1, 0]])
    assert np.abs(np.diff(edge, axis=0)).max() < 60
    across = np.abs(inks[0] - inks[-1, ::-1]).max(-1)
    assert across.min() > 100


def test_borders_lie_where_the_number_changes() -> None:
    clusters = np.array([[0, 0, 1], [0, 2, 1], [0, 2, 2]])
    assert borders(clusters).tolist() == [
        [False, False, True],
        [False, True, True],
        [False, True, True],
    ]
    assert not borders(np.zeros((3, 4), np.int64)).any()
