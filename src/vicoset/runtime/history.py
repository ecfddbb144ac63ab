"""Greedy answers with their logits, and the logits along a history that is given."""

from __future__ import annotations

import copy
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor

from vicoset.errors import ShapeError


class Answer(NamedTuple):
    """What a model wrote, or was made to write, and what it thought of each place.

    Attributes:
        tokens: per row the ids, the one that ends an answer included.
        logits: [T, B, V] float32, before each of them; rows that ended early go on with padding.
        chosen: per row what the model's own greedy decoding takes at each place, in front of the
            same history.
    """

    tokens: list[list[int]]
    logits: Tensor
    chosen: list[list[int]]

    def of(self, row: int) -> Tensor:
        """[T', V], the logits of a row's own places.

        Args:
            row: of the batch.
        """
        return self.logits[: len(self.tokens[row]), row]


class _Forcing:
    """A logits processor, the last one: sees what greedy decoding takes and may overrule it."""

    def __init__(self, start: int, history: Sequence[Sequence[int]] | None) -> None:
        self.start, self.history = start, history
        self.chosen: list[Tensor] = []

    def __call__(self, ids: Tensor, scores: Tensor) -> Tensor:
        self.chosen.append(scores.argmax(-1))
        if self.history is None:
            return scores
        step = ids.shape[1] - self.start
        wanted = [row[min(step, len(row) - 1)] for row in self.history]
        column = torch.tensor(wanted, device=scores.device)[:, None]
        return torch.full_like(scores, -torch.inf).scatter(1, column, 0.0)


def answer(model: Any, inputs: Mapping[str, Any], limit: int) -> Answer:
    """The model's own greedy answers, through its own generate.

    Args:
        model: in or outside a context.
        inputs: of the prompt, on the model's device.
        limit: most tokens of an answer.
    """
    return _run(model, inputs, limit, None)


def along(model: Any, inputs: Mapping[str, Any], history: Sequence[Sequence[int]]) -> Answer:
    """The logits before each token of given answers, through the model's own generate.

    Args:
        model: in or outside a context.
        inputs: of the prompt, on the model's device.
        history: per row the ids of its answer, at least one each.
    """
    rows = len(inputs["input_ids"])
    if len(history) != rows or not all(history):
        raise ShapeError(
            f"a history of {[len(row) for row in history]} tokens for {rows} rows; allowed is one "
            "of at least one token for every row. Give the end-of-text id for an empty answer."
        )
    ends = ending_ids(model)
    early = [row for row, own in enumerate(history) if ends.intersection(own[:-1])]
    if early:
        raise ShapeError(
            f"the histories of rows {early} go on behind an id that ends an answer; allowed are "
            f"{sorted(ends)} in the last place only. Cut them off behind it."
        )
    longest = max(len(row) for row in history)
    found = _run(model, inputs, longest, history)
    return found._replace(
        tokens=[list(row) for row in history],
        chosen=[row[: len(own)] for row, own in zip(found.chosen, history, strict=True)],
    )


@torch.no_grad()
def _run(
    model: Any, inputs: Mapping[str, Any], limit: int, history: Sequence[Sequence[int]] | None
) -> Answer:
    length = inputs["input_ids"].shape[1]
    forcing = _Forcing(length, history)
    config = greedy(model, limit)
    config.update(return_dict_in_generate=True, output_logits=True)
    out = model.generate(**inputs, generation_config=config, logits_processor=[forcing])
    written = out.sequences[:, length:].cpu()
    ends = ending_ids(model)
    tokens = [_until(row.tolist(), ends) for row in written]
    chosen = torch.stack(forcing.chosen, 1).cpu().tolist()
    own = [row[: len(mine)] for row, mine in zip(chosen, tokens, strict=True)]
    return Answer(tokens, torch.stack(out.logits), own if history is None else chosen)


def greedy(model: Any, limit: int) -> Any:
    """The model's own generation configuration (penalties included), greedy and limited.

    Args:
        model: with its ``generation_config``.
        limit: most new tokens.
    """
    config = copy.deepcopy(model.generation_config)
    config.update(
        max_new_tokens=limit,
        max_length=None,
        do_sample=False,
        num_beams=1,
        temperature=None,
        top_p=None,
        top_k=None,
    )
    if config.pad_token_id is None:
        ends = sorted(ending_ids(model))
        config.pad_token_id = ends[0] if ends else 0
    return config


def ending_ids(model: Any) -> set[int]:
    """The ids that end an answer."""
    ends = model.generation_config.eos_token_id
    return set() if ends is None else set(ends) if isinstance(ends, list) else {int(ends)}


def _until(row: list[int], ends: set[int]) -> list[int]:
    """Up to and with the first id that ends the answer."""
    for place, token in enumerate(row):
        if token in ends:
            return row[: place + 1]
    return row
