"""Real inputs of the tiny models: token sequences as the processors write them, random pixels."""

from __future__ import annotations

import inspect
import random
from collections.abc import Callable
from typing import Any

import torch

from tests import zoo_write as write
from tests.zoo_batch import Batch
from tests.zoo_parts import BOS, PAD

Writer = tuple[Callable[[Batch], None], Callable[[Batch], dict[str, Any]]]
IMAGES_FIRST = {"paligemma2"}
WRITERS: dict[str, Writer] = {
    **dict.fromkeys(
        ("qwen2_vl", "qwen2_5_vl", "qwen3_vl", "qwen3_vl_moe", "glm4v"),
        (write.raster, write.rasters),
    ),
    **dict.fromkeys(
        ("llava", "llava_mistral", "vipllava", "paligemma2"), (write.plain, write.stack)
    ),
    **dict.fromkeys(("llava_next", "llava_onevision"), (write.anyres, write.levels)),
    **dict.fromkeys(("idefics3", "smolvlm"), (write.idefics, write.tiles_by_row)),
    "gemma3": (write.marked, write.stack),
    "mistral3": (write.lines, write.canvas),
    "internvl": (write.internvl, write.tiles),
    "aya_vision": (write.aya, write.tiles),
    "llama4": (write.llama4, write.tiles),
}


def build(
    model: Any,
    family: str,
    counts: list[int],
    films: list[int],
    seed: int = 0,
    adjacent: bool = False,
) -> Batch:
    """Rows with `counts` images and `films` videos each."""
    image = WRITERS[family][0]
    batch = Batch(model, random.Random(seed), torch.Generator().manual_seed(seed))
    batch.seen = seed
    for row, count in enumerate(counts):
        batch.open(count)
        if family not in IMAGES_FIRST:
            batch.chat(2, 5)
        for number in range(count):
            if number and not adjacent and family not in IMAGES_FIRST:
                batch.chat(1, 3)
            image(batch)
        for _ in range(films[row]):
            batch.chat(1, 3)
            write.film(batch)
        batch.say(BOS)
        batch.chat(4, 9)
    return batch


def finish(batch: Batch, family: str) -> dict[str, Any]:
    """Tensors of a written batch; what the model's forward does not take is left out."""
    length = max(len(row) for row in batch.rows)
    gaps = [length - len(row) for row in batch.rows]
    kinds = [[0] * gap + row for gap, row in zip(gaps, batch.kinds, strict=True)]
    inputs = {
        "input_ids": [[PAD] * gap + row for gap, row in zip(gaps, batch.rows, strict=True)],
        "attention_mask": [[0] * gap + [1] * (length - gap) for gap in gaps],
        "mm_token_type_ids": kinds,
        "token_type_ids": kinds,
    }
    tensors: dict[str, Any] = {name: torch.tensor(value) for name, value in inputs.items()}
    if batch.flat():
        tensors |= WRITERS[family][1](batch)
    if any(batch.films):
        tensors |= write.films(batch)
    accepted = inspect.signature(batch.model.forward).parameters
    return {
        name: value.to(batch.model.dtype) if value.is_floating_point() else value
        for name, value in tensors.items()
        if name in accepted
    }
