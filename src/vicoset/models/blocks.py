"""What the blocks of a decoder can see, read from its configuration."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

_FULL = {"full_attention", "attention", "full", "global"}
_SLIDING = {"sliding_attention", "sliding", "local"}
_CHUNKED = {"chunked_attention", "chunked"}


def text_config(config: Any) -> Any:
    """The text decoder's part of a configuration."""
    found = getattr(config, "text_config", None)
    if found is None and callable(getattr(config, "get_text_config", None)):
        found = config.get_text_config()
    return config if found is None else found


def kinds(config: Any) -> list[str]:
    """Per block its kind, in the words of the configuration ("full_attention", ...)."""
    text = text_config(config)
    depth = int(text.num_hidden_layers)
    listed = getattr(text, "layer_types", None) or getattr(text, "layers_block_type", None)
    if listed:
        return [str(kind) for kind in listed][:depth]
    slides = getattr(text, "sliding_window", None) and (
        getattr(text, "use_sliding_window", True) is not False
    )
    return ["sliding_attention" if slides else "full_attention"] * depth


def windows(config: Any) -> dict[int, int]:
    """Block -> positions it can see, for blocks with a sliding or chunked window."""
    text = text_config(config)
    sizes = {
        **dict.fromkeys(_SLIDING, getattr(text, "sliding_window", None)),
        **dict.fromkeys(_CHUNKED, getattr(text, "attention_chunk_size", None)),
    }
    seen = {block: sizes.get(kind) for block, kind in enumerate(kinds(config))}
    return {block: int(size) for block, size in seen.items() if size}


def recurrent(config: Any) -> dict[str, list[int]]:
    """Kind -> blocks that mix positions by something else than attention."""
    attention = _FULL | _SLIDING | _CHUNKED
    found: dict[str, list[int]] = {}
    for block, kind in enumerate(kinds(config)):
        if kind not in attention:
            found.setdefault(kind, []).append(block)
    return found


def refusals(config: Any, boundary: int | None = None) -> list[str]:
    """Why a decoder cannot be compacted before a block; empty if it can.

    Args:
        config: the top-level configuration.
        boundary: blocks up to this one must be attention (those before it lose cache entries, and
            the block itself is read); None asks about all blocks.
    """
    reasons = []
    for kind, blocks in recurrent(config).items():
        hit = [block for block in blocks if boundary is None or block <= boundary]
        if hit:
            first = blocks[0]
            advice = (
                f"boundaries below {first} are possible"
                if first
                else "no boundary comes before the first of them"
            )
            reasons.append(
                f"{spelled(hit)} {'is' if len(hit) == 1 else 'are'} {kind}, whose state has no "
                f"entries per position that could be gathered or read; {advice}"
            )
    return reasons


def spelled(blocks: Sequence[int]) -> str:
    """Block indices in words: "block 3" or "blocks 0 to 2, 4"."""
    spans: list[list[int]] = []
    for block in blocks:
        if spans and block == spans[-1][-1] + 1:
            spans[-1].append(block)
        else:
            spans.append([block])
    parts = [str(s[0]) if len(s) == 1 else f"{s[0]} to {s[-1]}" for s in spans]
    return f"{'block' if len(blocks) == 1 else 'blocks'} {', '.join(parts)}"
