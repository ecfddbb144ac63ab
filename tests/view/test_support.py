import numpy as np
import pytest

from tests.view.test_cells import raster
from vicoset.errors import ImageError, IndexRangeError, ShapeError
from vicoset.view import Support


def test_carriers_are_named_by_token() -> None:
    found = Support.of(raster(2, 2), [1, 3], carrier=[0, 0, -1, 1], mass=[1, 2, 3, 4])
    assert found.kept.tolist() == [False, True, False, True]
    assert found.carrier is not None and found.carrier.tolist() == [1, 1, -1, 3]
    assert found.mass is not None and found.mass.tolist() == [1, 2, 3, 4]


def test_one_image_of_several_is_numbered_anew() -> None:
    places = np.concatenate([raster(1, 3), raster(2, 2)])
    ids = [0, 0, 0, 1, 1, 1, 1]
    carrier = [0, 0, 0, 1, 1, 2, 2]
    found = Support.of(places, [0, 3, 6], carrier, np.arange(7), ids, image=1)
    assert found.tokens == 4 and found.kept.tolist() == [True, False, False, True]
    assert found.carrier is not None and found.carrier.tolist() == [0, 0, 3, 3]
    assert found.mass is not None and found.mass.tolist() == [3, 4, 5, 6]
    assert np.allclose(found.cells[:, 2] - found.cells[:, 0], 0.5)


@pytest.mark.parametrize(
    ("error", "words", "more"),
    [
        (IndexRangeError, "from 0 to 3", {"indices": [4]}),
        (IndexRangeError, "from 0 to 3", {"indices": [-1, 2]}),
        (IndexRangeError, "one or more", {"indices": []}),
        (IndexRangeError, "positions 0 to 0 among the kept", {"carrier": [0, 1, 0, 0]}),
        (ShapeError, r"mass has shape \[3\] beside 4", {"mass": [1, 2, 3]}),
        (ShapeError, r"image_ids has shape", {"image_ids": [0]}),
        (ImageError, r"images \[0\]", {"image": 1}),
        (ImageError, "A video has no single picture", {"coordinates": np.zeros((4, 3))}),
    ],
)
def test_parts_that_do_not_belong_together_are_refused(
    error: type[Exception], words: str, more: dict
) -> None:
    with pytest.raises(error, match=words):
        Support.of(**{"coordinates": raster(2, 2), "indices": [1], **more})


def test_a_mark_is_shown_by_the_cell_that_holds_its_middle() -> None:
    found = Support.of(raster(2, 2), [0, 3])
    frame = (10.0, 0.0, 30.0, 40.0)  # the part of an image that the tokens cover
    marks = [(10, 0, 14, 4), (21, 0, 25, 4), (18, 21, 26, 25), (0, 0, 4, 4), (28, 38, 34, 44)]
    assert found.shows(marks, frame) == [True, False, True, False, False]
    assert found.shows([], frame) == []
