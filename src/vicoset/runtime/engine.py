"""One plan attached to one model: hooks that compact the prompt and follow it while decoding.

Nothing of the model is copied or replaced. Forward pre-hooks see the top model (what is a prompt,
what a decoding step), the text decoder (positions and masks) and the blocks from the first
boundary on, the latter during a prompt's forward only. Two instance attributes are wrapped while
the context is attached, `generate` and `prepare_inputs_for_generation`, plus `_deepstack_process`
where a decoder has one.
"""

from __future__ import annotations

import functools
import os
from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import Tensor, nn

from vicoset.core.settings import Settings
from vicoset.errors import RuntimeStateError, UnsupportedError
from vicoset.methods.base import DECODER, TOWER
from vicoset.models.families import Family, decoder_of, family_of, layers_of
from vicoset.models.features import watch_image_features
from vicoset.plan import Keep, Plan
from vicoset.runtime import checks, compiled, decoding, record_lines
from vicoset.runtime.caches import check_cache
from vicoset.runtime.compact import Watch
from vicoset.runtime.gate import Gate
from vicoset.runtime.host import on_host
from vicoset.runtime.packed import hook_blocks, packing_of
from vicoset.runtime.prompt import Prompt, PromptForward
from vicoset.runtime.record import Record, Records, digest_of, one_or_all
from vicoset.runtime.record_json import request_of
from vicoset.runtime.record_make import records_of
from vicoset.runtime.scenes import decoder_maps, needs_of_plan
from vicoset.runtime.tap import Tap
from vicoset.runtime.tower import TowerWatch, watch_of

AUDITS = ("none", "light", "full")
PREFIXES = ("gathered", "dense", "replay")


class Engine(PromptForward):
    """Attach with :meth:`attach`, detach with :meth:`detach`; both leave no trace behind."""

    def __init__(
        self,
        model: nn.Module,
        plan: Plan,
        keep: Keep,
        *,
        prefix: str = "gathered",
        positions: str = "original",
        settings: Settings | None = None,
        allow_uncertified: bool = False,
        force: bool = False,
        watch: Watch | None = None,
        audit: str = "light",
        record_to: str | os.PathLike[str] | None = None,
        processor: Any = None,
        companions: Mapping[str, Any] | None = None,
    ) -> None:
        self.model: Any = model
        self.plan, self.keep, self.prefix = plan, keep, prefix
        self.settings = settings or Settings()
        self.force, self.watch = force, watch
        self.audit, self.record_to = audit, record_to
        if record_to is not None:
            record_lines.check_place(record_to)
        self.digest = digest_of(plan, self.settings)
        self.family: Family = family_of(model, allow_uncertified)
        self.decoder: Any = decoder_of(model)
        self.layers = layers_of(model)
        self.positions, self.packing = positions, packing_of(self.decoder, positions)
        self.windows = self.family.windows(self.model.config)
        checks.check_model(self.family, self.model, self.decoder, plan, len(self.layers))
        checks.check_budgets(plan, keep)
        self.request = request_of(model, plan, keep, self.settings)
        self.tokenizer = getattr(processor, "tokenizer", processor)
        self.companions = dict(companions or {})
        needs = needs_of_plan(plan)
        checks.check_needs(self.model, plan, self.tokenizer, self.decoder, self.companions)
        self._maps = decoder_maps(self.decoder) if DECODER in needs else None
        self._tower_watch: TowerWatch | None = None
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
        self._gate = Gate(model, self)

    # -- attaching -----------------------------------------------------------------------------

    def attach(self) -> None:
        """Install the hooks."""
        # One step, so that of two threads only one gets the model.
        if self.model.__dict__.setdefault("_vicoset_engine", self) is not self or self._handles:
            raise RuntimeStateError(
                "this model is compressed already; one context per model is allowed. "
                "Leave the other `with compress(...)` block, or call .detach() on it, first."
            )
        self._gate.leave()
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
        if TOWER in needs_of_plan(self.plan):
            self._tower_watch = watch_of(self.model)
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
        if self._tower_watch is not None:
            self._tower_watch.close()
            self._tower_watch = None
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
        checks.check_generate(self.model, args, kwargs, self.prefix)
        self._gate.enter()
        try:
            if self.prefix == "replay":
                kwargs["use_cache"] = False
            if self.packing is not None:
                kwargs["disable_compile"] = True  # each step's positions come from hooks
            ids = kwargs.get("input_ids", kwargs.get("inputs", args[0] if args else None))
            self._given = tuple(ids.shape) if isinstance(ids, Tensor) else (0, 0)
            self._generating, self.session = True, None
            self._forget()
            return original(*args, **kwargs)
        finally:
            self._generating, self.session = False, None
            self._end_prompt()
            self._forget()
            self._gate.leave()

    def _prepare(self, original: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        cache = kwargs.get("past_key_values")
        session = decoding.session_of(cache)
        if session is not None and getattr(cache, "is_compileable", False):
            # Static caches get their 4-D mask here already, from the 2-D one.
            kwargs["attention_mask"] = session.static_mask(args, kwargs)
        return original(*args, **kwargs)

    def _traced(self, tokens: Any, cache: Any) -> bool:
        return compiled.traced_step(self._generating and self.packing is None, tokens, cache)

    def _before_model(self, module: nn.Module, args: Any, kwargs: dict[str, Any]) -> None:
        ids = kwargs.get("input_ids", args[0] if args else None)
        cache = kwargs.get("past_key_values")
        if self._traced(ids, cache):
            return
        self._gate.enter()
        self._end_prompt()  # a KeyboardInterrupt may have left one behind
        self._mask = kwargs.get("attention_mask")
        if ids is None:
            checks.check_no_ids(kwargs)
            return
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
            self._forget()
        rows, length = self._given
        longer = self._generating and 0 < length < ids.shape[1]
        if longer and cache is None and self.session is None:
            return  # a later step without cache, of a prompt that kept everything
        self.prompt = Prompt(ids=ids, kwargs=kwargs)
        if self._generating and rows and len(ids) % rows == 0:
            self.prompt.copies = len(ids) // rows
        if self._generating and self.session is not None and cache is None:
            self.prompt.replayed = self.session
            self.prompt.grown = ids.shape[1] - self.session.length
        elif longer:
            self.prompt.ahead = ids.shape[1] - length

    def _after_model(self, module: nn.Module, args: Any, kwargs: Any, output: Any) -> None:
        ids = kwargs.get("input_ids", args[0] if args else None)
        if self._traced(ids, kwargs.get("past_key_values")):
            return
        if not self._gate.mine:
            return  # refused at the gate; the prompt is another thread's
        prompt = self.prompt
        try:
            if output is None or prompt is None:  # nothing came out: an exception
                return
            compiled.check_reached(prompt.reached, prompt.wanted)
            if prompt.attended is not None and prompt.replayed is None:
                if prompt.cache is None:
                    prompt.cache = getattr(output, "past_key_values", None)
                self._keep_records(prompt)
        finally:
            self._end_prompt()
            if prompt is not None and self._tower_watch is not None:
                self._tower_watch.clear()
            if not self._generating:
                self._gate.leave()

    def _forget(self) -> None:
        """What the vision tower made belongs to one prompt."""
        if self._watch is not None:
            self._watch.clear()
        if self._tower_watch is not None:
            self._tower_watch.clear()

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
        states, cache = kwargs.get("inputs_embeds"), kwargs.get("past_key_values")
        if self._traced(states, cache):
            return None
        if not self._gate.mine:
            raise RuntimeStateError(
                f"the decoder of this {type(self.model).__name__} was called past the model's own "
                "forward, so nothing would be compressed; call the model itself or its generate, "
                "or leave the context."
            )
        if self.prompt is None:
            return self._decode(args, kwargs)
        prompt = self.prompt
        prompt.reached.add(compiled.DECODER)
        if states is None or states.shape[1] != prompt.length:
            raise UnsupportedError(
                f"the decoder got {None if states is None else states.shape[1]} positions for a "
                f"prompt of {prompt.length}; allowed are whole prompts. Drop prefill_chunk_size."
            )
        prompt.cache = cache
        check_cache(prompt.cache, self.prefix)
        if prompt.replayed is None:
            self._describe(prompt, kwargs, states)
            if not any(layout is not None for layout in prompt.layouts):
                self._end_prompt()
                return None
            if self._keeps_everything(prompt):
                return None  # no hook, no tap: the model's own path, bit for bit
            checks.check_windows(self.windows, prompt.length)
            checks.check_labels(prompt.kwargs)
        self._install(prompt)
        return None

    # -- after the prompt ----------------------------------------------------------------------

    def _decode(self, args: Any, kwargs: dict[str, Any]) -> tuple[Any, dict[str, Any]] | None:
        """A decoding step: masks and positions as if the prompt were still whole."""
        session = decoding.session_of(kwargs.get("past_key_values"))
        if session is None:
            return None
        states = kwargs.get("inputs_embeds")
        steps = (kwargs["input_ids"] if states is None else states).shape[1]
        held = int(kwargs["past_key_values"].get_seq_length())
        written = held - session.entries(0)
        checks.check_windows(self.windows, session.length + written + steps)
        if self.packing is not None:
            self._prompt_handles += hook_blocks(self.layers, session, self.packing, written)
        if session.prefix != "gathered":
            self._prompt_handles += decoding.hook_dense_blocks(self.layers, session)
        return args, session.decode_arguments(kwargs, self._mask)

    @on_host
    def _keep_records(self, prompt: Prompt) -> None:
        rows = records_of(self, prompt)
        self.records += rows
        self.last = one_or_all(rows)
        if self.record_to is not None:
            record_lines.append(self.record_to, [row.to_json() for row in rows])

    def __deepcopy__(self, memory: dict[int, Any]) -> Any:
        """Refuse: the copy's functions would still be this model's."""
        raise RuntimeStateError(
            "a compressed model cannot be copied: its hooks belong to this one. Leave the "
            "`with compress(...)` block, or call .detach(), and copy the model then."
        )

    def __reduce__(self) -> Any:
        """Refuse to pickle, for the same reason."""
        return self.__deepcopy__({})


def depth_of(model: Any) -> int:
    """L, the blocks of a model's text decoder."""
    return len(layers_of(model))
