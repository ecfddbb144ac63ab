"""Gathering what blocks before a boundary have cached."""

from __future__ import annotations

from typing import Any

import torch

from vicoset.errors import UnsupportedError
from vicoset.runtime.gather import Kept, gather_axis

SUPPORTED = ("DynamicLayer", "DynamicSlidingWindowLayer", "StaticLayer")


def check_cache(cache: Any, prefix: str) -> None:
    """Refuse caches whose entries cannot be gathered, before anything is touched.

    Args:
        cache: the library's cache, or None.
        prefix: execution mode.
    """
    if cache is None:
        return
    layers = getattr(cache, "layers", None)
    if layers is None:
        raise UnsupportedError(
            f"the cache is a {type(cache).__name__} without per-layer entries; allowed are the "
            "library's DynamicCache and StaticCache. Drop cache_implementation."
        )
    if getattr(cache, "offloading", False):
        raise UnsupportedError(
            "the cache offloads its layers, which then cannot be gathered in place; "
            "allowed are dynamic and static caches. Drop cache_implementation='offloaded'."
        )
    for number, layer in enumerate(layers):
        name = type(layer).__name__
        if name not in SUPPORTED:
            raise UnsupportedError(
                f"block {number} caches in a {name}; allowed are {', '.join(SUPPORTED)}. "
                "Pass cache_implementation='dynamic' to generate."
            )
        if name == "StaticLayer":
            check_static(prefix)


def check_static(prefix: str) -> None:
    """Refuse static caches that would not be compact, or not written where they end."""
    from transformers.cache_utils import StaticLayer

    if prefix != "gathered":
        raise UnsupportedError(f"static caches need prefix='gathered', not {prefix!r}.")
    if not hasattr(StaticLayer(max_cache_len=1), "cumulative_length"):
        raise UnsupportedError(
            "this transformers writes static caches at absolute positions, which leaves a "
            "hole after compaction; use transformers >= 5.4 or cache_implementation='dynamic'."
        )


def slots_of(cache: Any) -> int:
    """Positions of the buffers that a static cache hands over whole; 0 for caches that grow."""
    layers = getattr(cache, "layers", ())
    sizes = (int(n.max_cache_len) for n in layers if type(n).__name__ == "StaticLayer")
    return max(sizes, default=0)


def gather_cache(cache: Any, blocks: range, kept: Kept, length: int) -> None:
    """Keep the kept positions' keys and values of some blocks; memory is freed at once."""
    for number in blocks:
        layer = cache.layers[number]
        if type(layer).__name__ == "StaticLayer":
            _gather_static(layer, kept, length)
            continue
        held = layer.keys.shape[2]
        if held != length:
            raise UnsupportedError(
                f"block {number} holds {held} of {length} prompt positions (a sliding window has "
                "dropped the others), so they cannot be gathered. Shorten the prompt below the "
                "window, or compress at boundary 0."
            )
        layer.keys = gather_axis(layer.keys, kept, 2, 0)
        layer.values = gather_axis(layer.values, kept, 2, 0)
        if hasattr(layer, "cumulative_length"):
            layer.cumulative_length = kept.length


def _gather_static(layer: Any, kept: Kept, length: int) -> None:
    for buffer in (layer.keys, layer.values):
        compact = gather_axis(buffer[:, :, :length], kept, 2, 0)
        buffer.zero_()
        buffer[:, :, : kept.length].copy_(compact)
    layer.cumulative_length.fill_(kept.length)


def cache_bytes(cache: Any) -> int:
    """Bytes of the keys and values that a cache holds."""
    total = 0
    for layer in getattr(cache, "layers", []):
        for tensor in (getattr(layer, "keys", None), getattr(layer, "values", None)):
            if isinstance(tensor, torch.Tensor):
                total += tensor.numel() * tensor.element_size()
    return total
