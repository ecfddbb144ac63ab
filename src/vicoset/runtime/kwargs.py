"""What a decoder block is called with, on a compacted sequence."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from vicoset.errors import UnsupportedError
from vicoset.runtime.gather import Kept, gather_axis, gather_mask, widened
from vicoset.runtime.packed import Packing, ids_of

# Arguments that belong to the model's head or its inputs and only pass through the blocks.
PASSED_ON = {"past_key_values", "past_key_value", "logits_to_keep", "image_sizes", "labels"}


class Rewriter:
    """Block arguments for one compaction, each tensor gathered once and remembered."""

    def __init__(
        self,
        kept: Kept,
        length: int,
        config: Any,
        flash: bool,
        slots: int = 0,
        packing: Packing | None = None,
    ) -> None:
        self.kept, self.length, self.config, self.flash = kept, length, config, flash
        self.slots = slots  # of a static cache, whose blocks see the free ones as well
        self.packing = packing
        # The source is kept beside the result: an id is only unique while its object lives.
        self.memory: dict[int, tuple[Any, Any]] = {}

    def __call__(self, arguments: dict[str, Any], states: Tensor) -> dict[str, Any]:
        """The arguments of a block whose input ``states`` [B, L', d] is compact."""
        changed = dict(arguments)
        for name, value in arguments.items():
            if name == "attention_mask":
                changed[name] = self._once(value, lambda v: self._mask(v, states))
            elif name.startswith("position_embeddings"):
                changed[name] = self._once(value, lambda v: self._embeddings(v, states))
            elif name == "position_ids":
                # Gapped positions look like packed sequences to flash kernels.
                changed[name] = None if self.flash else self._once(value, self._positions)
            elif name == "cache_position":
                changed[name] = value if value is None else value[: self.kept.length]
            elif name not in PASSED_ON and self._spans(value):
                raise UnsupportedError(
                    f"a block got {name} of shape {list(value.shape)}, which spans the "
                    f"{self.length} prompt positions and which this runtime does not know; "
                    "compress at another boundary or report the model family."
                )
        if arguments.get("attention_mask") is None and "attention_mask" in arguments:
            changed["attention_mask"] = self._padding_mask(states)
        return changed

    def _once(self, value: Any, gather: Any) -> Any:
        if value is None:
            return None
        if id(value) not in self.memory:
            self.memory[id(value)] = (value, gather(value))
        return self.memory[id(value)][1]

    def _embeddings(self, value: Any, states: Tensor) -> Any:
        if self.packing is not None:
            return self.packing.factors(states, ids_of(self.kept))
        if isinstance(value, (tuple, list)):
            return type(value)(self._embeddings(part, states) for part in value)
        found = gather_axis(value, self.kept, -2, -3)
        if value.stride(-1) > value.stride(-2):
            # Products of complex numbers round by the layout in memory; Llama4 transposes here.
            found = found.mT.contiguous().mT
        return found

    def _positions(self, value: Tensor) -> Tensor:
        if self.packing is not None:
            return ids_of(self.kept)
        if value.ndim == 1:
            value = value[None]
        return gather_axis(value, self.kept, -1, -2)

    def _mask(self, mask: Any, states: Tensor) -> Tensor | None:
        if not isinstance(mask, Tensor):
            raise UnsupportedError(
                f"the blocks got a {type(mask).__name__} as attention mask; allowed are tensors. "
                "Load the model with attn_implementation='sdpa'."
            )
        if mask.ndim == 4:
            return gather_mask(mask, self.kept, self.length, self.slots > 0)
        gathered = gather_axis(mask[:, : self.length], self.kept, 1, 0)
        if self.kept.valid is not None:
            gathered = gathered.masked_fill(~self.kept.valid.to(gathered.device), 0)
        return None if bool(gathered.all()) else gathered

    def _padding_mask(self, states: Tensor) -> Any:
        """The native mask of rows that became unequally long; None while they are equal."""
        valid = self.kept.valid
        if valid is None:
            return None
        if id(valid) not in self.memory:
            mask = causal_mask(self.config, states, valid)
            if self.slots and isinstance(mask, Tensor) and mask.ndim == 4:
                mask = widened(mask, self.slots)
            self.memory[id(valid)] = (valid, mask)
        return self.memory[id(valid)][1]

    def _spans(self, value: Any) -> bool:
        return isinstance(value, Tensor) and value.ndim > 0 and self.length in value.shape[:3]


def causal_mask(config: Any, states: Tensor, valid: Tensor) -> Any:
    """The library's own causal mask for left-padded states, in the kernel's form."""
    import inspect

    from transformers.masking_utils import create_causal_mask

    known = inspect.signature(create_causal_mask).parameters
    wanted = {
        "config": config,
        "inputs_embeds": states,
        "input_embeds": states,  # its name before 5.x
        "attention_mask": valid.to(states.device).long(),
        "past_key_values": None,
        "position_ids": None,  # gapped ones would be read as packed sequences
        "cache_position": torch.arange(states.shape[1], device=states.device),
    }
    return create_causal_mask(**{name: wanted[name] for name in wanted if name in known})
