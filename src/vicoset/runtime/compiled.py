"""Compiled models: what a trace of a decoding step leaves out, and hooks that a trace never had.

A trace takes the hooks of a module as it finds them and does not look at them again. So a step
that was traced before the context knows nothing of it, and one that was traced inside goes on
with what it has seen. The steps of ``generate`` on a static cache, the ones that the library
compiles, are made so that this is right: their masks and positions are ready before the step
begins, and the hooks leave at once.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from typing import Any

import torch

from vicoset.errors import UnsupportedError

DECODER = -1  # among the numbers of blocks


def traced_step(generating: bool, tokens: Any, cache: Any) -> bool:
    """Whether hooks have nothing to do, since a step of ``generate`` is being traced.

    Args:
        generating: whether the step is one of ``generate``.
        tokens: [B, steps] ids or [B, steps, d] states; None when there are none.
        cache: of the step.
    """
    if not torch.compiler.is_compiling() or not generating or tokens is None:
        return False
    return tokens.shape[1] == 1 and bool(getattr(cache, "is_compileable", False))


def check_not_compiled(model: Any) -> None:
    """Refuse a model whose call as a whole is compiled: nobody could tell that hooks are missing.

    Args:
        model: the top-level model.
    """
    if getattr(model, "_compiled_call_impl", None) is not None:
        raise UnsupportedError(
            f"this {type(model).__name__} is compiled in place (model.compile()), and a compiled "
            "call keeps the hooks that it was traced with; allowed are models whose own call is "
            "plain. Compile its blocks, or let generate compile with cache_implementation='static'."
        )


def check_reached(seen: Collection[int], wanted: Iterable[int]) -> None:
    """Raise when a prompt is through and some of its hooks were never called.

    Args:
        seen: blocks whose hooks were called; ``DECODER`` stands for the decoder's own.
        wanted: blocks whose hooks had to be called.
    """
    missed = sorted(set(wanted) - set(seen))
    if missed:
        what = "the decoder" if missed[0] == DECODER else f"block {missed[0]}"
        raise UnsupportedError(
            f"{what} ran without the hooks of this context, so nothing was compressed there: it "
            "was compiled, and traced before the context began. Call torch.compiler.reset() and "
            "try again, or compile inside of the context."
        )
