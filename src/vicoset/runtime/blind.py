"""Visual-null: the model without its eyes, by masks alone.

The visual columns are removed from every query that is not visual itself, from block 0 on, in the
prompt and while decoding. Text and structural states then never see a visual token, directly or
through another position; positions stay those of the whole prompt, and visual tokens go on seeing
what they saw, which nobody reads. No forward is copied: the blocks get another mask.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn

from vicoset.errors import UnsupportedError
from vicoset.plan import Keep, plan_named
from vicoset.runtime import checks
from vicoset.runtime.engine import Engine, depth_of
from vicoset.runtime.gather import hidden
from vicoset.runtime.prompt import Prompt

MASKED = ("sdpa", "eager")


class Blind(Engine):
    """A context in which the model's text never sees a visual token; attach and detach it.

    Nothing is compressed and no record is made. Prompts, batches and refusals are those of every
    other context; a second context on the same model is refused.
    """

    def __init__(self, model: Any, *, allow_uncertified: bool = False) -> None:
        depth = depth_of(model)
        plan = plan_named(f"random+drop@{depth - 1}", depth)  # so that every block is checked
        super().__init__(model, plan, Keep(tokens=1), allow_uncertified=allow_uncertified)
        kernel = str(getattr(self.decoder.config, "_attn_implementation", None) or "eager")
        if kernel not in MASKED:
            raise UnsupportedError(
                f"the decoder runs {kernel}, which takes no mask of its own for every query, so "
                f"{type(model).__name__} cannot be blinded; allowed are {' and '.join(MASKED)}. "
                "Load with attn_implementation='sdpa', or use the blank image as null."
            )
        self._eager = kernel == "eager"
        self._visual: Tensor | None = None  # [B, L] bool, of the prompt that is running

    def __enter__(self) -> Blind:
        """Attach."""
        self.attach()
        return self

    def __exit__(self, *error: object) -> None:
        """Detach, also after an exception."""
        self.detach()

    def _generate(self, original: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        configs = (kwargs.get("generation_config"), self.model.generation_config)
        given = (kwargs.get("use_cache"), *(getattr(c, "use_cache", None) for c in configs))
        if next((value for value in given if value is not None), True) is False:
            raise UnsupportedError(
                "use_cache=False came to a visual-null run, whose steps find the visual columns "
                "by their cache; allowed is decoding with a cache. Drop use_cache=False."
            )
        return super()._generate(original, *args, **kwargs)

    def _keeps_everything(self, prompt: Prompt) -> bool:
        return False

    def _install(self, prompt: Prompt) -> None:
        visual = torch.zeros_like(prompt.ids, dtype=torch.bool)
        for row, layout in enumerate(prompt.layouts):
            if layout is not None:
                visual[row, layout.visual.to(visual.device)] = True
        assert prompt.attended is not None
        self._visual = visual
        self._hook_blocks(visual, prompt.attended & ~visual, 0)

    def _keep_records(self, prompt: Prompt) -> None:
        if prompt.cache is not None:
            prompt.cache._vicoset_visual = self._visual

    def _decode(self, args: Any, kwargs: dict[str, Any]) -> tuple[Any, dict[str, Any]] | None:
        """A decoding step: new tokens do not see the prompt's visual entries either."""
        cache = kwargs.get("past_key_values")
        visual = getattr(cache, "_vicoset_visual", None)
        if cache is None or visual is None or not int(cache.get_seq_length()):
            return None
        states = kwargs.get("inputs_embeds")
        steps = (kwargs["input_ids"] if states is None else states).shape[1]
        held = int(cache.get_seq_length())
        checks.check_windows(self.windows, held + steps)
        self._hook_blocks(visual, visual.new_ones(len(visual), steps), held)
        return None

    def _hook_blocks(self, visual: Tensor, blinded: Tensor, held: int) -> None:
        """For this forward, every block's mask loses the visual columns of some rows.

        Args:
            visual: [B, L] bool, the prompt's visual tokens.
            blinded: [B, q] bool, the queries that lose them.
            held: positions in the cache.
        """
        masks: dict[int, tuple[Any, Tensor]] = {}  # a mask is made once, and its source kept alive
        hook = functools.partial(self._blind_block, masks, visual, blinded, held)
        for block in self.layers:
            self._prompt_handles.append(block.register_forward_pre_hook(hook, with_kwargs=True))

    def _blind_block(
        self,
        masks: dict[int, tuple[Any, Tensor]],
        visual: Tensor,
        blinded: Tensor,
        held: int,
        block: nn.Module,
        args: Any,
        kwargs: dict[str, Any],
    ) -> tuple[Any, dict[str, Any]]:
        mask = kwargs.get("attention_mask")
        if id(mask) not in masks:
            states = args[0] if args else kwargs["hidden_states"]
            dtype = states.dtype if self._eager else torch.bool
            masks[id(mask)] = mask, _without(mask, visual.to(states.device), blinded, held, dtype)
        return args, {**kwargs, "attention_mask": masks[id(mask)][1]}


def _without(mask: Any, visual: Tensor, blinded: Tensor, held: int, dtype: torch.dtype) -> Tensor:
    """A block's mask [B, 1 or H, q, k] whose ``blinded`` queries do not see ``visual`` columns.

    Args:
        mask: as the block got it; None where the kernel is causal by itself.
        visual: [B, L] bool.
        blinded: [B, q] bool.
        held: positions in the cache; 0 for the prompt.
        dtype: of a mask that has to be made.
    """
    batch, steps = blinded.shape
    if mask is None:
        rows = torch.arange(held, held + steps, device=visual.device)
        made = torch.arange(held + steps, device=visual.device) <= rows[:, None]
        mask = made.expand(batch, 1, -1, -1)
        if dtype != torch.bool:
            low = torch.finfo(dtype).min
            mask = torch.zeros_like(mask, dtype=dtype).masked_fill(~mask, low)
    if not isinstance(mask, Tensor) or mask.ndim != 4:
        shape = list(mask.shape) if isinstance(mask, Tensor) else type(mask).__name__
        raise UnsupportedError(
            f"a block got the attention mask {shape}, in which queries cannot differ; allowed are "
            "4-D masks. Load with attn_implementation='sdpa'."
        )
    columns = visual.new_zeros(batch, mask.shape[-1])
    columns[:, : visual.shape[1]] = visual
    gone = blinded.to(visual.device)[:, None, :, None] & columns[:, None, None, :]
    return mask.expand(batch, -1, -1, -1).masked_fill(gone, hidden(mask))
