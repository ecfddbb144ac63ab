"""What each visual token receives from many rows of a block, in pieces that fit a CPU's cache."""

from __future__ import annotations

import torch
from torch import Tensor

from vicoset.core import checks
from vicoset.methods.scene import View

LATTICE = 1 << 20  # steps of a mantissa, one of which is more than rounding adds up to
PIECE = 1 << 18  # scores of a piece and a key head, 1 MiB in float32


def is_plain(view: View, rows: Tensor) -> bool:
    """Whether a view is causal and nothing else, on the CPU, and the rows ascend.

    Args:
        view: with every query.
        rows: [T].
    """
    if view.every_query is None or rows.device.type != "cpu" or not len(rows):
        return False
    special = (view.mask, view.sliding_window, view.softcap, view.sinks)
    if any(one is not None for one in special) or bool((rows[1:] <= rows[:-1]).any()):
        return False
    valid = view.key_valid  # padding in front, and none behind
    return valid is None or bool(valid[int(valid.to(torch.uint8).argmax()) :].all())


@checks.full_precision
def plain_sums(view: View, rows: Tensor, visual: Tensor, heads: str) -> Tensor:
    """[N] as ``column_sums`` of a plain view: keys behind a piece's last row are not looked at.

    Args:
        view: see :func:`is_plain`.
        rows: [T] ascending sequence indices.
        visual: [N] sequence indices.
        heads: "mean" or "max".
    """
    assert view.every_query is not None
    first = 0 if view.key_valid is None else int(view.key_valid.to(torch.uint8).argmax())
    queries, keys = checks.lift(view.every_query, "queries"), checks.lift(view.keys, "keys")
    group = len(queries) // len(keys)
    total = keys.new_zeros(keys.shape[1])
    step = max(1, PIECE // (group * keys.shape[1]))
    for part in torch.split(rows, step):
        start, end = int(part[0]), int(part[-1]) + 1
        if start < first:
            continue  # padding reads nothing
        unseen = torch.arange(start, end) > part[:, None]
        seen = keys.new_zeros(len(part), end - first)
        for head, columns in enumerate(keys[:, first:end]):
            mine = queries[head * group : (head + 1) * group].index_select(1, part)
            scores = (mine.flatten(0, 1).mul_(view.scaling) @ columns.mT).unflatten(0, (group, -1))
            scores[..., start - first :].masked_fill_(unseen, -torch.inf)
            shares = scores.softmax(-1)
            seen = seen + shares.sum(0) if heads == "mean" else seen.maximum(shares.amax(0))
        total[first:end] += seen.sum(0)
    received = total.index_select(0, visual)
    received = received / len(queries) if heads == "mean" else received
    # Kernels round columns by where they stand; equal tokens have to tie all the same.
    share, power = torch.frexp(received)
    return torch.ldexp(share.mul(LATTICE).round_().div_(LATTICE), power)
