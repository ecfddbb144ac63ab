"""Kept tokens, clusters and masses over the image."""

from __future__ import annotations

import math
from collections.abc import Iterable

import numpy as np
from numpy.typing import NDArray
from PIL import Image, ImageDraw

from vicoset.errors import MethodError, ShapeError
from vicoset.view.cells import Ints, labels, pixels
from vicoset.view.colours import Colour, borders, by_place
from vicoset.view.support import Support

WIDTH = 504  # pixels of a panel: fourteen for each of 36 cells
KEPT: Colour = (200, 30, 60)
EVIDENCE: Colour = (10, 100, 220)
LOST: Colour = (255, 140, 0)
_FADE = 0.7  # how far a discarded cell goes towards white
_VEIL = 0.25  # the same, under colours
_TINT = 0.5  # how much of a cluster's colour lies over its cells
_LINE = 0.6  # how white the line between two clusters is
_LEAST = 1.5  # radius in pixels of the lightest carrier
_ROOM = 2  # pixels between what is marked and its outline

Frame = tuple[float, float, float, float]
Page = NDArray[np.uint8]


def support_map(
    image: Image.Image, support: Support, *, frame: Frame | None = None, width: int = WIDTH
) -> Image.Image:
    """The image with discarded tokens dimmed and kept ones in full colour, outlined.

    Args:
        image: what the model was shown.
        support: its tokens.
        frame: the part of the image that the tokens cover, in its pixels (a centre crop, for
            instance); all of it by default.
        width: of the picture in pixels.
    """
    page, rectangles = _laid_out(image, support, frame, width)
    shown = _faded(page)
    for left, top, right, bottom in rectangles[support.kept]:
        shown[top:bottom, left:right] = page[top:bottom, left:right]
    picture = Image.fromarray(shown)
    pen = ImageDraw.Draw(picture)
    for left, top, right, bottom in rectangles[support.kept].tolist():
        pen.rectangle((left, top, max(right - 1, left), max(bottom - 1, top)), outline=KEPT)
    return picture


def cluster_map(
    image: Image.Image, support: Support, *, frame: Frame | None = None, width: int = WIDTH
) -> Image.Image:
    """Every token in the colour of its carrier's place, and a disc on each carrier.

    Near carriers have near colours (:func:`vicoset.view.colours.by_place`) and a line lies between
    any two clusters. The area of a disc follows the mass that moved into its carrier (the number of
    its tokens, where no mass was recorded). Deleted tokens stay grey.

    Args:
        image: what the model was shown.
        support: its tokens, with carriers.
        frame: the part of the image that the tokens cover, in its pixels; all of it by default.
        width: of the picture in pixels.
    """
    if support.carrier is None:
        raise MethodError(
            "this support does not say which carrier each discarded token moved into; allowed "
            "are supports with carriers. Draw it with support_map."
        )
    page, rectangles = _laid_out(image, support, frame, width)
    clusters = labels(rectangles, (page.shape[1], page.shape[0]), support.carrier)
    inks = by_place(support.cells)
    alive = clusters >= 0
    shown = _faded(page, grey=True).astype(np.float64)
    shown[alive] = shown[alive] * (1 - _TINT) + inks[clusters[alive]] * _TINT
    lines = borders(clusters)
    shown[lines] = shown[lines] * (1 - _LINE) + 255 * _LINE
    picture = Image.fromarray(shown.round().astype(np.uint8))
    _discs(picture, support, rectangles, inks)
    return picture


def marked(
    image: Image.Image,
    rectangles: Iterable[tuple[float, float, float, float]],
    *,
    found: Iterable[bool] | None = None,
    width: int = WIDTH,
    size: tuple[int, int] | None = None,
) -> Image.Image:
    """The image with some rectangles outlined, such as the evidence of an answer.

    Args:
        image: any, also one that was drawn here.
        rectangles: (left, top, right, bottom) in pixels.
        found: whether each of them still has a carrier; those that have none are outlined in
            another colour.
        width: of the picture in pixels.
        size: (width, height) of the image whose pixels the rectangles count; this one's by default.
    """
    picture = _scaled(image, width)
    across, down = size or image.size
    scale = np.array([picture.width / across, picture.height / down] * 2)
    pen = ImageDraw.Draw(picture)
    wanted = list(rectangles)
    inks = [EVIDENCE if here else LOST for here in found or [True] * len(wanted)]
    for rectangle, ink in zip(wanted, inks, strict=True):
        left, top, right, bottom = (np.array(rectangle) * scale).round().astype(int).tolist()
        outline = (left - _ROOM, top - _ROOM, right + _ROOM - 1, bottom + _ROOM - 1)
        pen.rectangle(outline, outline=ink, width=2)
    return picture


def _discs(picture: Image.Image, support: Support, rectangles: Ints, inks: Ints) -> None:
    assert support.carrier is not None
    mass = np.ones(support.tokens) if support.mass is None else support.mass
    alive = support.carrier >= 0
    totals = np.bincount(support.carrier[alive], mass[alive], minlength=support.tokens)
    top_mass = max(float(totals.max()), 1e-12)
    # Drawn four times as large and shrunk: Pillow's own ellipses have steps at this size.
    fine = 4
    layer = Image.new("RGBA", (picture.width * fine, picture.height * fine))
    pen = ImageDraw.Draw(layer)
    for token in sorted(np.flatnonzero(support.kept).tolist(), key=lambda t: -totals[t]):
        left, top, right, bottom = rectangles[token]
        most = 0.8 * min(right - left, bottom - top)
        radius = max(most * math.sqrt(max(totals[token], 0.0) / top_mass), _LEAST)
        x, y = (left + right) / 2 * fine, (top + bottom) / 2 * fine
        ink = tuple((inks[token] // 2).tolist())
        reach = radius * fine
        pen.ellipse(
            (x - reach, y - reach, x + reach, y + reach),
            fill=(*ink, 255),
            outline=(255, 255, 255, 255),
            width=fine,
        )
    layer = layer.resize(picture.size, Image.Resampling.BOX)
    picture.paste(layer, (0, 0), layer)


def _laid_out(
    image: Image.Image, support: Support, frame: Frame | None, width: int
) -> tuple[Page, Ints]:
    """The scaled image as an array [height, width, 3], and every token's pixels on it."""
    picture = _scaled(image, width)
    scale = picture.width / image.width
    left, top, right, bottom = frame or (0.0, 0.0, float(image.width), float(image.height))
    if not (left < right and top < bottom):
        raise ShapeError(
            f"frame={frame}; allowed are (left, top, right, bottom) with left < right and "
            "top < bottom. Leave it out where the tokens cover the whole image."
        )
    edges = pixels(support.cells, (left * scale, top * scale, right * scale, bottom * scale))
    limits = np.array([picture.width, picture.height, picture.width, picture.height])
    return np.asarray(picture).copy(), edges.clip(0, limits)


def _scaled(image: Image.Image, width: int) -> Image.Image:
    if width < 1:
        raise ShapeError(f"width={width}; allowed are whole numbers from 1 on.")
    height = max(round(image.height * width / image.width), 1)
    return image.convert("RGB").resize((width, height), Image.Resampling.LANCZOS)


def _faded(page: Page, grey: bool = False) -> Page:
    """Towards white; grey first where colour is to mean something else."""
    base = page.astype(np.float64)
    if grey:
        base = np.repeat((base @ np.array([0.299, 0.587, 0.114]))[..., None], 3, 2)
    whiter = base + (255 - base) * (_VEIL if grey else _FADE)
    faded: Page = whiter.round().astype(np.uint8)
    return faded
