"""``python -m vicoset.tiny.train.exam``: the test questions, with their pictures and without.

All questions of a picture are answered in one forward, each in a slot of its own. An answer counts
when every token of it, its end included, is the likeliest given those before: exactly when greedy
generation gives it.
"""

from __future__ import annotations

import argparse
import itertools
import json
import sys
import time
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch

from vicoset.tiny import configs
from vicoset.tiny.bench.item import IMAGES, TASKS, Item, items
from vicoset.tiny.scenes.scene import Question
from vicoset.tiny.train import forward, losses
from vicoset.tiny.train.pages import Batch, slot_of

CONDITIONS = ("picture", "another", "blank")


class Answered(NamedTuple):
    """A question under a condition.

    Attributes:
        item: the question.
        condition: "picture", "another" (that of the next picture of the kind) or "blank" (grey).
        right: whether the answer was given.
    """

    item: Item
    condition: str
    right: bool


def exam(
    model: Any, family: str, asked: Iterable[Item], conditions: Sequence[str]
) -> Iterator[Answered]:
    """Answer questions; those of a picture have to stand together.

    Args:
        model: of the stock class, in any dtype.
        family: "qwen" or "llava".
        asked: the questions.
        conditions: some of ``CONDITIONS``.
    """
    weights = dict(model.named_parameters())
    groups = [list(g) for _, g in itertools.groupby(asked, key=lambda item: item.unit_id)]
    others = _others([group[0] for group in groups])
    for group in groups:
        batch = _batch(group, family)
        for condition in conditions:
            pages = _pages(group[0], others[group[0].unit_id], condition)
            with torch.inference_mode():
                visual = _visual(model, family, weights, batch, pages)
                logits = forward.answer_logits(model, family, weights, batch, visual)
                _, right = losses.answer_loss(logits, batch)
            for item, ok in zip(group, right[0].tolist(), strict=True):
                yield Answered(item, condition, bool(ok))


def _others(firsts: list[Item]) -> dict[str, Item]:
    """For every picture the next one of its kind."""
    found: dict[str, Item] = {}
    for kind in {item.kind for item in firsts}:
        mine = [item for item in firsts if item.kind == kind]
        found |= {a.unit_id: b for a, b in zip(mine, mine[1:] + mine[:1], strict=True)}
    return found


def _pages(own: Item, other: Item, condition: str) -> torch.Tensor:
    if condition == "blank":
        side = own.resolution.pixels
        return torch.full((1, side, side, 3), 127, dtype=torch.uint8)
    pixels = (own if condition == "picture" else other).pixels()
    return torch.from_numpy(np.array(pixels))[None]


def _batch(group: list[Item], family: str) -> Batch:
    """The questions of a picture in slots."""
    slots = [slot_of(Question(item.task, item.question, item.answer, ()), family) for item in group]
    nothing = torch.zeros(0)
    return Batch(
        torch.tensor([[slot[0] for slot in slots]]),
        torch.tensor([[slot[1] for slot in slots]]),
        torch.tensor([[slot[2] for slot in slots]]),
        nothing,
        nothing,
        nothing,
        torch.zeros(1, 2, dtype=torch.long),
        nothing,
    )


def _visual(
    model: Any, family: str, weights: forward.Weights, batch: Batch, pages: torch.Tensor
) -> torch.Tensor:
    if family == "qwen":
        return forward.tower_of_qwen(model, weights, pages)
    return forward.tower_of_llava(model, weights, pages, batch.offsets)


def main(argv: Sequence[str] | None = None) -> int:
    """Write a line of JSON per question and condition, and print accuracies.

    Args:
        argv: arguments; the process's own by default.
    """
    parser = argparse.ArgumentParser(prog="python -m vicoset.tiny.train.exam", description=__doc__)
    add = parser.add_argument
    add("model", help="directory of a model, such as RUN/model")
    add("out", type=Path, help="file of JSON lines")
    add("--family", choices=configs.FAMILIES, default="qwen")
    add("--images", type=int, default=IMAGES, help=f"pictures per kind (default {IMAGES}, all)")
    add("--conditions", default=",".join(CONDITIONS))
    options = parser.parse_args(argv)
    from transformers import AutoModelForImageTextToText

    torch.set_num_threads(1)
    model = AutoModelForImageTextToText.from_pretrained(options.model, local_files_only=True)
    asked = items(options.family, images=options.images)
    counts: dict[tuple[str, str], list[bool]] = {}
    began = shown = time.monotonic()
    with options.out.open("w", encoding="utf-8") as file:
        conditions = options.conditions.split(",")
        total = len(asked) * len(conditions)
        for number, answered in enumerate(exam(model, options.family, asked, conditions), 1):
            item, condition, right = answered
            line = {"item": item.item_id, "task": item.task, "condition": condition, "right": right}
            file.write(json.dumps(line) + "\n")
            counts.setdefault((condition, item.task), []).append(right)
            if time.monotonic() - shown > 30:
                shown = time.monotonic()
                left = (shown - began) / number * (total - number)
                print(f"{number} of {total} answers, {left:.0f} s left", file=sys.stderr)
    for condition in conditions:
        said = (f"{t} {np.mean(counts[condition, t]):.3f}" for t in TASKS if counts[condition, t])
        print(condition, *said)
    return 0


if __name__ == "__main__":
    sys.exit(main())
