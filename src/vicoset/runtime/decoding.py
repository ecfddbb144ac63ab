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
from vicoset.runtime.gather import Kept, hidden


@dataclass(frozen=True)
class Session:
    """A compacted prompt, found again through its cache or the running generate call.

    Attributes:
        length: prompt positions before compaction.
        stages: the compactions.
        prefix: execution mode.
        attended: [B, L] bool, False on the prompt's padding; None without padding.
    """

    length: int
    stages: tuple[Compacted, ...]
    prefix: str
    attended: Tensor | None = None

    def stage_at(self, boundary: int) -> Compacted | None:
        """The compaction before a block."""
        return next((stage for stage in self.stages if stage.boundary == boundary), None)

    @functools.cached_property
    def base(self) -> Kept | None:
        """What block 0's cache holds of the prompt, as one gather; None for all of it."""
        if self.prefix == "gathered":
            return _composed(self.stages)
        return _composed([stage for stage in self.stages if stage.boundary == 0])

    def behind(self, boundary: int) -> Kept:
        """What blocks from a boundary on ran on of the prompt, as one gather.

        Args:
            boundary: of a stage.
        """
        kept = _composed([stage for stage in self.stages if stage.boundary <= boundary])
        assert kept is not None
        return kept

    def held(self, block: int) -> Kept | None:
        """What a block's cache holds of the prompt, as one gather; None for all of it."""
        if self.prefix == "gathered":
            return self.base
        return _composed([stage for stage in self.stages if stage.boundary <= block])

    def entries(self, block: int) -> int:
        """How many positions of the prompt a block's cache holds, padding included."""
        kept = self.held(block)
        return self.length if kept is None else kept.length

    def front(self, block: int) -> Tensor:
        """[B, prompt entries of a block's cache] bool, False on padding."""
        kept = self.held(block)
        if kept is not None:
            return kept.valid if kept.valid is not None else torch.ones_like(kept.index) > 0
        if self.attended is not None:
            return self.attended
        rows = self.stages[0].kept.index
        return rows.new_ones(len(rows), self.length) > 0

    def gaps(self, block: int) -> bool:
        """Whether some prompt entries of a block's cache are padding."""
        kept = self.held(block)
        return (self.attended if kept is None else kept.valid) is not None

    def decode_arguments(self, kwargs: dict[str, Any], given: Any) -> dict[str, Any]:
        """The decoder's arguments of a step; ``gathered`` caches are shorter than the text.

        Args:
            kwargs: as the decoder got them.
            given: the mask that the top model got. Some models make the blocks' masks above the
                decoder, from this one and the length of the cache; the decoder then gets the
                compact 2-D mask instead and makes them itself.
        """
        kept = self.base
        if kept is None:
            return kwargs
        past = int(kwargs["past_key_values"].get_seq_length())
        states = kwargs.get("inputs_embeds")
        steps = (kwargs["input_ids"] if states is None else states).shape[1]
        changed = dict(kwargs)
        if kwargs.get("position_ids") is None:
            first = self.length + past - kept.length
            device = (kwargs["input_ids"] if states is None else states).device
            changed["position_ids"] = torch.arange(first, first + steps, device=device)[None]
        mask = kwargs.get("attention_mask")
        made = isinstance(mask, dict) or (isinstance(mask, Tensor) and mask.ndim != 2)
        if made and (given is None or (isinstance(given, Tensor) and given.ndim == 2)):
            mask = given
        if mask is None and kept.valid is not None:
            changed["attention_mask"] = self.unasked_mask(past + steps)
        elif isinstance(mask, Tensor) and mask.ndim == 2 and mask.shape[1] != past + steps:
            changed["attention_mask"] = self.compact_mask(mask, past + steps)
        return changed

    def static_mask(self, args: Any, kwargs: dict[str, Any]) -> Any:
        """The mask from which the library makes the one of a static cache, before the decoder.

        Args:
            args: of ``prepare_inputs_for_generation``.
            kwargs: of the same call.
        """
        mask = kwargs.get("attention_mask")
        if isinstance(mask, Tensor) and mask.ndim == 2:
            return self.compact_mask(mask)
        if mask is None and self.gaps(0):
            ids: Tensor = kwargs["input_ids"] if "input_ids" in kwargs else args[0]
            steps = kwargs.get("next_sequence_length") or ids.shape[1]
            return self.unasked_mask(int(kwargs["past_key_values"].get_seq_length()) + int(steps))
        return mask

    def unasked_mask(self, wanted: int) -> Tensor:
        """A 2-D mask over what the caches hold, for a prompt that came without one."""
        front = self.front(0)
        return torch.cat([front, front.new_ones(len(front), wanted - front.shape[1])], 1).long()

    def compact_mask(self, mask: Tensor, wanted: int | None = None) -> Tensor:
        """A 2-D mask over the whole text, on what the caches hold."""
        kept = self.base
        if kept is None:
            return mask
        front = mask.new_ones(kept.index.shape) if kept.valid is None else kept.valid.to(mask)
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
    """``dense`` caches: every block gets the mask of what its own cache holds.

    The decoder makes one mask from the length of one block's cache, which need not be the length
    of another's; so no block of a step takes its mask.
    """
    handles = []
    for number, layer in enumerate(layers):
        hook = functools.partial(_before_dense_block, session, number)
        handles.append(layer.register_forward_pre_hook(hook, with_kwargs=True))
    return handles


def _before_dense_block(
    session: Session, number: int, block: nn.Module, args: Any, kwargs: dict[str, Any]
) -> tuple[Any, dict[str, Any]]:
    states = args[0] if args else kwargs["hidden_states"]
    front = session.front(number).to(states.device)
    past = int(kwargs["past_key_values"].get_seq_length(number)) - front.shape[1]
    kernel = _kernel(block)
    mask = None
    if "flash" in kernel and session.gaps(number):
        mask = torch.cat([front, front.new_ones(len(front), past + states.shape[1])], 1)
    elif "flash" not in kernel and (states.shape[1] > 1 or session.gaps(number)):
        prompt = front[:, None].expand(-1, states.shape[1], -1)
        mask = torch.cat([prompt, _causal_tail(states, past)], 2)[:, None]
        if kernel == "eager":
            low = torch.finfo(states.dtype).min
            mask = torch.zeros_like(mask, dtype=states.dtype).masked_fill_(~mask, low)
    return args, {**kwargs, "attention_mask": mask}


def _causal_tail(states: Tensor, past: int) -> Tensor:
    """[B, q, past + q] bool: what was generated behind the prompt, causally."""
    batch, steps = states.shape[:2]
    rows = torch.arange(steps, device=states.device)[:, None] + past
    return (torch.arange(past + steps, device=states.device) <= rows).expand(batch, -1, -1)


def _kernel(block: nn.Module) -> str:
    """The attention kernel of a block."""
    configs = (getattr(module, "config", None) for module in block.modules())
    return next(str(c._attn_implementation) for c in configs if c is not None)


def prompt_bytes(cache: Any, length: int, ahead: int, done: Sequence[Compacted]) -> tuple[int, int]:
    """Bytes that the prompt's keys and values take, and would take uncompressed.

    Args:
        cache: behind the prompt's forward.
        length: positions of that forward.
        ahead: how many of them only propose what follows.
        done: the compactions.
    """
    if cache is None:
        return 0, 0
    now = cache_bytes(cache)
    full = 0
    for layer in cache.layers:
        keys = getattr(layer, "keys", None)
        if isinstance(keys, Tensor) and keys.ndim == 4 and keys.shape[2]:
            per_position = 2 * keys.numel() * keys.element_size() // keys.shape[2]
            static = type(layer).__name__ == "StaticLayer"
            full += per_position * (keys.shape[2] if static else length - ahead)
            now -= 0 if static else per_position * ahead
    return now, full if done else now
