"""The control that compresses before everything else: the image itself, made smaller.

No token is chosen and none is dropped: the picture is resized until its grid has at most K cells,
and the model runs as it always does. Its record says what that cost beside the uncompressed
picture, as if a stage at the decoder's input had left the tokens of the small one.
"""

from __future__ import annotations

import hashlib
import inspect
import math
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any

import torch

from vicoset import __version__
from vicoset.errors import BudgetError, RuntimeStateError, UnsupportedError
from vicoset.methods.base import About
from vicoset.methods.choose import dealt
from vicoset.models.resize import Cells, Square, resizing_tower, ruler_of
from vicoset.plan import Keep
from vicoset.runtime.record import Record, StageRecord

NAME = "downsample"
RATIO = 1.1  # by how much the ratio of the sides may change to come nearer to K
ABOUT = About(
    title="Downsample",
    source="control",
    acts="before the processor",
    reads="the image's size",
    positions="packed",
    notes=(
        "the picture is resized to the grid with the most cells, at most K, whose sides have the "
        "picture's ratio within 10%; the realised K is what that grid has (121 of 128 for a "
        "square picture)",
        "Qwen: bicubic to whole cells, the processor's lower bound on pixels set aside",
        "LLaVA: the processor's size and crop are made smaller, and the tower interpolates its "
        "position table, for which it was not trained",
        "saves the vision tower's work too, which no count of decoder work shows",
        "images: each gets its share of K by its grid",
    ),
)


def check(keep: Keep) -> None:
    """Refuse a budget by coverage.

    Args:
        keep: the budget.
    """
    if keep.coverage is not None:
        raise BudgetError(
            f"{keep!r} came to downsample, which covers nothing; allowed are counts and fractions. "
            "Write Keep(tokens=128)."
        )


def fitting(full: Cells, keep: int) -> Cells:
    """The grid of at most ``keep`` cells for a picture: most cells within 10% of its ratio.

    Where no grid has that ratio: the one that comes nearest to it, then the one with most cells.

    Args:
        full: the uncompressed grid.
        keep: from 1 on.
    """
    if keep >= full.tokens:
        return full

    def off(cells: Cells) -> float:
        return abs(math.log(cells.height * full.width / (cells.width * full.height)))

    lines = range(1, min(full.height, keep) + 1)
    found = [Cells(h, w) for h in lines for w in range(1, min(full.width, keep // h) + 1)]
    close = [cells for cells in found if off(cells) <= math.log(RATIO)]
    if close:
        return max(close, key=lambda cells: (cells.tokens, -off(cells), cells.height))
    return min(found, key=lambda cells: (off(cells), -cells.tokens))


@dataclass(frozen=True)
class Shrunk:
    """Prompts whose images were made smaller.

    Attributes:
        inputs: for the model.
        full: grids of every prompt's images as they came.
        small: grids as they are now.
        keep: the budget that was asked for.
    """

    inputs: Any
    full: tuple[tuple[Cells, ...], ...]
    small: tuple[tuple[Cells, ...], ...]
    keep: Keep

    @property
    def tokens(self) -> list[int]:
        """N of every prompt."""
        return [sum(cells.tokens for cells in row) for row in self.full]

    @property
    def kept(self) -> list[int]:
        """Realised K of every prompt."""
        return [sum(cells.tokens for cells in row) for row in self.small]

    def records(self, found: Sequence[Record]) -> list[Record]:
        """What the prompts cost beside the pictures as they came.

        Args:
            found: a record a prompt, of a run that kept every token of the small pictures.
        """
        if [record.kept for record in found] != self.kept:
            raise RuntimeStateError(
                f"records of {[record.kept for record in found]} kept tokens came for prompts of "
                f"{self.kept}; allowed are the records of these prompts, in order, of a run that "
                "keeps everything. Use compress(model, 'random+drop@0', keep=1.0)."
            )
        return [self._record(record, row) for row, record in enumerate(found)]

    def _record(self, record: Record, row: int) -> Record:
        tokens, kept = self.tokens[row], self.kept[row]
        gone = tokens - kept
        entry = 0 if record.cache is None else sum(record.cache.entry_bytes)
        told = f"{__version__} {NAME} {self.keep!r}"
        request = record.request and replace(
            record.request, plan={"name": NAME, "stages": []}, keep=self.keep.to_json()
        )
        return replace(
            record,
            plan=NAME,
            digest=hashlib.sha256(told.encode()).hexdigest()[:16],
            tokens=tokens,
            length=record.length + gone,
            compact_length=record.length,
            full_kv_bytes=record.kv_bytes + gone * entry,
            stages=(self._stage(row, tokens, kept),) if gone else (),
            notes=(*record.notes, *self._notes(row, tokens, kept)),
            positions="packed" if gone else record.positions,
            request=request,
        )

    def _stage(self, row: int, tokens: int, kept: int) -> StageRecord:
        """Tokens of a smaller picture are none of the whole one's, so no index is kept."""
        pairs = zip(self.full[row], self.small[row], strict=True)
        return StageRecord(
            boundary=0,
            selector=NAME,
            realiser="resize",
            requested=str(self.keep),
            tokens=tokens,
            kept=kept,
            indices=torch.zeros(0, dtype=torch.long),
            evidence={"grids": [[*full, *small] for full, small in pairs]},
        )

    def _notes(self, row: int, tokens: int, kept: int) -> list[str]:
        if not tokens:
            return []
        asked = self.keep.of(tokens, len(self.full[row]))
        grids = ", ".join(f"{cells.height} x {cells.width}" for cells in self.small[row])
        same = f"the picture's grid is {grids}; realised K = {kept} of the {asked} asked for"
        return [] if kept == asked else [same]


class Downsample:
    """Makes the images of prompts smaller; a context in which the model takes them.

    Args:
        model: a stock model.
        processor: of the model.
        keep: the budget of each prompt, a count or a fraction.
    """

    def __init__(self, model: Any, processor: Any, keep: Keep | int | float) -> None:
        self.keep = Keep.parse(keep)
        check(self.keep)
        self._ruler = ruler_of(model, processor)
        square = isinstance(self._ruler, Square)
        self._tower = resizing_tower(model) if square else None
        self._processor = processor

    def encode(self, chats: Sequence[list[dict[str, Any]]]) -> Shrunk:
        """Chats as the model takes them, with smaller images.

        Args:
            chats: with their images, in the form of the chat template, one a prompt.
        """
        images = [list(_images(chat)) for chat in chats]
        full = tuple(tuple(map(self._ruler.cells, row)) for row in images)
        small = tuple(map(self._fitted, full))
        sizes = sorted({cells for row in small for cells in row})
        if self._tower is not None and len(sizes) > 1:
            raise UnsupportedError(
                f"prompts of this batch have {sorted({len(row) for row in images})} images, so "
                "their grids differ, and this family takes images of one size at a time; allowed "
                "are batches with equal numbers of images. Use a batch of 1."
            )
        changed = small != full
        processor = self._ruler.processor(sizes[0]) if changed else self._processor
        shrunk = [self._chat(chat, a, b) for chat, a, b in zip(chats, full, small, strict=True)]
        return Shrunk(templated(processor, shrunk), full, small, self.keep)

    def _fitted(self, full: tuple[Cells, ...]) -> tuple[Cells, ...]:
        """The small grids of a prompt's images."""
        if not full:
            return ()
        sizes = [cells.tokens for cells in full]
        keep = self.keep.of(sum(sizes), len(sizes))
        if keep == sum(sizes):
            return full
        if self._tower is None:
            return tuple(map(fitting, full, dealt(sizes, keep)))
        side = math.isqrt(keep // len(sizes))  # one size for all, as many cells each
        return tuple(Cells(min(c.height, side), min(c.width, side)) for c in full)

    def _chat(
        self, chat: list[dict[str, Any]], full: tuple[Cells, ...], small: tuple[Cells, ...]
    ) -> list[dict[str, Any]]:
        left = iter(zip(full, small, strict=True))

        def part(found: Any) -> Any:
            if not _is_image(found):
                return found
            was, now = next(left)
            image = found["image"]
            return {**found, "image": image if was == now else self._ruler.resized(image, now)}

        return [
            turn
            if isinstance(turn["content"], str)
            else {**turn, "content": [part(found) for found in turn["content"]]}
            for turn in chat
        ]

    @contextmanager
    def attached(self) -> Iterator[None]:
        """The model takes images of any size here; nothing happens where it always does."""
        if self._tower is None:
            yield
            return
        handle = self._tower.register_forward_pre_hook(_interpolating, with_kwargs=True)
        try:
            yield
        finally:
            handle.remove()


def templated(processor: Any, chats: Sequence[list[dict[str, Any]]]) -> Any:
    """Chats as a model takes them, padded to the longest.

    Args:
        processor: with a chat template.
        chats: one a prompt, with their images.
    """
    apply = processor.apply_chat_template
    more: dict[str, Any] = {"return_tensors": "pt", "padding": True}
    if "processor_kwargs" in inspect.signature(apply).parameters:
        more = {"processor_kwargs": more}  # given flat, newer releases complain at every prompt
    return apply(
        list(chats) if len(chats) > 1 else chats[0],
        add_generation_prompt=True,
        tokenize=True,
        return_dict=True,
        **more,
    )


def _interpolating(module: Any, args: Any, kwargs: dict[str, Any]) -> tuple[Any, dict[str, Any]]:
    return args, {**kwargs, "interpolate_pos_encoding": True}


def _is_image(part: Any) -> bool:
    return isinstance(part, Mapping) and part.get("type") == "image"


def _images(chat: list[dict[str, Any]]) -> Iterator[Any]:
    """The images of a chat, in order."""
    for turn in chat:
        for part in [] if isinstance(turn["content"], str) else turn["content"]:
            if part.get("type") == "video":
                raise UnsupportedError("downsample makes images smaller, and a video came.")
            if _is_image(part):
                image = part.get("image")
                if not hasattr(image, "resize") or not hasattr(image, "size"):
                    raise UnsupportedError(
                        f"an image of a chat is a {type(image).__name__}; downsample takes opened "
                        "images of Pillow. Write {'type': 'image', 'image': Image.open(path)}."
                    )
                yield image
