"""The one stable gather: every compaction of a sequence goes through here."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor


@dataclass(frozen=True)
class Kept:
    """Which positions of a batch of sequences stay, in order, left-padded to one length.

    Attributes:
        index: [B, L'] positions in the sequence before; padding slots point at the first positions,
            which are the row's own padding as far as it has some.
        valid: [B, L'] bool, False on padding slots; None when there are none.
    """

    index: Tensor
    valid: Tensor | None

    @property
    def length(self) -> int:
        """L'."""
        return self.index.shape[1]

    def after(self, first: Kept) -> Kept:
        """This gather behind ``first``, as one gather of the sequence before ``first``."""
        return Kept(first.index.to(self.index.device).gather(1, self.index), self.valid)


def kept_positions(stays: list[Tensor], counts: list[int]) -> Kept:
    """The kept positions of every row.

    Args:
        stays: per row [L] bool, True where the position stays.
        counts: per row the number of True entries, known without a look at the device.
    """
    longest = max(counts)
    rows, valid = [], []
    for stay, count in zip(stays, counts, strict=True):
        # Stable: the positions that stay come first, in source order.
        front = (~stay).to(torch.uint8).sort(stable=True).indices[:count]
        pad = longest - count
        rows.append(torch.cat([torch.arange(pad, device=stay.device), front]))
        valid.append(torch.arange(longest, device=stay.device) >= pad)
    every = None if min(counts) == longest else torch.stack(valid)
    return Kept(torch.stack(rows), every)


def gather_states(states: Tensor, kept: Kept) -> Tensor:
    """[B, L, d] -> [B, L', d]."""
    index = kept.index.to(states.device)  # blocks may be spread over devices
    return states.gather(1, index.unsqueeze(-1).expand(-1, -1, states.shape[-1]))


def gather_axis(tensor: Tensor, kept: Kept, axis: int, batch_axis: int) -> Tensor:
    """Gather any tensor along its sequence axis; a batch axis of size 1 is expanded first."""
    axis, batch_axis = axis % tensor.ndim, batch_axis % tensor.ndim
    batch = len(kept.index)
    if tensor.shape[batch_axis] != batch:
        sizes = list(tensor.shape)
        sizes[batch_axis] = batch
        tensor = tensor.expand(sizes)
    view = [1] * tensor.ndim
    view[batch_axis], view[axis] = batch, kept.length
    sizes = list(tensor.shape)
    sizes[axis] = kept.length
    return tensor.gather(axis, kept.index.to(tensor.device).view(view).expand(sizes))


def gather_mask(mask: Tensor, kept: Kept, length: int, static: bool = False) -> Tensor:
    """A native 4-D mask on the kept rows and columns, with padding slots hidden.

    Keeps what the mask says at original distances: sliding windows, bidirectional image blocks,
    prefixes. Columns behind the prompt (a static cache's free slots) stay behind it.

    Args:
        mask: [1 or B, 1 or H, L, >= L] boolean (True = visible) or additive.
        kept: the gather.
        length: L.
        static: the cache hands over all its slots, also where the prompt had filled every one.
    """
    columns = gather_axis(gather_axis(mask[..., :length], kept, 2, 0), kept, 3, 0)
    columns = hide(columns, kept.valid)
    if not static and mask.shape[-1] <= length:
        return columns
    return widened(columns, mask.shape[-1])


def widened(mask: Tensor, slots: int) -> Tensor:
    """A mask [B, h, q, L'] over all slots of a cache, the free ones behind L' hidden."""
    free = (*mask.shape[:3], max(0, slots - mask.shape[-1]))
    return torch.cat([mask, mask.new_full(free, hidden(mask))], -1)


def hide(mask: Tensor, valid: Tensor | None) -> Tensor:
    """A mask [B, h, q, L'] that sees no padding slot."""
    if valid is None:
        return mask
    return mask.masked_fill(~valid[:, None, None].to(mask.device), hidden(mask))


def hidden(mask: Tensor) -> bool | float:
    """What an invisible entry looks like."""
    return False if mask.dtype == torch.bool else torch.finfo(mask.dtype).min
