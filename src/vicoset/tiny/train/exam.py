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
from collections.abc import Iterator, Sequence
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
TOGETHER = 24  # questions about the grey page in one forward


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


def exam(model: Any, family: str, asked: Sequence[Item]) -> Iterator[Answered]:
    """Answer every question about its picture, about the next one of the kind, and about grey.

    A picture is read once, for its own questions and for those of the one before it.

    Args:
        model: of the stock class, in any dtype.
        family: "qwen" or "llava".
        asked: the questions.
    """
    weights = dict(model.named_parameters())
    for kind in dict.fromkeys(item.kind for item in asked):
        mine = (item for item in asked if item.kind == kind)
        groups = [list(group) for _, group in itertools.groupby(mine, key=lambda i: i.unit_id)]
        for before, group in zip(groups[-1:] + groups[:-1], groups, strict=True):
            right = answers(model, family, weights, pixels_of(group[0]), [*group, *before])
            for number, (item, ok) in enumerate(zip([*group, *before], right, strict=True)):
                yield Answered(item, "picture" if number < len(group) else "another", ok)
    side = asked[0].resolution.pixels
    grey = torch.full((1, side, side, 3), 127, dtype=torch.uint8)
    for start in range(0, len(asked), TOGETHER):
        some = asked[start : start + TOGETHER]
        for item, ok in zip(some, answers(model, family, weights, grey, some), strict=True):
            yield Answered(item, "blank", ok)


def pixels_of(item: Item) -> torch.Tensor:
    """[1, side, side, 3] the picture of a question."""
    return torch.from_numpy(np.array(item.pixels()))[None]


def answers(
    model: Any, family: str, weights: forward.Weights, page: torch.Tensor, asked: Sequence[Item]
) -> list[bool]:
    """Which questions about a page are answered exactly.

    Args:
        model: of the stock class.
        family: "qwen" or "llava".
        weights: of the model, by name.
        page: [1, side, side, 3] uint8.
        asked: the questions.
    """
    slots = [slot_of(Question(i.task, i.question, i.answer, ()), family) for i in asked]
    tokens, labels, tasks = (torch.tensor([[slot[k] for slot in slots]]) for k in range(3))
    nothing, corner = torch.zeros(0), torch.zeros(1, 2, dtype=torch.long)
    batch = Batch(tokens, labels, tasks, nothing, nothing, nothing, corner, page)
    with torch.inference_mode():
        visual = forward.tower(model, family, weights, page, corner)
        logits = forward.answer_logits(model, family, weights, batch, visual)
        _, right = losses.answer_loss(logits, batch)
    return [bool(ok) for ok in right[0].tolist()]


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
    options = parser.parse_args(argv)
    from transformers import AutoModelForImageTextToText

    torch.set_num_threads(1)
    model = AutoModelForImageTextToText.from_pretrained(options.model, local_files_only=True)
    asked = items(options.family, images=options.images)
    counts: dict[tuple[str, str], list[bool]] = {}
    began = shown = time.monotonic()
    with options.out.open("w", encoding="utf-8") as file:
        total = len(asked) * len(CONDITIONS)
        for number, answered in enumerate(exam(model, options.family, asked), 1):
            item, condition, right = answered
            line = {"item": item.item_id, "task": item.task, "condition": condition, "right": right}
            file.write(json.dumps(line) + "\n")
            counts.setdefault((condition, item.task), []).append(right)
            if time.monotonic() - shown > 30:
                shown = time.monotonic()
                left = (shown - began) / number * (total - number)
                print(f"{number} of {total} answers, {left:.0f} s left", file=sys.stderr)
    for condition in CONDITIONS:
        said = (f"{t} {np.mean(counts[condition, t]):.3f}" for t in TASKS if counts[condition, t])
        print(condition, *said)
    return 0


if __name__ == "__main__":
    sys.exit(main())
