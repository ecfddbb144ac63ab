"""Which pixels of a picture change, and to what."""

import numpy as np
import pytest
from PIL import Image

from tests.view.test_cells import raster
from vicoset.errors import MethodError, ShapeError
from vicoset.view import Support, cluster_map, marked, support_map
from vicoset.view.colours import by_place
from vicoset.view.overlay import EVIDENCE, KEPT, LOST

SIDE, CELL = 6, 20


def noise() -> Image.Image:
    rng = np.random.default_rng(0)
    size = SIDE * CELL
    return Image.fromarray(rng.integers(0, 170, (size, size, 3), dtype=np.uint8))


def grid(kept: list[int], carrier: list[int] | None = None, mass: object = None) -> Support:
    return Support.of(raster(SIDE, SIDE), kept, carrier, mass)


def cell(picture: np.ndarray, token: int, inset: int = 0) -> np.ndarray:
    row, column = divmod(token, SIDE)
    top, left = row * CELL + inset, column * CELL + inset
    return picture[top : top + CELL - 2 * inset, left : left + CELL - 2 * inset]


def test_kept_cells_are_the_image_and_all_others_are_nearer_to_white() -> None:
    image, kept = noise(), [0, 7, 8, 35]
    picture = np.asarray(support_map(image, grid(kept), width=SIDE * CELL))
    pixels = np.asarray(image)
    for token in range(SIDE * SIDE):
        mine, original = cell(picture, token, 1), cell(pixels, token, 1)
        if token in kept:
            assert (mine == original).all()
        else:
            assert (mine > original).all() and mine.min() >= 178


def test_the_outline_is_one_pixel_around_each_kept_cell() -> None:
    picture = np.asarray(support_map(noise(), grid([8]), width=SIDE * CELL))
    red = (picture == KEPT).all(-1)
    expected = np.zeros_like(red)
    cell(expected, 8)[:] = True
    cell(expected, 8, 1)[:] = False
    assert (red == expected).all()


def test_a_frame_leaves_the_rest_of_the_image_dimmed() -> None:
    image = noise()
    everything = grid(list(range(SIDE * SIDE)))
    frame = (20.0, 0.0, 100.0, 120.0)  # a centre crop
    picture = np.asarray(support_map(image, everything, frame=frame, width=SIDE * CELL))
    dimmed = (picture >= 178).all(-1)
    assert dimmed[:, :20].all() and dimmed[:, 100:].all() and not dimmed[:, 20:100].any()
    wider = np.asarray(support_map(image, everything, frame=(-30, 0, 150, 120), width=SIDE * CELL))
    assert not (wider >= 178).all(-1).any()  # a frame of padding around the image is no error


def test_clusters_have_the_colour_of_their_carrier_and_deleted_tokens_none() -> None:
    white = Image.new("RGB", (SIDE * CELL, SIDE * CELL), (255, 255, 255))
    carrier = [0] * 18 + [1] * 12 + [-1] * 6
    picture = np.asarray(cluster_map(white, grid([2, 26], carrier), width=SIDE * CELL)).astype(int)

    def colour_of(token: int) -> tuple[int, ...]:
        found = {tuple(p) for p in cell(picture, token, 1).reshape(-1, 3).tolist()}
        assert len(found) == 1
        return found.pop()

    one = {colour_of(token) for token in (0, 5, 6, 11, *range(12, 18))}  # beyond the disc
    other = {colour_of(token) for token in (18, 22, 23, 24, 28, 29)}
    assert len(one) == len(other) == 1 and one != other
    places = by_place(grid([2, 26], carrier).cells)
    for found, token in ((one, 2), (other, 26)):
        tint = (places[token] + 255) / 2
        assert np.abs(np.array(found.pop()) - tint).max() <= 1
    assert {colour_of(token) for token in (30, 34, 35)} == {(255, 255, 255)}


def test_a_line_lies_between_clusters_and_nowhere_else() -> None:
    black = Image.new("RGB", (SIDE * CELL, SIDE * CELL), (0, 0, 0))
    carrier = [0 if token % SIDE < 3 else 1 for token in range(SIDE * SIDE)]
    picture = np.asarray(cluster_map(black, grid([0, 35], carrier), width=SIDE * CELL)).astype(int)
    row = picture[2 * CELL + 4].sum(-1)  # no disc on it
    assert set(np.flatnonzero(np.abs(np.diff(row)) > 60)) == {3 * CELL - 1, 3 * CELL}
    assert row[3 * CELL] > max(row[3 * CELL - 1], row[3 * CELL + 1])


def test_the_area_of_a_disc_follows_the_mass_of_its_cluster() -> None:
    white = Image.new("RGB", (SIDE * CELL, SIDE * CELL), (255, 255, 255))
    carrier = [0] * 18 + [1] * 18
    mass = np.concatenate([np.full(18, 4.0), np.full(18, 1.0)])
    picture = np.asarray(cluster_map(white, grid([8, 27], carrier, mass), width=SIDE * CELL))

    def area(token: int) -> int:
        """Pixels around a cell that are not of its cluster's colour; a line lies above the cell."""
        row, column = divmod(token, SIDE)
        rows, columns = (slice((n - 1) * CELL + 1, (n + 2) * CELL) for n in (row, column))
        corner = picture[rows, columns][0, 0]
        return int((picture[rows, columns] != corner).any(-1).sum())

    assert 3.0 < area(8) / area(27) < 5.0
    even = np.asarray(cluster_map(white, grid([8, 27], carrier), width=SIDE * CELL))
    picture = even  # without masses tokens are counted, and both clusters have 18
    assert area(8) == area(27)


def test_pictures_are_scaled_with_their_cells() -> None:
    tall = Image.new("RGB", (30, 60), (90, 90, 90))
    picture = support_map(tall, grid([0]), width=300)
    assert picture.size == (300, 600)
    red = (np.asarray(picture) == KEPT).all(-1)
    ys, xs = np.nonzero(red)
    assert (ys.min(), ys.max(), xs.min(), xs.max()) == (0, 99, 0, 49)


def test_evidence_is_outlined_in_the_pixels_of_its_image() -> None:
    image = Image.new("RGB", (50, 50), (255, 255, 255))
    for picture in (
        marked(image, [(10, 20, 15, 25)], width=100),
        marked(image.resize((80, 80)), [(10, 20, 15, 25)], width=100, size=(50, 50)),
    ):
        blue = (np.asarray(picture) == EVIDENCE).all(-1)
        ys, xs = np.nonzero(blue)
        assert (xs.min(), ys.min(), xs.max(), ys.max()) == (18, 38, 31, 51)
        assert not blue[40:50, 20:30].any()  # what is marked stays as it is


def test_evidence_that_was_lost_has_another_colour() -> None:
    image = Image.new("RGB", (50, 50), (255, 255, 255))
    two = [(5, 5, 10, 10), (30, 30, 40, 40)]
    page = np.asarray(marked(image, two, found=[True, False], width=50))
    for ink, half in ((EVIDENCE, slice(0, 20)), (LOST, slice(20, 50))):
        assert (page[half, half] == ink).all(-1).any()
        assert (page == ink).all(-1).sum() == (page[half, half] == ink).all(-1).sum()
    with pytest.raises(ValueError):
        marked(image, two, found=[True])


def test_what_cannot_be_drawn_is_refused() -> None:
    with pytest.raises(MethodError, match="Draw it with support_map"):
        cluster_map(noise(), grid([0]))
    with pytest.raises(ShapeError, match="left < right"):
        support_map(noise(), grid([0]), frame=(5, 0, 5, 9))
    with pytest.raises(ShapeError, match="width=0"):
        support_map(noise(), grid([0]), width=0)
