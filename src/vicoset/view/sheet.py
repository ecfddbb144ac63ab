"""Captioned panels on one light page."""

from __future__ import annotations

import unicodedata
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

from PIL import Image, ImageDraw, ImageFont

from vicoset.errors import ShapeError

PAPER = (255, 255, 255)
INK = (28, 32, 38)
QUIET = (88, 96, 105)
EDGE = (200, 205, 210)
MARGIN = 20
_SIZES = 19, 17, 14  # of a heading, a title and a line of text
_LEADING = 1.35
_READABLE = 1550  # pixels; wider pages have larger letters, since they are looked at from afar


@dataclass(frozen=True, eq=False)
class Panel:
    """One picture of a sheet.

    Attributes:
        image: the picture, drawn at its own size.
        title: one line above it.
        lines: quiet lines below it, wrapped to its width.
    """

    image: Image.Image
    title: str
    lines: tuple[str, ...] = ()


class _Text(NamedTuple):
    lines: list[str]
    size: int
    ink: tuple[int, int, int]

    @property
    def height(self) -> int:
        return round(len(self.lines) * self.size * _LEADING)


def sheet(
    panels: Sequence[Panel],
    *,
    columns: int = 3,
    heading: Sequence[str] = (),
    footing: Sequence[str] = (),
) -> Image.Image:
    """All panels in rows of ``columns``, on white, with lines of text above and below.

    Args:
        panels: one or more.
        columns: at most that many panels in a row.
        heading: lines above all panels.
        footing: quiet lines below them.
    """
    if not panels or columns < 1:
        raise ShapeError(
            f"{len(panels)} panels in {columns} columns; allowed are one or more of both."
        )
    columns = min(columns, len(panels))
    rows = [panels[start : start + columns] for start in range(0, len(panels), columns)]
    widths = [max(row[i].image.width for row in rows if i < len(row)) for i in range(columns)]
    inner = sum(widths) + MARGIN * (columns - 1)
    large, middling, small = (round(size * max(inner / _READABLE, 1)) for size in _SIZES)
    head, foot = _text(heading, large, INK, inner), _text(footing, small, QUIET, inner)
    titles = [[_text([p.title], middling, INK, p.image.width) for p in row] for row in rows]
    notes = [[_text(p.lines, small, QUIET, p.image.width) for p in row] for row in rows]
    above = [max(text.height for text in row) + 4 for row in titles]
    middle = [max(p.image.height for p in row) + 6 for row in rows]
    below = [max(text.height for text in row) for row in notes]

    height = MARGIN + sum(above) + sum(middle) + sum(below) + MARGIN * len(rows)
    height += sum(text.height + MARGIN for text in (head, foot) if text.lines)
    page = Image.new("RGB", (inner + 2 * MARGIN, height), PAPER)
    pen = ImageDraw.Draw(page)
    y = MARGIN
    if head.lines:
        y = _write(pen, MARGIN, y, head) + MARGIN
    for row, title, note, a, m, b in zip(rows, titles, notes, above, middle, below, strict=True):
        for i, panel in enumerate(row):
            x = MARGIN + sum(widths[:i]) + MARGIN * i
            _write(pen, x, y + a - 4 - title[i].height, title[i])
            page.paste(panel.image, (x, y + a))
            w, h = panel.image.size
            pen.rectangle((x - 1, y + a - 1, x + w, y + a + h), outline=EDGE)
            _write(pen, x, y + a + panel.image.height + 6, note[i])
        y += a + m + b + MARGIN
    _write(pen, MARGIN, y, foot)
    return page


def _font(size: int) -> ImageFont.FreeTypeFont | ImageFont.ImageFont:
    """The font inside Pillow, so that a page looks the same on every machine."""
    return ImageFont.load_default(size)


def _text(lines: Sequence[str], size: int, ink: tuple[int, int, int], width: int) -> _Text:
    font = _font(size)
    wrapped: list[str] = []
    for line in lines:
        current = ""
        for word in plain(line).split():
            longer = f"{current} {word}".strip()
            if current and font.getlength(longer) > width:
                wrapped.append(current)
                longer = word
            current = longer
        wrapped.append(current)
    return _Text(wrapped, size, ink)


def _write(pen: ImageDraw.ImageDraw, x: int, y: int, text: _Text) -> int:
    """Write lines downwards from (x, y); returns where they end."""
    font = _font(text.size)
    for number, line in enumerate(text.lines):
        pen.text((x, y + round(number * text.size * _LEADING)), line, fill=text.ink, font=font)
    return y + text.height


def plain(text: str) -> str:
    """What the font inside Pillow can write: accents dropped, other signs as ``?``."""
    spread = unicodedata.normalize("NFKD", text)
    bare = "".join(sign for sign in spread if not unicodedata.combining(sign))
    return "".join(sign if " " <= sign <= "~" else " " if sign.isspace() else "?" for sign in bare)
