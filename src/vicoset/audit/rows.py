"""Query rows of a block's native attention in float64, from what the block was called with."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import torch
from torch import Tensor

from vicoset.core import messages
from vicoset.runtime.tap import Seen


class HeadRows(NamedTuple):
    """One head's scores for some queries, and the values behind its keys.

    Attributes:
        scores: s [T, L] as the softmax gets them, -inf where a query does not see the key.
        sink: the extra logit in the denominator, [T, 1]; [T, 0] for a block without sinks.
        values: v [L, dh].
    """

    scores: Tensor
    sink: Tensor
    values: Tensor

    @property
    def attention(self) -> Tensor:
        """a [T, L]: the native softmax over all keys that a query sees; zeros if none."""
        full = torch.cat([self.scores, self.sink], 1)
        blind = full.amax(1, keepdim=True) == -torch.inf
        weights = full.masked_fill(blind, 0.0).softmax(1).masked_fill(blind, 0.0)
        return weights[:, : self.scores.shape[1]]


def head_rows(seen: Seen, rows: Tensor) -> Iterator[HeadRows]:
    """Every query head, one after the other.

    Args:
        seen: a call with one row and no padding.
        rows: [T] sequence indices of the queries.
    """
    queries, keys, values = (x[0].detach() for x in (seen.queries, seen.keys, seen.values))
    length = queries.shape[1]
    rows = rows.to(queries.device)
    group = messages.head_group(len(queries), len(keys))
    visible, bias = _visibility(seen, rows, length)
    for head in range(len(queries)):
        kv = head // group
        scores = queries[head].index_select(0, rows).double() @ keys[kv, :length].double().t()
        scores = scores * seen.scaling
        if seen.softcap is not None:
            scores = seen.softcap * torch.tanh(scores / seen.softcap)
        own = head if len(visible) > 1 else 0
        if bias is not None:
            scores = scores + bias[own].double()
        scores = scores.masked_fill(~visible[own], -torch.inf)
        sink = scores.new_zeros(len(rows), 0)
        if seen.sinks is not None:
            sink = seen.sinks.detach()[head].double().expand(len(rows), 1)
        yield HeadRows(scores, sink, values[kv, :length].double())


def _visibility(seen: Seen, rows: Tensor, length: int) -> tuple[Tensor, Tensor | None]:
    """[1 or H, T, L] bool, and what a native mask adds where it lets a query see."""
    if seen.mask is not None and seen.mask.ndim == 4:
        return messages.mask_rows(seen.mask[0], rows, length)
    return messages.visible_keys(rows, length, None, seen.sliding_window)[None], None
