"""Inside a prompt's forward: what is known of the prompt, and what happens block by block."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor, nn

from vicoset.core.settings import Settings
from vicoset.errors import UnsupportedError
from vicoset.methods.base import CURRENT, EMBEDDINGS, QUESTION, TEXT, VIEWS, Decoder, Scene
from vicoset.models.families import Family
from vicoset.models.features import lengths_from
from vicoset.models.layout import Layout, PromptInputs
from vicoset.models.question import end_ids
from vicoset.plan import Keep, Plan, Stage
from vicoset.runtime import checks, decoding
from vicoset.runtime.caches import check_cache, gather_cache, slots_of
from vicoset.runtime.compact import Compacted, Watch, compact, extend
from vicoset.runtime.compiled import DECODER
from vicoset.runtime.gather import Kept, gather_axis
from vicoset.runtime.host import on_host
from vicoset.runtime.kwargs import Rewriter
from vicoset.runtime.packed import Packing
from vicoset.runtime.record_time import Laps
from vicoset.runtime.scenes import (
    Block,
    Origin,
    Reads,
    history_blocks,
    needs_of,
    needs_of_plan,
    ranks_of,
    scene_of,
)
from vicoset.runtime.tap import Captured, Seen, Tap
from vicoset.runtime.tower import TowerWatch


@dataclass
class Prompt:
    """What is known of the prompt whose forward is running."""

    ids: Tensor
    kwargs: dict[str, Any]
    attended: Tensor | None = None
    layouts: list[Layout | None] = field(default_factory=list)
    cache: Any = None
    history: dict[int, Seen] = field(default_factory=dict)
    done: list[Compacted] = field(default_factory=list)
    kept: Kept | None = None
    rewriter: Rewriter | None = None
    current: Tensor | None = None  # attended positions of the sequence as it is now
    now: list[Layout | None] = field(default_factory=list)
    replayed: decoding.Session | None = None
    grown: int = 0
    ahead: int = 0  # tokens that an assistant proposes, behind the prompt in its own forward
    copies: int = 1  # rows of each sample, when generate has multiplied them
    positions: Any = None  # rotary positions as the decoder got them
    origin: Origin | None = None
    # Blocks whose hooks have to be called in this forward, and those whose hooks were.
    wanted: set[int] = field(default_factory=lambda: {DECODER})
    reached: set[int] = field(default_factory=set)

    @property
    def length(self) -> int:
        """Prompt positions as the model passes them, before any compaction."""
        return self.ids.shape[1]

    @property
    def padded(self) -> Tensor | None:
        """The attended positions, None when there is no padding."""
        if self.attended is None or bool(self.attended.all()):
            return None
        return self.attended


class PromptForward:
    """The part of an engine that works inside a prompt's forward, block by block.

    Attributes are the engine's; this class only reads them, but for the prompt's own handles and
    the session it leaves for decoding.
    """

    model: Any
    decoder: Any
    family: Family
    layers: nn.ModuleList
    plan: Plan
    keep: Keep
    prefix: str
    packing: Packing | None
    settings: Settings
    force: bool
    watch: Watch | None
    audit: str
    boundaries: dict[int, Stage]
    prompt: Prompt | None
    session: decoding.Session | None
    _watch: Any
    _generating: bool
    _dry: bool
    _prompt_handles: list[Any]
    _tower_watch: TowerWatch | None
    _maps: Decoder | None
    tokenizer: Any
    companions: Mapping[str, Any]

    @on_host
    def _describe(self, prompt: Prompt, kwargs: dict[str, Any], states: Tensor) -> None:
        """Which positions are visual, attended, and where they lie."""
        prompt.positions = kwargs.get("position_ids")
        prompt.attended = decoding.attended_positions(
            kwargs.get("attention_mask"), prompt.ids.shape, states.device
        )
        lengths = {
            kind: lengths_from(prompt.kwargs, kind) or self._watch.seen(kind)[1]
            for kind in ("image", "video")
        }
        inputs = PromptInputs(
            model=self.model,
            input_ids=prompt.ids,
            attended=prompt.attended,
            position_ids=kwargs.get("position_ids"),
            image_lengths=lengths["image"],
            video_lengths=lengths["video"],
            kwargs=prompt.kwargs,
        )
        prompt.layouts = self.family.layouts(inputs)
        checks.check_one_prompt_a_row(kwargs.get("position_ids"), prompt.layouts)
        if prompt.ahead:  # what nobody has accepted yet reads no image
            end = prompt.length - prompt.ahead
            prompt.layouts = [
                layout and dataclasses.replace(layout, text=layout.text[layout.text < end])
                for layout in prompt.layouts
            ]
        prompt.current, prompt.now = prompt.attended, list(prompt.layouts)
        prompt.origin = self._origin(prompt, inputs, states)

    def _origin(self, prompt: Prompt, inputs: PromptInputs, states: Tensor) -> Origin:
        """The prompt as it came, as far as the plan's methods look back at it."""
        needs = needs_of_plan(self.plan)
        read = any(layout is not None for layout in prompt.layouts)
        watch = self._tower_watch
        return Origin(
            ids=prompt.ids,
            layouts=prompt.layouts,
            embeddings=states if needs & {EMBEDDINGS, TEXT, QUESTION} else None,
            tower=watch.of(inputs, prompt.layouts) if read and watch is not None else None,
            decoder=self._maps,
            ends=end_ids(self.model, self.tokenizer),
            tokenizer=self.tokenizer,
            table=self.model.get_input_embeddings(),
            companions=self.companions,
        )

    def _keeps_everything(self, prompt: Prompt) -> bool:
        """Whether K = N in every row at every boundary."""
        whole = [layout for layout in prompt.layouts if layout is not None]
        counts = [self.plan.counts(self.keep, len(one.visual), one.images)[0] for one in whole]
        return not self.force and all(
            kept == [len(one.visual)] * len(kept) for kept, one in zip(counts, whole, strict=True)
        )

    def _install(self, prompt: Prompt) -> None:
        """Hooks on the blocks, and taps on those whose history a boundary reads."""
        first = min(self.boundaries)
        prompt.wanted.update(range(first, len(self.layers)))
        for number in range(first, len(self.layers)):
            hook = functools.partial(self._before_block, number)
            self._prompt_handles.append(
                self.layers[number].register_forward_pre_hook(hook, with_kwargs=True)
            )
        if prompt.replayed is not None:
            return
        for number in sorted(self._history_blocks()):
            sink = functools.partial(prompt.history.__setitem__, number)
            self._prompt_handles.append(Tap(attention_of_block(self.layers[number]), sink))

    def _history_blocks(self) -> set[int]:
        return {number for p in self.boundaries for number in history_blocks(self.plan, p)}

    # -- the blocks ----------------------------------------------------------------------------

    def _before_block(
        self, number: int, block: nn.Module, args: Any, kwargs: dict[str, Any]
    ) -> tuple[Any, dict[str, Any]] | None:
        prompt = self.prompt
        if self._dry or prompt is None:
            return None
        prompt.reached.add(number)
        kwargs = dict(kwargs)
        states = args[0] if args else kwargs.pop("hidden_states")
        if prompt.cache is None:  # a direct forward's decoder makes it itself
            prompt.cache = kwargs.get("past_key_values")
        if number in self.boundaries:
            states = self._at_boundary(prompt, number, block, states, kwargs)
        if prompt.kept is None or prompt.rewriter is None:
            return None
        checks.check_length(number, states, prompt.kept)
        return (states, *args[1:]), prompt.rewriter(kwargs, states)

    @on_host
    def _at_boundary(
        self, prompt: Prompt, number: int, block: nn.Module, states: Tensor, kwargs: dict[str, Any]
    ) -> Tensor:
        if prompt.replayed is not None:
            done = prompt.replayed.stage_at(number)
            if done is None:
                return states
            self._follow(prompt, done, prompt.grown)
            return done.apply(states, prompt.grown)
        stage = self.boundaries[number]
        check_cache(prompt.cache, self.prefix)
        laps = Laps(states.device)
        assert prompt.current is not None
        prompt.current = prompt.current.to(states.device)
        done = compact(
            stage,
            self.keep,
            states,
            prompt.current,
            prompt.now,
            self._scenes(prompt, stage, block, states, kwargs, laps),
            self.force,
            self.watch,
            self.audit,
            [0 if one is None else len(one.visual) for one in prompt.layouts],
        )
        later = {n for p in self.boundaries if p > number for n in history_blocks(self.plan, p)}
        for block_read in set(prompt.history) - later:  # dense queries, keys and values
            del prompt.history[block_read]
        if done is None:
            return states
        if prompt.cache is not None and self.prefix == "gathered":
            gather_cache(prompt.cache, range(number), done.kept, states.shape[1])
        compacted = done.apply(states)
        laps.lap("compaction")
        done = done.timed(laps)
        prompt.done.append(done)
        prompt.now = list(done.layouts)
        prompt.current = (
            torch.ones_like(done.kept.index, dtype=torch.bool)
            if done.kept.valid is None
            else done.kept.valid
        )
        self._follow(prompt, done, 0)
        self._remember(prompt)
        return compacted

    def _scenes(
        self,
        prompt: Prompt,
        stage: Stage,
        block: nn.Module,
        states: Tensor,
        kwargs: dict[str, Any],
        laps: Laps,
    ) -> Callable[[int, Layout], Scene]:
        """What a stage sees of a row: its own block by a dry run, those before as they ran."""
        current = None
        if needs_of(stage) & {VIEWS, CURRENT}:
            now = prompt.rewriter(kwargs, states) if prompt.rewriter else kwargs
            seen = self._dry_run(block, states, now)
            current = Block(stage.boundary, attention_of_block(block), seen)
        before = history_blocks(self.plan, stage.boundary)
        history = [Block(n, attention_of_block(self.layers[n]), prompt.history[n]) for n in before]
        reads = Reads(current, tuple(history))
        origin, attended = prompt.origin, prompt.current
        assert origin is not None and attended is not None
        ranks = ranks_of(origin.layouts, [done.stages for done in prompt.done])

        def scene(row: int, layout: Layout) -> Scene:
            mine = states[row], attended[row], layout
            sample = row // prompt.copies
            present = ranks[row]
            assert present is not None
            made = scene_of(stage, *mine, row, sample, reads, self.settings, origin, present)
            return dataclasses.replace(made, audited=self.audit != "none", lap=laps.lap)

        return scene

    def _follow(self, prompt: Prompt, done: Compacted, grown: int) -> None:
        """From here on, blocks run on the compact sequence."""
        before = prompt.length if prompt.kept is None else prompt.kept.length
        local = extend(done.kept, before - grown, grown)
        prompt.kept = local if prompt.kept is None else local.after(prompt.kept)
        flash = "flash" in str(self.decoder.config._attn_implementation)
        prompt.rewriter = Rewriter(
            prompt.kept,
            prompt.length,
            self.decoder.config,
            flash,
            slots_of(prompt.cache),
            self.packing,
        )

    def _dry_run(self, block: nn.Module, states: Tensor, kwargs: dict[str, Any]) -> Seen:
        """What the block's attention would be called with; it ends before the kernel."""
        caught: list[Seen] = []
        plain = {k: v for k, v in kwargs.items() if k not in ("past_key_values", "past_key_value")}
        plain["use_cache"] = False
        tap = Tap(attention_of_block(block), caught.append, abort=True)
        self._dry = True
        try:
            with torch.no_grad():
                block(states, **plain)
        except Captured:
            pass
        finally:
            self._dry = False
            tap.close()
        if not caught:
            raise UnsupportedError(
                f"{type(block).__name__} runs its attention outside the library's attention "
                "interface, so its messages cannot be read; use a selector that needs no views."
            )
        return caught[0]

    def _deepstack(
        self, original: Callable[..., Any], states: Tensor, mask: Tensor, features: Tensor
    ) -> Any:
        """A carrier receives the deepstack feature of its own position."""
        prompt = self.prompt
        if prompt is None or prompt.kept is None or states.shape[1] != prompt.kept.length:
            return original(states, mask, features)
        kept = prompt.kept
        rank = (mask.flatten().cumsum(0) - 1).view_as(mask)
        own = gather_axis(mask, kept, 1, 0)
        if kept.valid is not None:
            own = own & kept.valid.to(own.device)
        return original(states, own, features[gather_axis(rank, kept, 1, 0)[own]])

    def _remember(self, prompt: Prompt) -> None:
        """What decoding needs to know, found again by the cache or by the running generate."""
        end, padded = prompt.length - prompt.ahead, prompt.padded
        session = decoding.Session(
            length=end,
            stages=tuple(done.without(prompt.ahead) for done in prompt.done),
            prefix=self.prefix,
            attended=None if padded is None else padded[:, :end],
        )
        if prompt.cache is not None:
            prompt.cache._vicoset_session = session
        if self._generating:
            self.session = session


def attention_of_block(block: nn.Module) -> nn.Module:
    """The attention module of a decoder block."""
    for name in ("self_attn", "attention", "attn"):
        module = getattr(block, name, None)
        if isinstance(module, nn.Module) and hasattr(module, "config"):
            return module
    raise UnsupportedError(
        f"{type(block).__name__} has no attention module with a config; linear-attention and "
        "state-space blocks hold no messages to read. Choose a boundary at an attention block."
    )
