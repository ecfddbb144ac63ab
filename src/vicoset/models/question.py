"""Which text tokens of a prompt are the user's instruction.

Chat templates end a turn by a token (``<|im_end|>``) or by plain words (``ASSISTANT:``). The former
is known from the model's own end-of-sequence ids, the latter only with a tokenizer.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Any

import torch
from torch import Tensor

_AFTER = ("ASSISTANT:", "Assistant:", "[/INST]", "<|im_end|>", "<|eot_id|>", "<end_of_turn>")
_BEFORE = ("USER:", "User:", "[INST]", "user\n")


def end_ids(model: Any, tokenizer: Any = None) -> frozenset[int]:
    """Ids that end a turn: the model's and the tokenizer's end-of-sequence tokens."""
    found: set[int] = set()
    for owner in (getattr(model, "generation_config", None), tokenizer):
        given = getattr(owner, "eos_token_id", None)
        found |= {given} if isinstance(given, int) else set(given or ())
    return frozenset(found)


def question_mask(
    ids: Tensor, positions: Tensor, visual: Tensor, ends: Collection[int], tokenizer: Any = None
) -> Tensor:
    """[M] bool: the instruction's tokens.

    What stands between the last image and the end of its turn; where that is nothing, what stands
    before the first image in its turn; where that is nothing too, all text.

    Args:
        ids: [M] of the text tokens.
        positions: [M] their sequence indices.
        visual: [N] sequence indices of the visual tokens.
        ends: ids that end a turn.
        tokenizer: tells role markers that are plain words.
    """
    ending = torch.isin(ids, torch.tensor(sorted(ends), dtype=ids.dtype, device=ids.device))
    for asked, first in (
        (positions > visual.max(), True),
        (positions < visual.min(), False),
    ):
        rows = asked.nonzero().flatten()
        stops = (asked & ending).nonzero().flatten()
        if len(stops):
            rows = rows[rows < stops[0]] if first else rows[rows > stops[-1]]
        if tokenizer is not None and len(rows):
            rows = _between_markers(ids, rows, tokenizer, first)
        if len(rows):
            return torch.zeros_like(asked).index_fill(0, rows, True)
    return ~ending if bool((~ending).any()) else torch.ones_like(ending)


def _between_markers(ids: Tensor, rows: Tensor, tokenizer: Any, cut_end: bool) -> Tensor:
    """The rows before the assistant's marker, or behind the user's."""
    pieces = [tokenizer.decode([number]) for number in ids[rows].tolist()]
    text = "".join(pieces)
    starts = [sum(map(len, pieces[:n])) for n in range(len(pieces) + 1)]
    if cut_end:
        found = [place for marker in _AFTER if (place := text.rfind(marker)) >= 0]
        if not found:
            return rows
        return rows[: sum(1 for end in starts[1:] if end <= min(found))]
    found = [place + len(m) for m in _BEFORE if (place := text.rfind(m)) >= 0]
    if not found:
        return rows
    return rows[sum(1 for start in starts[:-1] if start < max(found)) :]


def decoded(ids: Tensor, tokenizer: Any) -> str:
    """The instruction as a string, without special tokens and outer blanks."""
    return str(tokenizer.decode(ids.tolist(), skip_special_tokens=True)).strip()


def embedded(words: Sequence[str], *, tokenizer: Any, table: Any) -> Tensor:
    """[M, d] the embeddings of the tokens of some words, each word tokenised on its own.

    Args:
        words: without blanks.
        tokenizer: of the model.
        table: the model's embedding of token ids.
    """
    ids: list[int] = []
    if words:
        written = tokenizer(list(words), is_split_into_words=True, add_special_tokens=False)
        ids = list(written["input_ids"])
    found: Tensor = table(torch.tensor(ids, dtype=torch.long, device=table.weight.device))
    return found.detach()
