"""``audit``: one request looked at from the budget to the decision."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import torch

from vicoset.audit.coverage import coverage_of
from vicoset.audit.decisions import decision
from vicoset.audit.look import MASKED, Look, Reference, look, refer
from vicoset.audit.messages import messages_at
from vicoset.audit.path import path_to
from vicoset.audit.result import Audit
from vicoset.audit.states import distortion_of
from vicoset.core.settings import Settings
from vicoset.errors import PlanError, SettingError
from vicoset.plan import Keep, Plan, plan_named
from vicoset.runtime.engine import depth_of

LIGHT, EVERYTHING = "light", "full"
LEVELS = (LIGHT, EVERYTHING)


def audit(
    model: Any,
    processor: Any,
    images: Any,
    question: str,
    plan: str | Plan = "gmc-h2",
    keep: Keep | int | float = 128,
    *,
    level: str = EVERYTHING,
    **options: Any,
) -> Audit:
    """What a compression did to the evidence of one question.

    Args:
        model: a stock model, outside of every context.
        processor: of the model, with a chat template.
        images: an image (Pillow, path, URL: whatever the processor takes), or several.
        question: the user's text behind the images.
        plan: as in ``compress``.
        keep: the budget.
        level: "light" (coverage, from one compressed prefill) or "full" (states, messages and
            decisions as well, which needs Full's answer and one without the image).
        **options: further ones of :func:`audit_inputs`.
    """
    several = images if isinstance(images, (list, tuple)) else [images]
    parts = [{"type": "image", "image": image} for image in several]
    inputs = processor.apply_chat_template(
        [{"role": "user", "content": [*parts, {"type": "text", "text": question}]}],
        add_generation_prompt=True,
        tokenize=True,
        return_dict=True,
        return_tensors="pt",
    ).to(model.device, dtype=model.dtype)
    tokenizer = getattr(processor, "tokenizer", processor)

    def text(tokens: Sequence[int]) -> str:
        found: str = tokenizer.decode(list(tokens), skip_special_tokens=True)
        return found

    options.setdefault("processor", processor)
    return audit_inputs(model, inputs, plan, keep, level=level, decode=text, **options)


def audit_inputs(
    model: Any,
    inputs: Mapping[str, Any],
    plan: str | Plan = "gmc-h2",
    keep: Keep | int | float = 128,
    *,
    level: str = EVERYTHING,
    blocks: Iterable[int] | None = None,
    limit: int = 8,
    null: str | None = MASKED,
    settings: Settings | None = None,
    prefix: str = "gathered",
    allow_uncertified: bool = False,
    decode: Callable[[Sequence[int]], str] | None = None,
    **more: Any,
) -> Audit:
    """The same for a prompt that is ready for the model: one row, no padding.

    Args:
        model: a stock model, outside of every context.
        inputs: of the prompt, on the model's device.
        plan: as in ``compress``.
        keep: the budget.
        level: "light" or "full".
        blocks: whose messages to compare, from the first boundary on; the boundaries by default.
        limit: most tokens of the answer, and so positions at which decisions are compared.
        null: "masked", "blank" or None; see ``docs/audit.md``.
        settings: the method's numbers.
        prefix: execution mode, as in ``compress``.
        allow_uncertified: as in ``compress``.
        decode: ids to text, for people.
        **more: of ``compress``: processor, companions.
    """
    if level not in LEVELS:
        raise SettingError(
            f"level={level!r}; allowed are {', '.join(map(repr, LEVELS))}. The default is 'full'."
        )
    depth = depth_of(model)
    made = plan_named(plan, depth) if isinstance(plan, str) else plan
    budget = Keep.parse(keep)
    common: dict[str, Any] = {"settings": settings, "prefix": prefix, **more}
    common["allow_uncertified"] = allow_uncertified
    if level == LIGHT:
        seen = look(model, inputs, made, budget, limit=1, **common)
        return assemble(made, budget, seen, decode=decode)
    chosen = checked_blocks(made, depth, blocks)
    reference = refer(
        model, inputs, blocks=chosen, limit=limit, null=null, allow_uncertified=allow_uncertified
    )
    return against(
        reference, model, made, budget, blocks=chosen, limit=limit, decode=decode, **common
    )


def against(
    reference: Reference,
    model: Any,
    plan: Plan,
    keep: Keep,
    *,
    blocks: Iterable[int],
    limit: int,
    decode: Callable[[Sequence[int]], str] | None = None,
    **options: Any,
) -> Audit:
    """The audit of a plan beside runs of Full and of the null that were made already.

    Several plans can share one reference.

    Args:
        reference: of the prompt, with all the blocks.
        model: a stock model, outside of every context.
        plan: what is run.
        keep: the budget.
        blocks: whose messages to compare.
        limit: most tokens of the answer, as the reference had it.
        decode: ids to text, for people.
        **options: of :func:`vicoset.audit.look`.
    """
    inputs, history = reference.inputs, reference.answer.tokens[0]
    seen = look(model, inputs, plan, keep, blocks=blocks, history=history, **options)
    own = None
    if seen.answer.chosen[0] != history:  # its own answer leaves Full's
        own = look(model, inputs, plan, keep, limit=limit, views=False, **options)
    return assemble(plan, keep, seen, reference, own, decode)


def checked_blocks(plan: Plan, depth: int, blocks: Iterable[int] | None) -> list[int]:
    """The blocks whose messages are compared, ascending.

    Args:
        plan: to run.
        depth: L.
        blocks: as given; None for the boundaries.
    """
    if blocks is None:
        return list(plan.boundaries)
    chosen = sorted(set(blocks))
    first = plan.boundaries[0]
    odd = [block for block in chosen if not first <= block < depth]
    if odd:
        raise PlanError(
            f"blocks {odd} of an audit of {plan.name!r}; allowed are {first}, its first boundary, "
            f"to {depth - 1}: before the boundary both runs are the same."
        )
    return chosen


@torch.no_grad()
def assemble(
    plan: Plan,
    keep: Keep,
    seen: Look,
    reference: Reference | None = None,
    own: Look | None = None,
    decode: Callable[[Sequence[int]], str] | None = None,
) -> Audit:
    """The audit of runs that were made; coverage alone without a reference.

    Args:
        plan: that was run.
        keep: the budget.
        seen: the compressed run, along Full's answer where there is a reference.
        reference: Full.
        own: a compressed run with its own answer, where that is another one.
        decode: ids to text.
    """
    start = time.perf_counter()
    measured = [coverage_of(c.scene, c.stage.selector, c.selection) for c in seen.compactions]
    seconds = {"compact": seen.seconds}
    found: dict[str, Any] = {}
    if reference is not None:
        seconds |= reference.seconds
        found["states"] = tuple(distortion_of(one) for one in seen.compactions)
        length = reference.inputs["input_ids"].shape[1]
        groundings = [grounding for _, grounding in measured]
        found["messages"] = tuple(
            messages_at(
                block,
                reference.seen[block],
                call,
                path_to(block, seen.compactions, groundings, length),
            )
            for block, call in sorted(seen.seen.items())
            if any(one.stage.boundary <= block for one in seen.compactions)
        )
        found["decisions"] = _decisions(reference, seen)
        full = tuple(reference.answer.tokens[0])
        found["full_tokens"] = full
        found["compact_tokens"] = full if own is None else tuple(own.answer.tokens[0])
        if decode is not None:
            found["full_answer"] = decode(found["full_tokens"])
            found["compact_answer"] = decode(found["compact_tokens"])
    seconds["arithmetic"] = time.perf_counter() - start
    return Audit(
        plan=plan.name,
        digest=seen.record.digest,
        keep=str(keep),
        record=seen.record,
        coverage=tuple(coverage for coverage, _ in measured),
        seconds=seconds,
        **found,
    )


def _decisions(reference: Reference, seen: Look) -> tuple[Any, ...]:
    full, compact = reference.answer.of(0), seen.answer.of(0)
    steps = min(len(full), len(compact))  # a run with its own answer: what history they share
    return tuple(
        decision(t, full[t], compact[t], None if reference.null is None else reference.null[t])
        for t in range(steps)
    )
