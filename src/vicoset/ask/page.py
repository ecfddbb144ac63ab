"""What was asked, drawn: the picture, what each method kept of it, and where the rest went."""

from __future__ import annotations

from collections.abc import Sequence

from PIL import Image

from vicoset.ask.request import Asked, Request
from vicoset.view import Panel, cluster_map, marked, sheet, support_map
from vicoset.view.overlay import WIDTH

_ZOOM = 3  # how much larger than in its panel the evidence is shown
_LEGEND = (
    "Kept tokens are outlined, the others faded. A token has the colour of the place of its "
    "carrier; the area of a disc is the mass that its carrier took over."
)
_MARKS = "Boxes around the evidence: blue with a carrier on it, orange without."


def request_page(request: Request, asked: Asked, full: Asked | None = None) -> Image.Image:
    """One method: the picture, what was kept, where the rest went.

    Args:
        request: that was asked.
        asked: the method's answer.
        full: Full's, to stand beside it.
    """
    panels = [_original(request), *_maps(request, asked, said=False)]
    return sheet(
        panels,
        columns=3,
        heading=_heading(request, full, asked),
        footing=(asked.line, _legend(request)),
    )


def comparison_page(request: Request, asked: Sequence[Asked], full: Asked) -> Image.Image:
    """Several methods side by side: above what each kept, below where the rest went.

    Args:
        request: that was asked.
        asked: the methods' answers.
        full: Full's.
    """
    maps = [_maps(request, one) for one in asked]
    rows = [
        _original(request),
        *(panels[0] for panels in maps),
        _closer(request),
        *(panels[1] for panels in maps),
    ]
    return sheet(
        rows,
        columns=1 + len(asked),
        heading=_heading(request, full),
        footing=(_legend(request),),
    )


def _heading(request: Request, full: Asked | None, asked: Asked | None = None) -> list[str]:
    said = [request.source.question]
    if full is not None:
        said.append(f"Full: {_told(full)}")
    if asked is not None:
        said.append(f"{asked.method.asked}, K = {asked.record.kept}: {_told(asked)}")
    return said


def _told(asked: Asked) -> str:
    """The answer, and whether it is right."""
    verdict = {True: " (right)", False: " (wrong)", None: ""}[asked.correct]
    return f"{asked.text or '(nothing)'}{verdict}"


def _legend(request: Request) -> str:
    return f"{_LEGEND} {_MARKS}" if request.source.boxes else _LEGEND


def _original(request: Request) -> Panel:
    source = request.source
    lines = [source.name]
    if source.item is not None:
        lines.append(f"reference: {source.item.answer}")
    return Panel(marked(source.image, source.boxes), "The picture", tuple(lines))


def _closer(request: Request) -> Panel:
    """The part of the picture around the evidence, larger."""
    image, boxes = request.source.image, request.source.boxes
    if not boxes:
        return Panel(marked(image, ()), "The picture", ())
    width, height = image.width / _ZOOM, image.height / _ZOOM
    middle = [(min(b[i] for b in boxes) + max(b[i + 2] for b in boxes)) / 2 for i in (0, 1)]
    left = round(min(max(middle[0] - width / 2, 0), image.width - width))
    top = round(min(max(middle[1] - height / 2, 0), image.height - height))
    part = image.crop((left, top, left + round(width), top + round(height)))
    moved = [(a - left, b - top, c - left, d - top) for a, b, c, d in boxes]
    return Panel(marked(part, moved), f"Its evidence, {_ZOOM} times larger", ())


def _maps(request: Request, asked: Asked, said: bool = True) -> list[Panel]:
    """What was kept, and where the rest went; the answer stands below the first if ``said``."""
    record, support = asked.record, asked.support
    if support is None:
        return [Panel(marked(request.source.image, ()), asked.method.label, (_told(asked),))] * 2
    image, frame = request.source.image, request.frame
    count = f"K = {record.kept} of {record.tokens}, before block {record.stages[-1].boundary}"
    lines = [*([f"answer: {_told(asked)}"] if said else []), *_measured(asked)]
    kept = _marked(support_map(image, support, frame=frame), request, asked)
    panels = [Panel(kept, f"{asked.method.asked}: {count}", tuple(lines))]
    if support.carrier is not None:
        clusters = _marked(cluster_map(image, support, frame=frame), request, asked)
        panels.append(Panel(clusters, "Where the other tokens went", ()))
    return panels


def _measured(asked: Asked) -> list[str]:
    found = [] if asked.coverage is None else [f"coverage {asked.coverage:.3f}"]
    if asked.evidence:
        found.append(f"evidence {sum(asked.evidence)} of {len(asked.evidence)}")
    found.append(f"work {asked.record.work_share:.1%}")
    return [", ".join(found)]


def _marked(picture: Image.Image, request: Request, asked: Asked) -> Image.Image:
    source = request.source
    return marked(picture, source.boxes, found=asked.evidence, width=WIDTH, size=source.image.size)
