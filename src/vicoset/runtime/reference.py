"""The runtime's specification: a plain loop over the decoder's blocks, without hooks.

It takes the dense embeddings, runs the blocks before the boundary, compacts with a given support
and given carriers, runs the others, and decodes greedily. The engine must produce the same
logits bit for bit. One row, one stage; Qwen2.5-VL and LLaVA-like decoders.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor


@dataclass(frozen=True)
class Intervention:
    """What to do before block ``boundary``: keep these positions, put these states there.

    Attributes:
        boundary: p.
        kept: [L'] prompt positions that stay, ascending.
        slots: [K] positions of carriers among the kept ones.
        carriers: [K, d] their states; None to leave them.
    """

    boundary: int
    kept: Tensor
    slots: Tensor
    carriers: Tensor | None


def prefill(
    decoder: Any,
    head: Callable[[Tensor], Tensor],
    embeddings: Tensor,
    positions: Tensor,
    intervention: Intervention,
    cache: Any = None,
) -> Tensor:
    """Logits [1, L', vocabulary] of one prompt; a cache, when given, ends up compact.

    Args:
        decoder: the text decoder.
        head: states to logits.
        embeddings: [1, L, d] with visual features in place.
        positions: rotary positions of the prompt, [1, L] or [3, 1, L].
        intervention: the compaction.
        cache: an empty dynamic cache, or None.
    """
    states, places = embeddings, positions
    mask = _causal(decoder, states)
    for number, block in enumerate(decoder.layers):
        if number == intervention.boundary:
            states = _compact(states, intervention)
            places = positions[..., intervention.kept]
            mask = _causal(decoder, states)
            for layer in cache.layers[:number] if cache is not None else []:
                layer.keys = layer.keys[:, :, intervention.kept]
                layer.values = layer.values[:, :, intervention.kept]
        states = _block(decoder, block, states, places, mask, cache)
    return head(decoder.norm(states))


def replay(
    decoder: Any,
    head: Callable[[Tensor], Tensor],
    embeddings: Tensor,
    positions: Tensor,
    intervention: Intervention,
) -> Tensor:
    """Logits without a cache, for a prompt followed by generated tokens.

    Args:
        decoder: the text decoder.
        head: states to logits.
        embeddings: [1, L + t, d].
        positions: [1, L + t] or [3, 1, L + t].
        intervention: as at the prompt; the generated positions stay behind it.
    """
    grown = torch.arange(
        int(intervention.kept[-1]) + 1, embeddings.shape[1], device=embeddings.device
    )
    kept = torch.cat([intervention.kept, grown])
    longer = Intervention(intervention.boundary, kept, intervention.slots, intervention.carriers)
    return prefill(decoder, head, embeddings, positions, longer)


def step(
    decoder: Any,
    head: Callable[[Tensor], Tensor],
    embedding: Tensor,
    positions: Tensor,
    cache: Any,
) -> Tensor:
    """Logits [1, 1, vocabulary] of one more token on a compact cache.

    Args:
        decoder: the text decoder.
        head: states to logits.
        embedding: [1, 1, d].
        positions: its original logical position, [1, 1] or [3, 1, 1].
        cache: as left by :func:`prefill`.
    """
    states, mask = embedding, None
    if decoder.config._attn_implementation == "eager":
        mask = states.new_zeros(1, 1, 1, cache.get_seq_length() + 1)
    for block in decoder.layers:
        states = _block(decoder, block, states, positions, mask, cache)
    return head(decoder.norm(states))


def _compact(states: Tensor, intervention: Intervention) -> Tensor:
    compact = states[:, intervention.kept].clone()
    if intervention.carriers is not None:
        compact[0, intervention.slots] = intervention.carriers.to(compact.dtype)
    return compact


def _causal(decoder: Any, states: Tensor) -> Any:
    """The mask that the decoder itself would make for one unpadded row."""
    from vicoset.runtime.kwargs import causal_mask

    everyone = torch.ones(states.shape[:2], dtype=torch.bool, device=states.device)
    return causal_mask(decoder.config, states, everyone)


def _block(
    decoder: Any, block: Any, states: Tensor, places: Tensor, mask: Any, cache: Any
) -> Tensor:
    """One block with the rotary tables that the decoder itself would make."""
    out = block(
        states,
        attention_mask=mask,
        position_embeddings=decoder.rotary_emb(states, places),
        past_key_values=cache,
        use_cache=cache is not None,
    )
    found: Tensor = out[0] if isinstance(out, tuple) else out
    return found
