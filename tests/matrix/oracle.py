"""Deletion without compaction: the dense model with the dropped columns hidden.

It shares no code with the runtime. Every block gets an explicit mask over the whole text, so no
state moves and no cache shrinks.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor

from tests.matrix.scenes import IMAGE


@contextmanager
def hidden_columns(model: Any, attended: Tensor, dropped: Tensor, boundary: int) -> Iterator[None]:
    """Hide the dropped prompt positions from block `boundary` on, and from all while decoding.

    Args:
        model: with its decoder at ``model.model.language_model``.
        attended: ``[B, L]`` bool, False on padding.
        dropped: ``[B, L]`` bool.
        boundary: p.
    """

    def before(number: int, args: Any, kwargs: dict[str, Any]) -> tuple[Any, dict[str, Any]]:
        states = args[0] if args else kwargs["hidden_states"]
        steps, length = states.shape[1], attended.shape[1]
        cache = kwargs.get("past_key_values")
        past = 0 if steps >= length else int(cache.get_seq_length(number))
        hide = number >= boundary or past > 0
        seen = attended & ~dropped if hide else attended
        behind = seen.new_ones(len(seen), past + steps - length)
        seen = torch.cat([seen, behind], 1)
        rows = past + torch.arange(steps)[:, None]
        columns = torch.arange(past + steps)
        mask = (columns <= rows) & seen[:, None, None] | (columns == rows)
        if model.config._attn_implementation == "eager":
            shut = torch.finfo(states.dtype).min
            mask = torch.zeros_like(mask, dtype=states.dtype).masked_fill(~mask, shut)
        return args, {**kwargs, "attention_mask": mask}

    def hook(number: int) -> Any:
        return lambda block, args, kwargs: before(number, args, kwargs)

    blocks = model.model.language_model.layers
    handles = [
        block.register_forward_pre_hook(hook(number), with_kwargs=True)
        for number, block in enumerate(blocks)
    ]
    try:
        yield
    finally:
        for handle in handles:
            handle.remove()


def dropped_positions(inputs: dict[str, Any], records: Any) -> Tensor:
    """[B, L] bool, the visual positions that a run's records leave out.

    Args:
        inputs: of the batch.
        records: one a row.
    """
    dropped = torch.zeros_like(inputs["input_ids"], dtype=torch.bool)
    for row, record in enumerate(records):
        if record.stages:
            visual = (inputs["input_ids"][row] == IMAGE).nonzero().flatten()
            gone = torch.ones(len(visual), dtype=torch.bool)
            gone[record.stages[0].indices] = False
            dropped[row, visual[gone]] = True
    return dropped
