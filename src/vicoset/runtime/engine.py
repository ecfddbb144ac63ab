"""One plan attached to one model: hooks that compact the prompt and follow it while decoding.

Nothing of the model is copied or replaced. Forward pre-hooks see the top model (what is a prompt,
what a decoding step), the text decoder (positions and masks) and the blocks from the first
boundary on, the latter during a prompt's forward only. Two instance attributes are wrapped while
the context is attached, `generate` and `prepare_inputs_for_generation`, plus `_deepstack_process`
where a decoder has one.
"""

from __future__ import annotations

import dataclasses
import functools
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor, nn

from vicoset.core.settings import Settings
from vicoset.errors import RuntimeStateError, UnsupportedError
from vicoset.models.families import Family, decoder_of, family_of, layers_of
from vicoset.models.features import lengths_from, watch_image_features
from vicoset.models.layout import Layout, PromptInputs
from vicoset.plan import Keep, Plan
from vicoset.runtime import checks, decoding
from vicoset.runtime.caches import check_cache, gather_cache
from vicoset.runtime.compact import Compacted, compact, extend
from vicoset.runtime.gather import Kept, gather_axis
from vicoset.runtime.kwargs import Rewriter
from vicoset.runtime.record import Record, Records, StageRecord, digest_of, one_or_all
from vicoset.runtime.tap import Captured, Seen, Tap

PREFIXES = ("gathered", "dense", "replay")


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


class Engine:
    """Attach with :meth:`attach`, detach with :meth:`detach`; both leave no trace behind."""

    def __init__(
        self,
        model: nn.Module,
        plan: Plan,
        keep: Keep,
        *,
        prefix: str = "gathered",
        settings: Settings | None = None,
        allow_uncertified: bool = False,
        force: bool = False,
    ) -> None:
        self.model: Any = model
        self.plan, self.keep, self.prefix = plan, keep, prefix
        self.settings = settings or Settings()
        self.force = force
        self.digest = digest_of(plan, self.settings)
        self.family: Family = family_of(model, allow_uncertified)
        self.decoder: Any = decoder_of(model)
        self.layers = layers_of(model)
        self.windows = self.family.windows(self.model.config)
        checks.check_model(self.family, self.model, self.decoder, plan, len(self.layers))
        self.boundaries = {stage.boundary: stage for stage in plan.stages}
        self.records: list[Record] = []
        self.last: Record | Records | None = None
        self.prompt: Prompt | None = None
        self.session: decoding.Session | None = None  # of the running generate call, for replay
        self._mask: Any = None  # what the top model got in the forward that is running
        self._generating = False
        self._given: tuple[int, ...] = (0, 0)  # ids [B, L] that generate was given
        self._dry = False
        self._handles: list[Any] = []
        self._prompt_handles: list[Any] = []
        self._watch: Any = None
        self._wrapped: list[tuple[Any, str]] = []
        self._owner = 0

    # -- attaching -----------------------------------------------------------------------------

    def attach(self) -> None:
        """Install the hooks."""
        if getattr(self.model, "_vicoset_engine", None) is not None:
            raise RuntimeStateError(
                "this model is compressed already; one context per model is allowed. "
                "Leave the other `with compress(...)` block, or call .detach() on it, first."
            )
        self.model._vicoset_engine = self
        self._owner = threading.get_ident()
        try:
            self._hook()
        except BaseException:
            self.detach()
            raise

    def _hook(self) -> None:
        hook = self.model.register_forward_pre_hook(self._before_model, with_kwargs=True)
        self._handles.append(hook)
        self._handles.append(
            self.model.register_forward_hook(self._after_model, with_kwargs=True, always_call=True)
        )
        self._handles.append(
            self.decoder.register_forward_pre_hook(self._before_decoder, with_kwargs=True)
        )
        self._watch = watch_image_features(self.model)
        self._wrap(self.model, "generate", self._generate)
        self._wrap(self.model, "prepare_inputs_for_generation", self._prepare)
        if hasattr(self.decoder, "_deepstack_process"):
            self._wrap(self.decoder, "_deepstack_process", self._deepstack)

    def detach(self) -> None:
        """Take everything away again; safe to call twice."""
        self._end_prompt()
        for handle in self._handles:
            handle.remove()
        self._handles.clear()
        if self._watch is not None:
            self._watch.close()
            self._watch = None
        for owner, name in self._wrapped:
            owner.__dict__.pop(name, None)
        self._wrapped.clear()
        self.session = None
        if self.model.__dict__.get("_vicoset_engine") is self:
            del self.model.__dict__["_vicoset_engine"]

    def _wrap(self, owner: Any, name: str, replacement: Callable[..., Any]) -> None:
        if name in owner.__dict__:
            raise RuntimeStateError(
                f"{name} of this {type(owner).__name__} is replaced already by something else; "
                "allowed is the class's own. Undo the other patch first."
            )
        original = getattr(owner, name)

        @functools.wraps(original)
        def wrapped(*args: Any, **kwargs: Any) -> Any:
            return replacement(original, *args, **kwargs)

        owner.__dict__[name] = wrapped
        self._wrapped.append((owner, name))

    # -- the top model -------------------------------------------------------------------------

    def _generate(self, original: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        self._check_thread()
        checks.check_generate(args, kwargs, self.prefix)
        if self.prefix == "replay":
            kwargs["use_cache"] = False
        ids = kwargs.get("input_ids", kwargs.get("inputs", args[0] if args else None))
        self._given = tuple(ids.shape) if isinstance(ids, Tensor) else (0, 0)
        self._generating, self.session = True, None
        self._watch.clear()
        try:
            return original(*args, **kwargs)
        finally:
            self._generating, self.session = False, None
            self._end_prompt()

    def _prepare(self, original: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        cache = kwargs.get("past_key_values")
        session = decoding.session_of(cache)
        mask = kwargs.get("attention_mask")
        static = bool(getattr(cache, "is_compileable", False))
        if session is not None and static and isinstance(mask, Tensor) and mask.ndim == 2:
            # Static caches get their 4-D mask here already, from the 2-D one.
            kwargs["attention_mask"] = session.compact_mask(mask)
        return original(*args, **kwargs)

    def _before_model(self, module: nn.Module, args: Any, kwargs: dict[str, Any]) -> None:
        self._check_thread()
        self._end_prompt()  # a KeyboardInterrupt may have left one behind
        self._mask = kwargs.get("attention_mask")
        ids = kwargs.get("input_ids", args[0] if args else None)
        if ids is None:
            checks.check_no_ids(kwargs)
            return
        cache = kwargs.get("past_key_values")
        held = int(cache.get_seq_length()) if cache is not None else 0
        if held and not self._generating and decoding.session_of(cache) is not None:
            checks.check_step(self.model, kwargs)
        if ids.shape[1] == 1 and held:
            return
        visual = torch.zeros_like(ids, dtype=torch.bool)
        for number in self.family.visual_ids(self.model.config):
            visual |= ids == number
        if not bool(visual.any()):
            return
        if held:
            raise UnsupportedError(
                f"an image came on a cache that holds {held} positions already; images are "
                "compressed in the first prompt only. Start a new cache with the whole chat."
            )
        checks.check_prompt(kwargs, ids)
        if not self._generating:
            self._watch.clear()
        self.prompt = Prompt(ids=ids, kwargs=kwargs)
        rows, length = self._given
        if self._generating and rows and len(ids) % rows == 0:
            self.prompt.copies = len(ids) // rows
        if self._generating and self.session is not None and cache is None:
            self.prompt.replayed = self.session
            self.prompt.grown = ids.shape[1] - self.session.length
        elif self._generating and 0 < length < ids.shape[1]:
            self.prompt.ahead = ids.shape[1] - length

    def _after_model(self, module: nn.Module, args: Any, kwargs: Any, output: Any) -> None:
        prompt = self.prompt
        try:
            if output is None or prompt is None:  # nothing came out: an exception
                return
            if prompt.attended is not None and prompt.replayed is None:
                if prompt.cache is None:
                    prompt.cache = getattr(output, "past_key_values", None)
                self._keep_records(prompt)
        finally:
            self._end_prompt()

    def _end_prompt(self) -> None:
        for handle in self._prompt_handles:
            handle.close() if isinstance(handle, Tap) else handle.remove()
        self._prompt_handles.clear()
        self.prompt = self._mask = None
        self._dry = False

    # -- the decoder ---------------------------------------------------------------------------

    def _before_decoder(
        self, module: nn.Module, args: Any, kwargs: dict[str, Any]
    ) -> tuple[Any, dict[str, Any]] | None:
        if self.prompt is None:
            return self._decode(args, kwargs)
        prompt = self.prompt
        states = kwargs.get("inputs_embeds")
        if states is None or states.shape[1] != prompt.length:
            raise UnsupportedError(
                f"the decoder got {None if states is None else states.shape[1]} positions for a "
                f"prompt of {prompt.length}; allowed are whole prompts. Drop prefill_chunk_size."
            )
        prompt.cache = kwargs.get("past_key_values")
        check_cache(prompt.cache, self.prefix)
        if prompt.replayed is None:
            self._describe(prompt, kwargs, states)
            if not any(layout is not None for layout in prompt.layouts):
                self._end_prompt()
                return None
            checks.check_windows(self.windows, prompt.length)
            if self._keeps_everything(prompt):
                return None  # no hook, no tap: the model's own path, bit for bit
        self._install(prompt)
        return None

    def _describe(self, prompt: Prompt, kwargs: dict[str, Any], states: Tensor) -> None:
        """Which positions are visual, attended, and where they lie."""
        prompt.attended = decoding.attended_positions(
            kwargs.get("attention_mask"), prompt.ids.shape, states.device
        )
        lengths = {
            kind: lengths_from(prompt.kwargs, kind) or self._watch.seen(kind)[1]
            for kind in ("image", "video")
        }
        prompt.layouts = self.family.layouts(
            PromptInputs(
                model=self.model,
                input_ids=prompt.ids,
                attended=prompt.attended,
                position_ids=kwargs.get("position_ids"),
                image_lengths=lengths["image"],
                video_lengths=lengths["video"],
                kwargs=prompt.kwargs,
            )
        )
        if prompt.ahead:  # what nobody has accepted yet reads no image
            end = prompt.length - prompt.ahead
            prompt.layouts = [
                layout and dataclasses.replace(layout, text=layout.text[layout.text < end])
                for layout in prompt.layouts
            ]
        prompt.current, prompt.now = prompt.attended, list(prompt.layouts)

    def _keeps_everything(self, prompt: Prompt) -> bool:
        """Whether K = N in every row at every boundary."""
        whole = [layout for layout in prompt.layouts if layout is not None]
        return not self.force and all(
            (stage.keep or self.keep).of(len(layout.visual), layout.images) == len(layout.visual)
            for stage in self.plan.stages
            for layout in whole
        )

    def _install(self, prompt: Prompt) -> None:
        """Hooks on the blocks, and taps on those whose history a boundary reads."""
        first = min(self.boundaries)
        for number in range(first, len(self.layers)):
            hook = functools.partial(self._before_block, number)
            self._prompt_handles.append(
                self.layers[number].register_forward_pre_hook(hook, with_kwargs=True)
            )
        if prompt.replayed is not None:
            return
        for number in sorted(self._history_blocks()):
            sink = functools.partial(prompt.history.__setitem__, number)
            self._prompt_handles.append(Tap(_attention(self.layers[number]), sink))

    def _history(self, boundary: int) -> list[int]:
        """The last two blocks before a boundary that run on the same sequence."""
        before = max([other for other in self.boundaries if other < boundary], default=0)
        stage = self.boundaries[boundary]
        if "views" not in stage.selector.needs:
            return []
        return list(range(max(boundary - 2, before, 0), boundary))

    def _history_blocks(self) -> set[int]:
        return {number for boundary in self.boundaries for number in self._history(boundary)}

    # -- the blocks ----------------------------------------------------------------------------

    def _before_block(
        self, number: int, block: nn.Module, args: Any, kwargs: dict[str, Any]
    ) -> tuple[Any, dict[str, Any]] | None:
        prompt = self.prompt
        if self._dry or prompt is None:
            return None
        kwargs = dict(kwargs)
        states = args[0] if args else kwargs.pop("hidden_states")
        if prompt.cache is None:  # a direct forward's decoder makes it itself
            prompt.cache = kwargs.get("past_key_values")
        if number in self.boundaries:
            states = self._at_boundary(prompt, number, block, states, kwargs)
        if prompt.kept is None or prompt.rewriter is None:
            return None
        return (states, *args[1:]), prompt.rewriter(kwargs, states)

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
        seen = []
        if "views" in stage.selector.needs | stage.realiser.needs:
            now = prompt.rewriter(kwargs, states) if prompt.rewriter else kwargs
            seen.append((number, _attention(block), self._dry_run(block, states, now)))
            seen += [
                (n, _attention(self.layers[n]), prompt.history[n]) for n in self._history(number)
            ]
        assert prompt.current is not None
        done = compact(
            stage,
            self.keep,
            states,
            prompt.current,
            prompt.now,
            seen,
            self.settings,
            self.force,
            prompt.copies,
        )
        if done is None:
            return states
        if prompt.cache is not None and self.prefix == "gathered":
            gather_cache(prompt.cache, range(number), done.kept, states.shape[1])
        compacted = done.apply(states)
        checks.check_compacted(compacted, done, prompt.current)
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

    def _follow(self, prompt: Prompt, done: Compacted, grown: int) -> None:
        """From here on, blocks run on the compact sequence."""
        before = prompt.length if prompt.kept is None else prompt.kept.length
        local = extend(done.kept, before - grown, grown)
        prompt.kept = local if prompt.kept is None else local.after(prompt.kept)
        flash = "flash" in str(self.decoder.config._attn_implementation)
        prompt.rewriter = Rewriter(prompt.kept, prompt.length, self.decoder.config, flash)

    def _dry_run(self, block: nn.Module, states: Tensor, kwargs: dict[str, Any]) -> Seen:
        """What the block's attention would be called with; it ends before the kernel."""
        caught: list[Seen] = []
        plain = {k: v for k, v in kwargs.items() if k not in ("past_key_values", "past_key_value")}
        plain["use_cache"] = False
        tap = Tap(_attention(block), caught.append, abort=True)
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
            own = own & kept.valid
        return original(states, own, features[gather_axis(rank, kept, 1, 0)[own]])

    # -- after the prompt ----------------------------------------------------------------------

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

    def _decode(self, args: Any, kwargs: dict[str, Any]) -> tuple[Any, dict[str, Any]] | None:
        """A decoding step: masks and positions as if the prompt were still whole."""
        session = decoding.session_of(kwargs.get("past_key_values"))
        if session is None:
            return None
        states = kwargs.get("inputs_embeds")
        steps = (kwargs["input_ids"] if states is None else states).shape[1]
        held = int(kwargs["past_key_values"].get_seq_length())
        position = session.length + held - session.front(0).shape[1] + steps
        checks.check_windows(self.windows, position)
        if session.prefix != "gathered":
            self._prompt_handles += decoding.hook_dense_blocks(self.layers, session)
        return args, session.decode_arguments(kwargs, self._mask)

    def _keep_records(self, prompt: Prompt) -> None:
        rows = []
        bytes_now, bytes_full = decoding.prompt_bytes(
            prompt.cache, prompt.length, prompt.ahead, prompt.done
        )
        assert prompt.attended is not None
        lengths = prompt.attended[:, : prompt.length - prompt.ahead].sum(1).tolist()
        for row, layout in list(enumerate(prompt.layouts))[:: prompt.copies]:
            found = [done.stages[row] for done in prompt.done]
            stages = _in_source_order(found)
            tokens = 0 if layout is None else len(layout.visual)
            dropped = sum(stage.tokens - stage.kept for stage in stages)
            rows.append(
                Record(
                    plan=self.plan.name,
                    digest=self.digest,
                    prefix=self.prefix if prompt.cache is not None else "replay",
                    tokens=tokens,
                    images=0 if layout is None else layout.images,
                    length=int(lengths[row]),
                    compact_length=int(lengths[row]) - dropped,
                    depth=len(self.layers),
                    stages=stages,
                    kv_bytes=bytes_now // len(prompt.layouts),
                    full_kv_bytes=bytes_full // len(prompt.layouts),
                    attention=str(self.decoder.config._attn_implementation),
                    dtype=str(self.decoder.dtype).removeprefix("torch."),
                    notes=self._notes(layout),
                )
            )
        self.records += rows
        self.last = one_or_all(rows)

    def _notes(self, layout: Layout | None) -> tuple[str, ...]:
        """What a reader of a row's record should know: rescaled presets, raised budgets."""
        if layout is None:
            return self.plan.notes
        keeps = [stage.keep or self.keep for stage in self.plan.stages]
        found = [keep.note(len(layout.visual), layout.images) for keep in keeps]
        return (*self.plan.notes, *dict.fromkeys(note for note in found if note))

    def _check_thread(self) -> None:
        if threading.get_ident() != self._owner:
            raise RuntimeStateError(
                "a compressed model was called from another thread than the one that attached it; "
                "one thread at a time is allowed. Attach in the thread that calls the model."
            )


def _in_source_order(found: Sequence[StageRecord | None]) -> tuple[StageRecord, ...]:
    """A row's stages, each with indices among the prompt's tokens, not the stage before's."""
    stages: list[StageRecord] = []
    for stage in found:
        if stage is not None and stages:
            stage = dataclasses.replace(stage, indices=stages[-1].indices[stage.indices])
        stages += [] if stage is None else [stage]
    return tuple(stages)


def _attention(block: nn.Module) -> nn.Module:
    """The attention module of a decoder block."""
    for name in ("self_attn", "attention", "attn"):
        module = getattr(block, name, None)
        if isinstance(module, nn.Module) and hasattr(module, "config"):
            return module
    raise UnsupportedError(
        f"{type(block).__name__} has no attention module with a config; linear-attention and "
        "state-space blocks hold no messages to read. Choose a boundary at an attention block."
    )


def depth_of(model: Any) -> int:
    """L, the blocks of a model's text decoder."""
    return len(layers_of(model))
