"""Refusals: what would go silently wrong is an error before anything is touched."""

from __future__ import annotations

import inspect
from collections.abc import Mapping, Sequence
from typing import Any

from torch import Tensor, nn

from vicoset.errors import PlanError, RuntimeStateError, UnsupportedError
from vicoset.methods.base import PREVIOUS, QUESTION, TOWER
from vicoset.methods.covering import Covering
from vicoset.methods.demands import Demanding, Offer
from vicoset.models.families import Family
from vicoset.models.layout import Layout
from vicoset.models.towers import class_width, facts_of
from vicoset.plan import Derived, Keep, Plan
from vicoset.runtime import compiled, decoding
from vicoset.runtime.caches import check_static
from vicoset.runtime.gather import Kept


def check_model(family: Family, model: Any, decoder: Any, plan: Plan, depth: int) -> None:
    """A model in which the plan's boundaries can be compacted at all."""
    plan.check_depth(depth)
    reasons = family.refusals(model.config, max(plan.boundaries))
    if reasons:
        raise UnsupportedError(f"{type(model).__name__} cannot be compacted: {'; '.join(reasons)}")
    if getattr(decoder.config, "_attn_implementation", None) == "flex_attention":
        raise UnsupportedError(
            "the decoder runs flex attention, whose block masks cannot be gathered; allowed are "
            "sdpa, eager and flash. Load with attn_implementation='sdpa'."
        )


def check_budgets(plan: Plan, keep: Keep) -> None:
    """A budget by coverage needs selectors that measure it."""
    for stage in plan.stages:
        if isinstance(stage.keep, Derived):
            stage.keep.of(keep, 1)
            continue
        budget = stage.keep or keep
        if budget.coverage is not None and not isinstance(stage.selector, Covering):
            raise PlanError(
                f"{budget!r} came with the selector {stage.selector.name!r}, which measures no "
                "coverage; allowed are selectors with select_covering(), such as 'gmc'. Give it a "
                "count or a fraction."
            )


def check_needs(
    model: Any, plan: Plan, tokenizer: Any, decoder: Any, companions: Mapping[str, Any]
) -> None:
    """Methods whose reading this model, or this call, cannot serve; both sides are named."""
    for stage in plan.stages:
        for method in (stage.selector, stage.realiser):
            if PREVIOUS in method.needs and stage.boundary == 0:
                raise PlanError(
                    f"{method.name!r} reads the block before its boundary, and plan {plan.name!r} "
                    "has it at the decoder's input; allowed are boundaries from 1 on. "
                    f"Write {method.name}@2."
                )
            if QUESTION in method.needs and tokenizer is None:
                raise UnsupportedError(
                    f"{method.name!r} reads the question as a string and this run of "
                    f"{type(model).__name__} has token ids only; give "
                    "compress(..., processor=processor), whose tokenizer decodes them."
                )
            if TOWER in method.needs:
                try:
                    facts_of(model)
                except UnsupportedError as error:
                    raise UnsupportedError(f"{method.name!r} cannot run here: {error}") from error
            if isinstance(method, Demanding):
                heads = int(decoder.config.num_attention_heads)
                method.check_offer(Offer(heads, class_width(model), companions))


def check_top(model: Any) -> None:
    """Only a top-level model's own forward and generate pass the hooks."""
    kind = type(model).__name__
    if not isinstance(model, nn.Module):
        raise UnsupportedError(
            f"compress got a {kind}; allowed is a loaded model. Pass load(directory).model, or the "
            "model of a pipeline."
        )
    compiled.check_not_compiled(model)
    wrapped = {
        "_orig_mod": "a torch.compile of the model",
        "get_base_model": "an adapter around the model",
        "module": "a parallel wrapper of the model",
    }
    for name, what in wrapped.items():
        if hasattr(model, name):
            inner = f"model.{name}()" if name.startswith("get") else f"model.{name}"
            raise UnsupportedError(
                f"{kind} is {what}, which calls the model past its hooks; allowed is the model "
                f"itself. Pass {inner}."
            )
    if not callable(getattr(model, "prepare_inputs_for_generation", None)):
        raise UnsupportedError(
            f"{kind} has no generate, so it is no top-level model; allowed are those that "
            "AutoModelForImageTextToText loads. Pass the model that this one is a part of."
        )


def check_generate(model: Any, args: tuple[Any, ...], kwargs: dict[str, Any], prefix: str) -> None:
    """Ways of generating that this runtime cannot follow."""
    configs = (kwargs.get("generation_config"), getattr(model, "generation_config", None))

    def option(name: str) -> Any:
        found = (kwargs.get(name), *(getattr(config, name, None) for config in configs))
        return next((value for value in found if value is not None), None)

    if option("prefill_chunk_size"):
        raise UnsupportedError(
            "prefill_chunk_size feeds the prompt in pieces, and each would look like a whole "
            "prompt; drop it, a compressed prefill needs less memory anyway."
        )
    if getattr(kwargs.get("assistant_model"), "_vicoset_engine", None) is not None:
        raise UnsupportedError(
            "the assistant model is compressed itself; it is called again with the whole text on "
            "a compact cache. Leave the assistant uncompressed."
        )
    if option("assistant_early_exit"):
        raise UnsupportedError(
            "assistant_early_exit lets the model assist itself, which generates again on its own "
            "compact cache. Pass an uncompressed assistant_model, or prompt_lookup_num_tokens."
        )
    assisted = kwargs.get("assistant_model") is not None or option("prompt_lookup_num_tokens")
    if assisted and not crops_relative():
        raise UnsupportedError(
            "assisted decoding crops caches by absolute length in this transformers, which a "
            "compact cache does not have; use transformers >= 5.14, or decode without assistant."
        )
    if assisted and prefix != "gathered":
        raise UnsupportedError(f"assisted decoding needs prefix='gathered', not {prefix!r}.")
    implementation = option("cache_implementation")
    if implementation in ("offloaded", "offloaded_static", "quantized"):
        raise UnsupportedError(
            f"cache_implementation={implementation!r} keeps entries where they cannot be "
            "gathered; allowed are 'dynamic' and 'static'."
        )
    if implementation is not None and "static" in implementation:
        check_static(prefix)
    ids = kwargs.get("input_ids", args[0] if args else None)
    mask, cache = kwargs.get("attention_mask"), kwargs.get("past_key_values")
    if isinstance(ids, Tensor) and cache is not None and decoding.session_of(cache) is not None:
        if not continues_by_mask():
            raise UnsupportedError(
                f"a prompt of {ids.shape[1]} input_ids came with a compact cache, and this "
                "transformers finds the new ones by the length of the cache; use transformers >= "
                "5.4, or start a new cache with the whole chat."
            )
        whole = isinstance(mask, Tensor) and mask.shape[1] == ids.shape[1]
        if whole or mask is None:
            raise UnsupportedError(
                f"{ids.shape[1]} input_ids came with a compact cache and "
                f"{'no' if mask is None else 'a mask of the same length as'} attention_mask; "
                "pass only the new input_ids, with the attention_mask of the whole text."
            )


def continues_by_mask() -> bool:
    """Whether generate goes on from a cache by the mask, so that only new ids may be given."""
    from transformers import GenerationMixin

    return not hasattr(GenerationMixin, "_get_initial_cache_position")


def crops_relative() -> bool:
    """Whether this library's caches crop by the number of entries to remove."""
    from transformers.cache_utils import Cache

    return "tokens_to_remove" in inspect.signature(Cache.crop).parameters


def check_no_ids(kwargs: dict[str, Any]) -> None:
    """Embeddings without ids do not say which positions are visual."""
    embeds, cache = kwargs.get("inputs_embeds"), kwargs.get("past_key_values")
    if embeds is None or (cache is not None and int(cache.get_seq_length())):
        return
    raise UnsupportedError(
        f"inputs_embeds of shape {list(embeds.shape)} came without input_ids, so nobody can tell "
        "which positions are visual; pass input_ids (with pixel_values), or leave the context."
    )


def check_step(model: Any, kwargs: dict[str, Any]) -> None:
    """Steps by hand: multimodal positions do not follow from the length of a compact cache."""
    mrope = hasattr(getattr(model, "model", None), "get_rope_index")
    if mrope and kwargs.get("position_ids") is None:
        raise UnsupportedError(
            f"a step of {type(model).__name__} on a compact cache came without position_ids; its "
            "positions are multimodal and do not follow from the cache. Pass the position_ids of "
            "the new tokens, or decode with generate."
        )


def check_prompt(kwargs: dict[str, Any], ids: Tensor) -> None:
    """Prompts that are not one left-padded sequence a row."""
    mask = kwargs.get("attention_mask")
    if isinstance(mask, Tensor) and mask.ndim == 2 and mask.shape == ids.shape:
        real = mask.bool()
        if bool((~real[:, -1]).any()):
            raise UnsupportedError(
                "the batch is padded on the right; allowed is left padding, as for generate. "
                "Set processor.tokenizer.padding_side = 'left'."
            )
    if any(kwargs.get(name) is not None for name in ("cu_seq_lens_q", "cu_seq_lens_k")):
        raise UnsupportedError(
            "the prompt is packed (cu_seq_lens); allowed is one prompt a row. Unpack the batch."
        )


def check_one_prompt_a_row(positions: Tensor | None, layouts: Sequence[Layout | None]) -> None:
    """Several prompts behind each other in one row start their positions anew.

    Args:
        positions: as the decoder got them, [.., B, L] or None.
        layouts: of the rows.
    """
    for row, layout in enumerate(layouts):
        if positions is None or layout is None:
            continue
        own = positions[..., min(row, positions.shape[-2] - 1), :].detach().cpu()
        falls = (own[..., layout.text].diff(dim=-1) < 0).nonzero()
        if len(falls):
            place = int(layout.text[int(falls[0, -1]) + 1])
            raise UnsupportedError(
                f"the position ids of row {row} fall back at position {place}, so the row holds "
                "several packed prompts; allowed is one prompt a row. Unpack the batch, padded on "
                "the left."
            )


def check_labels(kwargs: dict[str, Any]) -> None:
    """A loss over a sequence that is shorter than its labels."""
    if kwargs.get("labels") is not None:
        raise UnsupportedError(
            "labels came with a prompt that is compressed, so logits and labels no longer align; "
            "take the loss from the logits at the positions that stay, or leave the context."
        )


def check_windows(windows: dict[int, int], position: int) -> None:
    """Sliding and chunked blocks whose window ends inside the text.

    Args:
        windows: block -> positions it can see.
        position: positions of the text so far, the prompt uncompressed.
    """
    short = {block: window for block, window in windows.items() if window < position}
    if short:
        block, window = min(short.items())
        raise UnsupportedError(
            f"block {block} sees {window} positions at a time and the text has {position} by now; "
            "behind a compaction its window would count compact positions. Keep prompt and answer "
            f"within {window} positions."
        )


def check_length(block: int, states: Tensor, kept: Kept) -> None:
    """A block behind a compaction gets exactly the positions that text and budgets add up to.

    Args:
        block: its number.
        states: [B, L', d], its input.
        kept: the gather that led there.
    """
    if states.shape[1] != kept.length:
        raise RuntimeStateError(
            f"block {block} got {states.shape[1]} positions where the compaction left "
            f"{kept.length}, so something between the blocks changed the sequence; allowed is "
            "what the blocks hand on. Undo the patch, or compress at another boundary."
        )
