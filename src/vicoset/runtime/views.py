"""What a method reads of a block: one row of its captured attention inputs."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn

from vicoset.core import messages
from vicoset.methods.base import View
from vicoset.runtime.tap import Seen


def view_of(
    block: int,
    attention: nn.Module,
    seen: Seen,
    row: int,
    attended: Tensor,
    visual: Tensor,
    queries: Tensor,
) -> View:
    """One row of what a block's attention was called with, as methods read it.

    The block may have run on another device than the states; methods get all of it in one place.
    """
    length = len(attended)
    batch, there, here = len(seen.queries), seen.queries.device, visual.device
    mask = seen.mask
    native = mask is not None and mask.ndim == 4
    own = None
    if native:
        assert mask is not None
        own = mask[row if mask.shape[0] == batch else 0][..., :length, :].to(here)
    return View(
        block=block,
        queries=seen.queries[row].index_select(1, queries.to(there)).detach().to(here),
        keys=seen.keys[row, :, :length].detach().to(here),
        values=seen.values[row].index_select(1, visual.to(there)).detach().to(here),
        output_probe=output_prober(attention, seen.queries.shape[1]),
        scaling=seen.scaling,
        mask=own,
        key_valid=None if native else attended,
        sliding_window=None if native else seen.sliding_window,
        softcap=seen.softcap,
        sinks=None if seen.sinks is None else seen.sinks.detach().to(here),
        every_query=seen.queries[row, :, :length].detach().to(here),
    )


def output_prober(attention: nn.Module, heads: int) -> Callable[[Tensor], Tensor]:
    """P [d, r] -> O_h P [H, dh, r], by asking the output projection itself where need be.

    Weights may be on another device (offload) or packed (quantisation); then the projection is
    applied to unit vectors, which works for any linear module.
    """
    projection: Any = next(
        getattr(attention, name)
        for name in ("o_proj", "out_proj", "dense", "wo")
        if hasattr(attention, name)
    )

    def prober(probe: Tensor) -> Tensor:
        weight = getattr(projection, "weight", None)
        plain = type(projection) is nn.Linear and not hasattr(projection, "_hf_hook")
        if plain and isinstance(weight, Tensor) and not weight.is_meta:
            own = probe.to(weight.device)
            return messages.output_probe(weight.detach(), own, heads).to(probe.device)
        width = projection.in_features
        floats = (p.dtype for p in attention.parameters() if p.is_floating_point())
        dtype = next(floats, probe.dtype)
        zero = projection(torch.zeros(1, width, dtype=dtype, device=probe.device))
        columns = []
        for part in torch.split(torch.arange(width, device=probe.device), 1024):
            eye = torch.nn.functional.one_hot(part, width).to(dtype)
            columns.append((projection(eye) - zero).to(probe.device, probe.dtype) @ probe)
        return torch.cat(columns).reshape(heads, -1, probe.shape[1])

    return prober
