"""What one row of a prompt consists of: visual tokens with their places, and text."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from itertools import groupby
from typing import Any, NamedTuple

import torch
from torch import Tensor

from vicoset.errors import ImageError


@dataclass(frozen=True)
class Layout:
    """One row of a prompt.

    Everything is on the CPU. Positions are sequence positions of the row as it came, padding
    included. Rows that are neither visual nor text are structural (markers, newlines) or padding.

    Attributes:
        visual: ``[N]`` int64, ascending positions of the visual tokens.
        image_ids: ``[N]`` int64, 0..images-1, nondecreasing.
        images: how many images and videos the row holds.
        coordinates: ``[N, 2]`` float32 (y, x) or ``[N, 3]`` (t, y, x), cell centres in [0, 1].
        text: ``[S]`` int64, ascending positions of attended text.
    """

    visual: Tensor
    image_ids: Tensor
    images: int
    coordinates: Tensor
    text: Tensor


@dataclass
class PromptInputs:
    """What the runtime knows about a prompt when its text decoder is called.

    Attributes:
        model: the top-level model.
        input_ids: ``[B, L]``.
        attended: ``[B, L]`` bool, False at padding.
        position_ids: as the text decoder received them, ``[3|4, B, L]``, ``[B, L]`` or None.
        image_lengths: visual tokens of each piece that the vision tower returned, in order over
            the whole batch (an image, a tile or all images of a row: that is the family's matter).
        kwargs: keyword arguments of the forward (``image_sizes``, ``video_grid_thw``, ...).
        video_lengths: the same as `image_lengths`, for videos.
    """

    model: Any
    input_ids: Tensor
    attended: Tensor
    position_ids: Tensor | None = None
    image_lengths: list[int] | None = None
    kwargs: dict[str, Any] = field(default_factory=dict)
    video_lengths: list[int] | None = None


class Picture(NamedTuple):
    """One image or video of a row.

    Attributes:
        positions: ``[n]`` ascending sequence positions.
        coordinates: ``[n, 2|3]`` in [0, 1].
    """

    positions: Tensor
    coordinates: Tensor


class Prompt(NamedTuple):
    """The masks that every family starts from, on the CPU.

    Attributes:
        ids: ``[B, L]``.
        attended: ``[B, L]`` bool.
        visual: ``[B, L]`` bool, attended positions with a visual id.
    """

    ids: Tensor
    attended: Tensor
    visual: Tensor


def masks(inputs: PromptInputs, visual_ids: Sequence[int]) -> Prompt:
    """The prompt's ids and masks.

    Args:
        inputs: the prompt, ids ``[B, L]``.
        visual_ids: token ids that stand for visual features.
    """
    ids = inputs.input_ids.detach().cpu()
    attended = inputs.attended.detach().cpu().bool()
    wanted = torch.tensor(list(visual_ids), dtype=ids.dtype)
    return Prompt(ids, attended, torch.isin(ids, wanted) & attended)


def runs(mask: Tensor) -> list[Tensor]:
    """The positions of each unbroken run.

    Args:
        mask: ``[L]`` bool.

    Returns:
        One ascending int64 tensor a run, in order.
    """
    places = mask.nonzero().flatten()
    if not len(places):
        return []
    breaks = ((places[1:] - places[:-1]) != 1).nonzero().flatten() + 1
    return list(torch.tensor_split(places, breaks))


def shared_pieces(counts: Sequence[int], lengths: Sequence[int]) -> list[list[int]]:
    """Which pieces belong to which row.

    Beams and several returned sequences repeat every row, next to its first copy; the pieces are
    then given once, or repeated with their rows.

    Args:
        counts: ``[B]`` visual tokens of each row.
        lengths: visual tokens of each piece, in order over the batch.

    Returns:
        ``[B]`` lists of indices into `lengths`, whose lengths sum to the row's count.
    """
    pieces = [index for index, length in enumerate(lengths) if length]
    total, given = sum(counts), sum(lengths)
    repeat = total // given if given and total % given == 0 else 0
    if total == given == 0:
        return [[] for _ in counts]
    if repeat < 1 or len(counts) % repeat:
        raise ImageError(
            f"the prompt holds {total} visual tokens in {len(counts)} rows and the vision tower "
            f"returned {given} ({_brief(lengths)}); allowed is the same number, or the same for "
            "each of the beams. Give every image as many placeholders as the processor writes."
        )
    shares: list[list[int]] = []
    rest = iter(pieces)
    for count in counts[::repeat]:
        mine: list[int] = []
        size = 0
        while size < count:
            mine.append(next(rest))
            size += lengths[mine[-1]]
        if size != count:
            raise ImageError(
                f"a row holds {count} visual tokens, but the images next in line have "
                f"{_brief([lengths[index] for index in mine])}; an image may not be split between "
                "rows. Pass the images in the order of the rows."
            )
        shares += [mine] * repeat
    return shares


def shared_out(counts: Sequence[int], lengths: Sequence[int]) -> list[list[int]]:
    """The lengths of the pieces of each row, as in `shared_pieces`."""
    return [[lengths[index] for index in share] for share in shared_pieces(counts, lengths)]


def cut(positions: Tensor, lengths: Sequence[int]) -> list[Tensor]:
    """Consecutive stretches of positions.

    Args:
        positions: ``[n]``.
        lengths: summing to ``n``.
    """
    return list(torch.split(positions, list(lengths))) if lengths else []


def compose(
    prompt: Prompt, row: int, pictures: Iterable[Picture], structural: Tensor
) -> Layout | None:
    """The layout of a row from its pictures.

    Args:
        prompt: ids and masks ``[B, L]``.
        row: which row.
        pictures: in order of their positions; if one has a time axis, the others get 0.5.
        structural: ``[L]`` bool, positions that are neither visual nor text.
    """
    parts = [picture for picture in pictures if len(picture.positions)]
    if not parts:
        return None
    visual = torch.cat([part.positions for part in parts]).long()
    axes = max(part.coordinates.shape[1] for part in parts)
    places = [part.coordinates.float() for part in parts]
    if axes == 3:
        places = [place if place.shape[1] == 3 else in_time(place) for place in places]
    sizes = torch.tensor([len(part.positions) for part in parts])
    coordinates = torch.cat(places)
    if len(visual) != len(coordinates) or not bool((visual[1:] > visual[:-1]).all()):
        raise ImageError(
            f"{len(visual)} visual tokens came with {len(coordinates)} coordinates, or their "
            "images overlap in the sequence; allowed is one image after the other."
        )
    text = prompt.attended[row] & ~prompt.visual[row] & ~structural
    return Layout(
        visual=visual,
        image_ids=torch.repeat_interleave(torch.arange(len(parts)), sizes),
        images=len(parts),
        coordinates=coordinates.clamp(0.0, 1.0),
        text=text.nonzero().flatten(),
    )


def grid(height: int, width: int) -> Tensor:
    """Cell centres of a grid in row-major order, ``[height * width, 2]`` (y, x)."""
    y = (torch.arange(height, dtype=torch.float32) + 0.5) / height
    x = (torch.arange(width, dtype=torch.float32) + 0.5) / width
    return torch.cartesian_prod(y, x)


def in_time(places: Tensor, frame: int = 0, frames: int = 1) -> Tensor:
    """Places ``[n, 2]`` with the centre of their frame as first coordinate, ``[n, 3]``."""
    return torch.cat([torch.full((len(places), 1), (frame + 0.5) / frames), places], dim=1)


def square(tokens: int) -> Tensor | None:
    """Cell centres ``[tokens, 2]`` of a square grid; None if `tokens` is no square."""
    side = round(tokens**0.5)
    return grid(side, side) if side * side == tokens else None


def _brief(lengths: Sequence[int]) -> str:
    groups = [(length, len(list(same))) for length, same in groupby(lengths)]
    text = ", ".join(
        f"{count} x {length}" if count > 1 else str(length) for length, count in groups
    )
    return text or "nothing"
