"""What many contexts on the same prompts compute alike, computed once.

Methods that are compared on one prompt begin with the same vision tower and the same dense blocks.
A :class:`Shared` remembers both and hands them to whoever calls with equal inputs: inputs are
compared entry by entry, so nothing but the time differs, not even the last bit. Only the tower and
the blocks before a boundary are skipped; whatever follows runs in the model as always.
"""

from __future__ import annotations

import copy
import functools
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from vicoset.errors import UnsupportedError
from vicoset.models.families import decoder_of, layers_of
from vicoset.runtime.prompt import attention_of_block
from vicoset.runtime.tap import Seen, Tap
from vicoset.runtime.tower import Caught, TowerWatch, borrow

# Block arguments that say where results go, not what they are.
_PLACES = ("past_key_values", "past_key_value", "use_cache", "hidden_states")


@dataclass
class _Run:
    """One forward of a module.

    Attributes:
        given: its positional and its named arguments, without caches.
        made: what it returned.
        seen: inside: the call of a block's attention, or what the tower's watch caught.
    """

    given: Any
    made: Any
    seen: Any


class Shared:
    """Remembers the vision tower's last images and the dense blocks of the prompt at hand.

    Attributes:
        depth: how many blocks from the first on are remembered.
        reused: forwards of the tower and of blocks that were not run again.
    """

    def __init__(self, model: Any, depth: int | None = None) -> None:
        """Nothing happens to the model before :meth:`of` is entered.

        Args:
            model: a stock model.
            depth: blocks that any method runs on the whole prompt; None for all.
        """
        layers = layers_of(model)
        self.model, self.reused = model, 0
        self.depth = len(layers) if depth is None else min(depth, len(layers))
        decoder: Any = decoder_of(model)
        flash = "flash" in str(decoder.config._attn_implementation)
        self._blocks = [] if flash else [_Block(self, layers[n], n) for n in range(self.depth)]
        self._tower: _Towers | None = None
        if not flash:
            with suppress(UnsupportedError):  # a tower that nobody has mapped runs every time
                self._tower = _Towers(self)
        self._prompt: Any = None

    @contextmanager
    def of(self, prompt: Any) -> Iterator[None]:
        """Share among the contexts that are entered inside, for as long as the prompt is the same.

        Args:
            prompt: any object that stands for it; another one forgets the blocks.
        """
        if prompt is not self._prompt:
            self._prompt = prompt
            for block in self._blocks:
                block.run = None
        parts = [*self._blocks, *([] if self._tower is None else [self._tower])]
        try:
            for part in parts:
                part.attach()
            yield
        finally:
            for part in reversed(parts):
                part.detach()

    def clear(self) -> None:
        """Forget everything."""
        self._prompt = None
        for block in self._blocks:
            block.run = None
        if self._tower is not None:
            self._tower.run = None


class _Part:
    """A module whose forward is remembered while attached."""

    def __init__(self, shared: Shared, module: nn.Module) -> None:
        self.shared, self.module = shared, module
        self.run: _Run | None = None

    def attach(self) -> None:
        """Put our forward in front of the module's own."""
        original = self.module.forward
        wrapped = functools.wraps(original)(functools.partial(self._forward, original))
        self.module.__dict__["forward"] = wrapped

    def detach(self) -> None:
        """Give the module its own forward back; safe without :meth:`attach`."""
        self.module.__dict__.pop("forward", None)

    def _forward(self, original: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        raise NotImplementedError


class _Block(_Part):
    """A decoder block on the whole prompt."""

    def __init__(self, shared: Shared, module: nn.Module, number: int) -> None:
        super().__init__(shared, module)
        self._number, self._attention = number, attention_of_block(module)
        self._tap: Tap | None = None
        self._seen: list[Seen] = []

    def attach(self) -> None:
        """As above; what the attention gets is looked at while nothing is remembered."""
        super().attach()
        if self.run is None:
            # Below the taps of whoever comes later, so that all see the same call.
            self._tap = Tap(self._attention, self._seen.append, shared=True)

    def detach(self) -> None:
        """As above."""
        if self._tap is not None:
            self._tap.close()
            self._tap = None
        self._seen.clear()
        super().detach()

    def _forward(self, original: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        cache: Any = kwargs.get("past_key_values", kwargs.get("past_key_value"))
        waiting = self._attention.__dict__.get("_vicoset_tap")
        dry = waiting is not None and waiting.abort
        if dry or not _empty(cache, self._number):
            return original(*args, **kwargs)
        given = _described(args, kwargs)
        if self.run is None:
            return self._first(original, given, args, kwargs)
        if not _equal(self.run.given, given):
            return original(*args, **kwargs)
        if waiting is not None:
            waiting.sink(self.run.seen)
        cache.update(self.run.seen.keys, self.run.seen.values, self._number)
        layer = _layer(cache, self._number)  # made by its first entry, in some releases
        # The very tensors, whose layout in memory later products could round by.
        layer.keys, layer.values = self.run.seen.keys, self.run.seen.values
        self.shared.reused += 1
        return _copied(self.run.made)

    def _first(self, original: Callable[..., Any], given: Any, args: Any, kwargs: Any) -> Any:
        self._seen.clear()
        states, named = given
        given = _copied(states), named  # what runs on may be changed in place
        made = original(*args, **kwargs)
        if len(self._seen) == 1 and _tensors_only(made):
            self.run = _Run(given, _copied(made), self._seen[0])
        self._seen.clear()
        return made


class _Towers(_Part):
    """The vision tower, with what methods read of it."""

    def __init__(self, shared: Shared) -> None:
        self._watch: _LentWatch | None = None
        watch = _LentWatch(shared.model)  # finds out whether the tower is known
        watch.end()
        super().__init__(shared, watch.facts.tower)

    def attach(self) -> None:
        """As above; engines borrow the watch that the memory fills."""
        super().attach()
        self._watch = _LentWatch(self.shared.model)
        borrow(self.shared.model, self._watch)

    def detach(self) -> None:
        """As above."""
        borrow(self.shared.model, None)
        if self._watch is not None:
            self._watch.end()
            self._watch = None
        super().detach()

    def _forward(self, original: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        assert self._watch is not None
        given = _described(args, kwargs, ())
        if self.run is not None and _equal(self.run.given, given):
            self._watch.replace(self.run.seen)
            self.shared.reused += 1
            return copy.copy(self.run.made)
        made = original(*args, **kwargs)
        # Models write into the container that they get, not into its tensors.
        self.run = _Run(given, copy.copy(made), self._watch.opened)
        return made


class _LentWatch(TowerWatch):
    """A watch on the tower that its borrowers cannot close."""

    @property
    def opened(self) -> Caught | None:
        """What the running forward is filling."""
        return self._open

    def replace(self, caught: Caught) -> None:
        """The running forward is one that was caught before."""
        self._open = caught

    def close(self) -> None:
        """A borrower is done."""
        self.clear()

    def end(self) -> None:
        """Take the hooks away."""
        super().close()


def _layer(cache: Any, number: int) -> Any:
    layers = getattr(cache, "layers", None)
    return layers[number] if layers is not None and number < len(layers) else None


def _empty(cache: Any, number: int) -> bool:
    """Whether a block writes into an empty growing cache: the forward of a prompt."""
    layers = getattr(cache, "layers", None)
    if layers is None or getattr(cache, "offloading", False):
        return False
    layer = _layer(cache, number)
    if layer is None:  # made when it is first written
        return type(cache).__name__ == "DynamicCache"
    return type(layer).__name__ == "DynamicLayer" and not int(layer.get_seq_length())


def _described(args: Any, kwargs: dict[str, Any], places: tuple[str, ...] = _PLACES) -> Any:
    states = () if "hidden_states" not in kwargs or not places else (kwargs["hidden_states"],)
    return (*args, *states), {k: v for k, v in kwargs.items() if k not in places}


def _equal(first: Any, second: Any) -> bool:
    """Equal to the bit, tensors included."""
    if first is second:
        return True
    if isinstance(first, Tensor):
        same = isinstance(second, Tensor) and first.dtype == second.dtype
        return same and first.shape == second.shape and torch.equal(first, second)
    if type(first) is not type(second):
        return False
    if isinstance(first, (tuple, list)):
        return len(first) == len(second) and all(map(_equal, first, second))
    if isinstance(first, dict):
        return first.keys() == second.keys() and all(_equal(first[k], second[k]) for k in first)
    return isinstance(first, (str, int, float, bool, type(None))) and bool(first == second)


def _copied(value: Any) -> Any:
    """The same with tensors of its own, in the same layout."""
    if isinstance(value, Tensor):
        return value.clone()
    if isinstance(value, (tuple, list)):
        return type(value)(map(_copied, value))
    return value


def _tensors_only(made: Any) -> bool:
    parts = made if type(made) in (tuple, list) else (made,)
    return all(isinstance(part, Tensor | type(None)) for part in parts)
