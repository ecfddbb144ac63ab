"""Following a compacted prompt while the model decodes."""

from __future__ import annotations

import functools
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from vicoset.errors import UnsupportedError
from vicoset.runtime.caches import cache_bytes
from vicoset.runtime.compact import Compacted
from vicoset.runtime.gather import Kept, gather_columns, hidden


@dataclass(frozen=True)
class Session:
    """A compacted prompt, found again through its cache or the running generate call.

    Attributes:
        length: prompt positions before compaction.
        stages: the compactions.
        prefix: execution mode.
    """

    length: int
    stages: tuple[Compacted, ...]
    prefix: str

    def stage_at(self, boundary: int) -> Compacted | None:
        """The compaction before a block."""
        return next((stage for stage in self.stages if stage.boundary == boundary), None)

    @property
    def base(self) -> Kept | None:
        """What block 0's cache holds of the prompt, as one gather; None for all of it."""
        if self.prefix == "gathered":
            return _composed(self.stages)
        return _composed([stage for stage in self.stages if stage.boundary == 0])

    def beyond_base(self, block: int) -> Kept | None:
        """What a block's cache holds of what block 0's cache holds; None for all of it."""
        if self.prefix == "gathered":
            return None
        return _composed([stage for stage in self.stages if 0 < stage.boundary <= block])

    def decode_arguments(self, kwargs: dict[str, Any]) -> dict[str, Any]:
        """The decoder's arguments of a step; ``gathered`` caches are shorter than the text."""
        kept = self.base
        if kept is None:
            return kwargs
        past = int(kwargs["past_key_values"].get_seq_length())
        states = kwargs.get("inputs_embeds")
        steps = (kwargs["input_ids"] if states is None else states).shape[1]
        changed = dict(kwargs)
        if kwargs.get("position_ids") is None:
            first = self.length + past - kept.length
            device = kept.index.device
            changed["position_ids"] = torch.arange(first, first + steps, device=device)[None]
        mask = kwargs.get("attention_mask")
        if mask is None and kept.valid is not None:
            behind = kept.valid.new_ones(len(kept.valid), past - kept.length + steps)
            changed["attention_mask"] = torch.cat([kept.valid, behind], 1).long()
        elif isinstance(mask, Tensor) and mask.ndim == 2 and mask.shape[1] != past + steps:
            changed["attention_mask"] = self.compact_mask(mask, past + steps)
        return changed

    def compact_mask(self, mask: Tensor, wanted: int | None = None) -> Tensor:
        """A 2-D mask over the whole text, on what the caches hold."""
        kept = self.base
        if kept is None:
            return mask
        front = mask.new_ones(kept.index.shape) if kept.valid is None else kept.valid.to(mask.dtype)
        compact = torch.cat([front, mask[:, self.length :]], 1)
        if wanted is not None and compact.shape[1] != wanted:
            raise UnsupportedError(
                f"the attention mask covers {mask.shape[1]} positions, which is {compact.shape[1]} "
                f"on the compact cache, but {wanted} are there; pass the mask of the whole text "
                "(prompt and everything behind it) with only the new input_ids."
            )
        return compact


def _composed(stages: Sequence[Compacted]) -> Kept | None:
    """Several gathers as one; None for none."""
    total: Kept | None = None
    for stage in stages:
        total = stage.kept if total is None else stage.kept.after(total)
    return total


def session_of(cache: Any) -> Session | None:
    """The session of a cache that a compacted prompt filled; None once it was emptied."""
    session = getattr(cache, "_vicoset_session", None)
    if session is None or not int(cache.get_seq_length()):
        return None
    found: Session = session
    return found


def attended_positions(mask: Any, shape: Sequence[int], device: torch.device) -> Tensor:
    """[B, L] bool, False on padding, from whatever mask the decoder got."""
    batch, length = shape
    if isinstance(mask, dict):
        mask = mask.get("full_attention", next(iter(mask.values())))
    if mask is None:
        return torch.ones(batch, length, dtype=torch.bool, device=device)
    if mask.ndim == 2:
        attended: Tensor = mask[:, :length].to(device=device, dtype=torch.bool)
        return attended
    diagonal = mask[:, 0, :length, :length].diagonal(dim1=-2, dim2=-1)
    seen: Tensor = diagonal if diagonal.dtype == torch.bool else diagonal > hidden(diagonal) / 2
    return seen.expand(batch, -1).to(device)


def hook_dense_blocks(layers: Iterable[nn.Module], session: Session) -> list[Any]:
    """``dense`` caches: blocks behind a boundary hold fewer prompt positions than those before."""
    length = session.length if session.base is None else session.base.length
    handles = []
    for number, layer in enumerate(layers):
        kept = session.beyond_base(number)
        if kept is not None:
            hook = functools.partial(_before_dense_block, kept, length)
            handles.append(layer.register_forward_pre_hook(hook, with_kwargs=True))
    return handles


def _before_dense_block(
    kept: Kept, length: int, block: nn.Module, args: Any, kwargs: dict[str, Any]
) -> tuple[Any, dict[str, Any]] | None:
    mask = kwargs.get("attention_mask")
    if mask is None and kept.valid is None:
        return None
    if mask is None:
        states = args[0] if args else kwargs["hidden_states"]
        past = int(kwargs["past_key_values"].get_seq_length()) - length
        mask = _causal_tail(states, length, past)
    if mask.ndim != 4:
        raise UnsupportedError(
            "prefix='dense' decodes with 4-D masks or none (sdpa, eager); this kernel got a "
            f"{mask.ndim}-D one. Use prefix='gathered', or load with attn_implementation='sdpa'."
        )
    return args, {**kwargs, "attention_mask": gather_columns(mask, kept, length)}


def _causal_tail(states: Tensor, length: int, past: int) -> Tensor:
    """[B, 1, q, length + past + q] bool: the prompt, and what was generated, causally."""
    batch, steps = states.shape[:2]
    rows = torch.arange(steps, device=states.device)[:, None] + length + past
    columns = torch.arange(length + past + steps, device=states.device)
    return (columns <= rows).expand(batch, 1, -1, -1)


def prompt_bytes(cache: Any, length: int, done: Sequence[Compacted]) -> tuple[int, int]:
    """Bytes that the prompt's keys and values take, and would take uncompressed."""
    if cache is None:
        return 0, 0
    now = cache_bytes(cache)
    full = 0
    for layer in cache.layers:
        keys = getattr(layer, "keys", None)
        if isinstance(keys, Tensor) and keys.ndim == 4 and keys.shape[2]:
            per_position = 2 * keys.numel() * keys.element_size() // keys.shape[2]
            static = type(layer).__name__ == "StaticLayer"
            full += per_position * (keys.shape[2] if static else length)
    return now, full if done else now
