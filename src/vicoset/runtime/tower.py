"""Reading the vision tower while the model itself runs it.

Hooks on the tower open a tap on one attention module for the duration of its forward, and remember
the projector's input. Nothing runs a second time; what a method never asks for is never computed.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn

from vicoset.core import checks
from vicoset.errors import UnsupportedError
from vicoset.methods.base import Tower
from vicoset.models import towers
from vicoset.models.layout import Layout, PromptInputs
from vicoset.runtime.tap import Seen, Tap

# Elements of the largest temporary of the streamed attention: what stays in a CPU's cache, and
# enough to keep an accelerator busy.
SCORES, SCORES_OF_ACCELERATORS = 1 << 19, 1 << 24


class TowerWatch:
    """Hooks on a model's vision tower, from construction to :meth:`close`."""

    def __init__(self, model: Any) -> None:
        self.facts = towers.facts_of(model)
        self.caught: list[Caught] = []
        self._open: Caught | None = None
        self._tap: Tap | None = None
        facts = self.facts
        self._handles = [
            facts.tower.register_forward_pre_hook(self._begin, with_kwargs=True),
            facts.tower.register_forward_hook(self._finish, always_call=True),
            facts.attention.register_forward_pre_hook(self._segments, with_kwargs=True),
            facts.outlet.register_forward_pre_hook(self._merged)
            if facts.raster
            else facts.outlet.register_forward_hook(self._states),
        ]

    def close(self) -> None:
        """Take the hooks away."""
        self._shut()
        for handle in self._handles:
            handle.remove()
        self._handles = []
        self.clear()

    def clear(self) -> None:
        """Forget what the tower made."""
        self.caught = []

    def _shut(self) -> None:
        if self._tap is not None:
            self._tap.close()
            self._tap = None
        self._open = None

    def _begin(self, module: nn.Module, args: Any, kwargs: dict[str, Any]) -> None:
        self._shut()  # a KeyboardInterrupt may have left one behind
        grids = kwargs.get("grid_thw", args[1] if len(args) > 1 else None)
        self._open = Caught(self.facts, grids)
        self._tap = Tap(self.facts.attention, self._open.attention.append)

    def _finish(self, module: nn.Module, args: Any, output: Any) -> None:
        if output is not None and self._open is not None:
            self.caught.append(self._open)
        self._shut()

    def _segments(self, module: nn.Module, args: Any, kwargs: dict[str, Any]) -> None:
        if self._open is not None:
            self._open.edges = kwargs.get("cu_seqlens", args[1] if len(args) > 1 else None)

    def _merged(self, module: nn.Module, args: Any) -> None:
        if self._open is not None:
            self._open.states = args[0].detach()

    def _states(self, module: nn.Module, args: Any, output: Any) -> None:
        if self._open is not None:
            self._open.states = (output[0] if isinstance(output, tuple) else output).detach()

    def of(self, inputs: PromptInputs, layouts: list[Layout | None]) -> Batch:
        """What the tower made of this batch's visual tokens.

        Args:
            inputs: the prompt.
            layouts: per row the prompt's layout.
        """
        if len(self.caught) != 1:
            what = "did not run" if not self.caught else "ran for images and for videos"
            raise UnsupportedError(
                f"a method reads the vision tower, which {what} in this call; allowed are prompts "
                "with pixels of one kind, images or videos. Pass pixel_values instead of features, "
                "or choose a method that reads the decoder only."
            )
        return Batch(self.caught[0], inputs, layouts)


class Caught:
    """One forward of a tower.

    Attributes:
        facts: of the tower.
        grids: [images, 3] of a raster tower.
        attention: what the attention was called with, once or segment by segment.
        states: raster: [patches, dz] in the tower's order; square: [pieces, 1 + P, dz].
        edges: cumulative segment lengths of a raster tower.
        made: what was computed of it, by name; whoever reads the same forward again finds it.
    """

    def __init__(self, facts: towers.TowerFacts, grids: Tensor | None) -> None:
        self.facts, self.grids = facts, grids
        self.attention: list[Seen] = []
        self.states: Tensor | None = None
        self.edges: Tensor | None = None
        self.made: dict[str, Tensor] = {}


def borrow(model: Any, watch: TowerWatch | None) -> None:
    """Lend a watch to the contexts of a model; None takes it back.

    Args:
        model: a stock model.
        watch: that outlives them.
    """
    if watch is None:
        model.__dict__.pop("_vicoset_tower", None)
    else:
        model.__dict__["_vicoset_tower"] = watch


def watch_of(model: Any) -> TowerWatch:
    """The watch that somebody lends, or one of its own.

    Args:
        model: a stock model.
    """
    lent: TowerWatch | None = model.__dict__.get("_vicoset_tower")
    return TowerWatch(model) if lent is None else lent


class Batch:
    """The tower's tensors for a batch, one row a visual token, computed when asked for."""

    def __init__(self, caught: Caught, inputs: PromptInputs, layouts: list[Layout | None]) -> None:
        self.caught, self.facts = caught, caught.facts
        assert caught.states is not None
        self.device = caught.states.device
        self.skip = 0
        if self.facts.raster:
            self.order = None
            if caught.grids is not None:
                order = towers.window_order(self.facts.tower, caught.grids)
                self.order = None if order is None else order.to(self.device)
            self.index = torch.arange(len(caught.states) // self.facts.unit)
        else:
            self.skip = int(towers.has_class_token(inputs.model, inputs.kwargs))
            pieces, self.patches = len(caught.states), caught.states.shape[1] - self.skip
            self.index = towers.token_index(inputs, self.patches, pieces)
        self.starts = self._starts([0 if one is None else len(one.visual) for one in layouts])

    def _starts(self, counts: list[int]) -> list[int]:
        """Per row the first of its tokens in the batch; beams share theirs."""
        total, given = sum(counts), len(self.index)
        copies = total // given if given else 0
        if not copies or total % given or len(counts) % copies:
            raise UnsupportedError(
                f"the vision tower made {given} visual tokens and the prompt holds {total}; a "
                "method that reads the tower needs one for the other. Check the placeholders."
            )
        starts, before = [], 0
        for count in counts[::copies]:
            starts += [before] * copies
            before += count
        return starts

    def tower(self, row: int, layout: Layout, ranks: Tensor, device: torch.device) -> Tower:
        """The part of a row.

        Args:
            row: which one.
            layout: of the whole prompt.
            ranks: [N] which of the prompt's visual tokens are still present.
            device: of the scene.
        """
        mine = self.index[self.starts[row] + ranks.cpu()].to(self.device)

        def rows(name: str) -> Callable[[], Tensor]:
            return lambda: getattr(self, name).index_select(0, mine).to(device)

        cls = cls_feature = None
        if self.skip:
            cls = rows("cls")
            firsts = torch.searchsorted(layout.image_ids, torch.arange(layout.images))
            leads = self.index[self.starts[row] + firsts].to(self.device) // self.patches

            def cls_feature() -> Tensor:
                assert self.caught.states is not None
                return self.caught.states[leads, 0].to(device)

        return Tower(
            rows("features"), rows("keys"), rows("received"), cls, cls_feature, self.facts.project
        )

    @property
    def features(self) -> Tensor:
        """z, [tokens, dz]."""
        return self._once("features", self._features)

    @property
    def keys(self) -> Tensor:
        """[tokens, dk], mean over heads (and patches)."""
        return self._once("keys", self._keys)

    @property
    def received(self) -> Tensor:
        """[tokens], mean over heads, sum over queries."""
        return self._once("received", self._received)

    @property
    def cls(self) -> Tensor:
        """[tokens], the class token's attention, mean over heads."""
        return self._once("cls", self._cls)

    def _once(self, name: str, make: Callable[[], Tensor]) -> Tensor:
        if name not in self.caught.made:
            self.caught.made[name] = make()
        return self.caught.made[name]

    def _features(self) -> Tensor:
        assert self.caught.states is not None
        return self._grouped(self.caught.states)

    def _keys(self) -> Tensor:
        parts = [self._lifted(seen.keys) for seen in self.caught.attention]
        if not self.facts.raster:
            return self._grouped(torch.cat(parts).mean(1))
        return self._grouped(torch.cat([part[0].mean(0) for part in parts]))

    def _received(self) -> Tensor:
        found = [received(*pair) for pair in self._segments()]
        if not self.facts.raster:
            return self._grouped(torch.stack(found)[..., None])[:, 0]
        return self._grouped(torch.cat(found)[:, None])[:, 0]

    def _cls(self) -> Tensor:
        rows = []
        for queries, keys, scaling in self._segments():
            scores = (self._lifted(queries[:, :1]) @ self._lifted(keys).mT) * scaling
            rows.append(scores.softmax(-1)[:, 0].mean(0))
        return self._grouped(torch.stack(rows)[..., None])[:, 0]

    def _segments(self) -> list[tuple[Tensor, Tensor, float]]:
        """Queries [H, T, dh], keys and scaling of everything that attends among itself."""
        seen = self.caught.attention
        if not seen:
            raise UnsupportedError(
                f"{type(self.facts.attention).__name__} ran outside the library's attention "
                "interface, so its attention cannot be read. Load with attn_implementation='sdpa'."
            )
        scaling = seen[0].scaling
        if not self.facts.raster:
            pieces = ((one.queries[n], one.keys[n]) for one in seen for n in range(len(one.keys)))
            return [(q, k, scaling) for q, k in pieces]
        queries = torch.cat([one.queries[0] for one in seen], 1)
        keys = torch.cat([one.keys[0] for one in seen], 1)
        edges = self.caught.edges
        lengths = [queries.shape[1]] if edges is None else edges.diff().tolist()
        pairs = zip(torch.split(queries, lengths, 1), torch.split(keys, lengths, 1), strict=True)
        return [(q, k, scaling) for q, k in pairs]

    def _grouped(self, values: Tensor) -> Tensor:
        """Values of patches, one row a group (raster, un-permuted) or a patch (square)."""
        if not self.facts.raster:
            return values[:, self.skip :].flatten(0, 1)
        lifted = self._lifted(values)
        patches = lifted.reshape(-1, self.facts.unit, lifted.shape[1])
        groups = patches.mean(1).to(values.dtype)
        return groups if self.order is None else groups.index_select(0, self.order)

    @staticmethod
    def _lifted(tensor: Tensor) -> Tensor:
        return checks.lift(tensor.detach(), "tower")


@checks.full_precision
def received(queries: Tensor, keys: Tensor, scaling: float) -> Tensor:
    """[T]: softmax attention that each key receives, mean over heads, sum over queries.

    Streamed over queries: the largest temporary is a few of its rows, never [T, T].

    Args:
        queries: [H, T, dh].
        keys: [H, T, dh].
        scaling: factor on the scores.
    """
    heads, tokens = keys.shape[:2]
    step = max(1, (SCORES if keys.device.type == "cpu" else SCORES_OF_ACCELERATORS) // tokens)
    total = torch.zeros(tokens, dtype=checks.compute_dtype(keys.dtype), device=keys.device)
    for head in range(heads):
        columns = checks.lift(keys[head].detach(), "keys").mT
        for part in torch.split(checks.lift(queries[head].detach(), "queries"), step):
            total += (part @ columns).mul_(scaling).softmax(-1).sum(0)
    return total / heads
