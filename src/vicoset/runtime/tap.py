"""Reading a block's attention inputs through the library's public attention interface.

A tapped block sees a copy of its config that names our function; the function hands q, k, v and
the mask to a sink and then runs the kernel that the model would have run. The model-wide config
keeps its name, so masks, kernel checks and `generate` stay native. No forward is copied.
"""

from __future__ import annotations

import copy
import sys
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from torch import Tensor, nn

from vicoset.errors import RuntimeStateError

NAME = "vicoset_tap"


@dataclass(frozen=True)
class Seen:
    """What one block's attention was called with.

    Attributes:
        queries: [B, H, L, dh], position encoding applied.
        keys: [B, Hkv, L', dh].
        values: [B, Hkv, L', dh].
        mask: 4-D additive or boolean, 2-D (flash), or None.
        scaling: factor on the scores.
        sliding_window: the layer's window, or None.
        softcap: or None.
        sinks: [H] or None.
    """

    queries: Tensor
    keys: Tensor
    values: Tensor
    mask: Tensor | None
    scaling: float
    sliding_window: int | None
    softcap: float | None
    sinks: Tensor | None


class Captured(Exception):
    """Ends a dry run as soon as the sink has what it wants."""


@dataclass
class _State:
    sink: Callable[[Seen], None]
    abort: bool
    real: Any
    tapped: Any
    kernel: Callable[..., Any]
    shared: bool


class Tap:
    """A sink on one attention module, from construction to :meth:`close`.

    A dry run (``abort``) may interrupt a tap that waits for the real run of the same module. A
    ``shared`` tap lets others be put on top of it, and sees what they see; the last one put on is
    the first one to close.
    """

    def __init__(
        self,
        attention: nn.Module,
        sink: Callable[[Seen], None],
        *,
        abort: bool = False,
        shared: bool = False,
    ) -> None:
        _register()
        self._waiting: _State | None = attention.__dict__.get("_vicoset_tap")
        if self._waiting is not None and not abort and not self._waiting.shared:
            raise RuntimeStateError(
                f"{type(attention).__name__} is tapped already; one context per model is allowed. "
                "Leave the other `with compress(...)` block first."
            )
        self.attention = attention
        real: Any = attention.config if self._waiting is None else self._waiting.real
        if self._waiting is not None and not abort:
            sink = _both(sink, self._waiting.sink)
        tapped = copy.copy(real)
        tapped._attn_implementation_internal = NAME
        attention._vicoset_tap = _State(  # type: ignore[assignment]
            sink, abort, real, tapped, _kernel(attention, real), shared
        )
        attention.config = tapped

    def close(self) -> None:
        """Give the module its own config back, or the tap that waits."""
        state = self.attention.__dict__.pop("_vicoset_tap", None)
        if self._waiting is not None:
            self.attention._vicoset_tap = self._waiting  # type: ignore[assignment]
            self.attention.config = self._waiting.tapped
        elif state is not None:
            self.attention.config = state.real


def _both(first: Callable[[Seen], None], second: Callable[[Seen], None]) -> Callable[[Seen], None]:
    def sink(seen: Seen) -> None:
        first(seen)
        second(seen)

    return sink


def _kernel(attention: nn.Module, config: Any) -> Callable[..., Any]:
    """The attention function that the module would call untapped."""
    from transformers.modeling_utils import ALL_ATTENTION_FUNCTIONS

    name = config._attn_implementation
    if name in (None, "eager"):
        function: Callable[..., Any] = sys.modules[
            type(attention).__module__
        ].eager_attention_forward
        return function
    found: Callable[..., Any] = ALL_ATTENTION_FUNCTIONS[name]
    return found


def _register() -> None:
    """Enter our function under a name of its own; no existing entry changes."""
    from transformers import AttentionInterface

    if NAME not in AttentionInterface._global_mapping:
        AttentionInterface.register(NAME, _tapped)


def _tapped(
    module: Any, query: Tensor, key: Tensor, value: Tensor, attention_mask: Any, **kwargs: Any
) -> Any:
    state: _State = module._vicoset_tap
    scaling = kwargs.get("scaling")
    state.sink(
        Seen(
            queries=query,
            keys=key,
            values=value,
            mask=attention_mask,
            scaling=query.shape[-1] ** -0.5 if scaling is None else float(scaling),
            sliding_window=kwargs.get("sliding_window"),
            softcap=kwargs.get("softcap"),
            sinks=kwargs.get("s_aux"),
        )
    )
    if state.abort:
        raise Captured
    module.config = state.real  # flash kernels read the implementation's name from here
    try:
        return state.kernel(module, query, key, value, attention_mask, **kwargs)
    finally:
        module.config = state.tapped
