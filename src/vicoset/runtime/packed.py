"""Packed positions: from a boundary on, what is kept is numbered as if nothing else had been there.

Some released methods hand the shortened sequence to the decoder without its positions, which then
counts from 0. Blocks before the boundary keep the original positions; a token that is written later
has its original position there, and behind the boundary the number of positions before it.
"""

from __future__ import annotations

import functools
from collections.abc import Iterable
from typing import Any

import torch
from torch import Tensor, nn

from vicoset.errors import PlanError, UnsupportedError
from vicoset.runtime.decoding import Session
from vicoset.runtime.gather import Kept

POSITIONS = ("original", "packed")
# Text decoders whose blocks all take one pair of rotary factors, made of position ids.
PLAIN = ("llama", "mistral", "qwen2")
MULTIMODAL = ("qwen2_vl_text", "qwen2_5_vl_text", "qwen3_vl_text")


class Packing:
    """Rotary factors of a decoder's packed positions."""

    def __init__(self, decoder: Any) -> None:
        """Refuse decoders whose positions nobody has mapped.

        Args:
            decoder: the text decoder.
        """
        kind = str(decoder.config.model_type)
        if kind not in (*PLAIN, *MULTIMODAL) or not hasattr(decoder, "rotary_emb"):
            raise UnsupportedError(
                f"positions='packed' with a {kind} decoder; allowed are "
                f"{', '.join((*PLAIN, *MULTIMODAL))}. Leave out positions, which keeps the "
                "original ones."
            )
        self._rotary = decoder.rotary_emb
        self._axes = 3 if kind in MULTIMODAL else 0

    def factors(self, states: Tensor, ids: Tensor) -> Any:
        """What blocks take as position_embeddings.

        Args:
            states: [B, n, d], for their dtype and device.
            ids: [B, n].
        """
        return self._rotary(states, ids.expand(self._axes, -1, -1) if self._axes else ids)


def packing_of(decoder: Any, positions: str) -> Packing | None:
    """The packing that a run asks for; None for original positions.

    Args:
        decoder: the text decoder.
        positions: "original" or "packed".
    """
    if positions not in POSITIONS:
        raise PlanError(
            f"positions={positions!r}; allowed are {', '.join(map(repr, POSITIONS))}. The default "
            "is 'original'."
        )
    return None if positions == "original" else Packing(decoder)


def ids_of(kept: Kept) -> Tensor:
    """[B, L'] packed positions of a compact sequence; padding has 0.

    Args:
        kept: the gather that left it.
    """
    if kept.valid is None:
        places = torch.arange(kept.length, device=kept.index.device)
        return places.expand(len(kept.index), -1)
    return (kept.valid.long().cumsum(1) - 1).clamp_min(0)


def hook_blocks(
    layers: Iterable[nn.Module], session: Session, packing: Packing, written: int
) -> list[Any]:
    """Packed positions for a decoding step, in every block behind the first boundary.

    Args:
        layers: of the decoder.
        session: of the prompt.
        packing: of the decoder.
        written: tokens that the cache holds behind the prompt.
    """
    made: dict[int, Any] = {}  # per boundary: blocks between two have the same factors

    def before(kept: Kept, boundary: int, block: nn.Module, args: Any, kwargs: Any) -> Any:
        states = args[0] if args else kwargs["hidden_states"]
        steps = torch.arange(states.shape[1], device=kept.index.device)
        ids = ids_of(kept)[:, -1:] + 1 + written + steps
        if boundary not in made:
            made[boundary] = packing.factors(states, ids)
        changed = {**kwargs, "position_embeddings": made[boundary]}
        if isinstance(kwargs.get("position_ids"), Tensor):
            changed["position_ids"] = ids
        return args, changed

    handles = []
    for number, layer in enumerate(layers):
        boundary = max((s.boundary for s in session.stages if s.boundary <= number), default=None)
        if boundary is not None:
            hook = functools.partial(before, session.behind(boundary), boundary)
            handles.append(layer.register_forward_pre_hook(hook, with_kwargs=True))
    return handles
