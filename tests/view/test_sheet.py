import numpy as np
import pytest
from PIL import Image

from vicoset.errors import ShapeError
from vicoset.view import Panel, sheet
from vicoset.view.sheet import INK, MARGIN, PAPER, QUIET, plain


def block(colour: tuple[int, int, int], size: tuple[int, int] = (120, 80)) -> Image.Image:
    return Image.new("RGB", size, colour)


def bounds(page: np.ndarray, colour: tuple[int, int, int]) -> tuple[int, int, int, int]:
    ys, xs = np.nonzero((page == colour).all(-1))
    return int(xs.min()), int(ys.min()), int(xs.max()) + 1, int(ys.max()) + 1


def test_panels_lie_in_rows_and_keep_their_pixels() -> None:
    inks = [(200, 0, 0), (0, 200, 0), (0, 0, 200), (200, 200, 0)]
    panels = [Panel(block(ink), f"panel {n}", ("a line",)) for n, ink in enumerate(inks)]
    page = np.asarray(sheet(panels, columns=3, heading=("heading",), footing=("footing",)))
    found = [bounds(page, ink) for ink in inks]
    for left, top, right, bottom in found:
        assert (right - left, bottom - top) == (120, 80)
        assert (page[top:bottom, left:right].reshape(-1, 3).std(0) == 0).all()
    assert [left for left, *_ in found[:3]] == [MARGIN + n * (120 + MARGIN) for n in range(3)]
    assert len({top for _, top, *_ in found[:3]}) == 1
    assert found[3][0] == MARGIN and found[3][1] > found[0][3]
    assert (page[:MARGIN] == PAPER).all() and (page[:, : MARGIN - 1] == PAPER).all()


def test_titles_lie_above_and_lines_below_their_panel() -> None:
    page = np.asarray(sheet([Panel(block((1, 200, 1)), "Title", ("caption",))]))
    left, top, _, bottom = bounds(page, (1, 200, 1))
    ink, quiet = bounds(page, INK), bounds(page, QUIET)
    assert ink[3] <= top and quiet[1] >= bottom
    assert left <= ink[0] and left <= quiet[0] <= left + 4


def test_long_captions_are_wrapped_to_the_panel() -> None:
    words = ("several words that together are wider than the panel",)
    beside = Panel(block((9, 9, 200)), "t")
    page = np.asarray(sheet([Panel(block((1, 200, 1)), "t", words), beside]))
    left, _, right, _ = bounds(page, (1, 200, 1))
    quiet = bounds(page, QUIET)
    assert left <= quiet[0] and quiet[2] <= right + 2
    short = sheet([Panel(block((1, 200, 1)), "t", ("one",)), beside])
    assert page.shape[0] > short.height


def test_text_is_what_the_font_can_write() -> None:
    assert plain("Größe — 50 % 日") == "Große ? 50 % ?".replace("ß", "?")
    assert plain("line\nbreak") == "line break"


def test_no_panels_are_refused() -> None:
    with pytest.raises(ShapeError, match="0 panels"):
        sheet([])
    with pytest.raises(ShapeError, match="in 0 columns"):
        sheet([Panel(block((0, 0, 0)), "t")], columns=0)
