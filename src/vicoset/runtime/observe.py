"""Looking on: what chosen blocks' attention gets in a prompt's forward, compressed or not."""

from __future__ import annotations

import functools
from collections.abc import Iterable
from types import TracebackType
from typing import Any

from vicoset.errors import PlanError
from vicoset.models.families import layers_of
from vicoset.runtime.prompt import attention_of_block
from vicoset.runtime.tap import Seen, Tap


class Observer:
    """Keeps what some blocks' attention is called with first, that is in the prompt's forward.

    It changes nothing and goes together with a ``compress`` context, which has to be entered
    after it and left before it: the dry run of a boundary is not looked at, the block's own run
    on the compact sequence is.

    Attributes:
        seen: block -> its call; empty before a forward.
    """

    def __init__(self, model: Any, blocks: Iterable[int]) -> None:
        self.seen: dict[int, Seen] = {}
        self._layers = layers_of(model)
        self._blocks = sorted(set(blocks))
        wrong = [block for block in self._blocks if not 0 <= block < len(self._layers)]
        if wrong:
            raise PlanError(
                f"blocks {wrong} of a decoder with {len(self._layers)}; allowed are 0 to "
                f"{len(self._layers) - 1}. The boundary of the plan is a good one to look at."
            )
        self._taps: list[Tap] = []

    def _see(self, block: int, seen: Seen) -> None:
        self.seen.setdefault(block, seen)

    def __enter__(self) -> Observer:
        """Look on."""
        try:
            for block in self._blocks:
                sink = functools.partial(self._see, block)
                module = attention_of_block(self._layers[block])
                self._taps.append(Tap(module, sink, shared=True))
        except BaseException:
            self._close()
            raise
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Look away; what was seen stays."""
        self._close()

    def _close(self) -> None:
        while self._taps:
            self._taps.pop().close()
