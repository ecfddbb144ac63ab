"""The runs that an audit looks at: Full, compressed, and without the image."""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Iterable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

from vicoset.api import compress
from vicoset.core.settings import Settings
from vicoset.errors import SettingError, ShapeError
from vicoset.methods.base import VIEWS, Scene, Selection, Selector
from vicoset.methods.covering import Covering, Target
from vicoset.plan import Keep, Plan
from vicoset.runtime.blind import Blind
from vicoset.runtime.compact import Compaction
from vicoset.runtime.history import Answer, along, answer
from vicoset.runtime.observe import Observer
from vicoset.runtime.record import Record, digest_of
from vicoset.runtime.record_json import request_of
from vicoset.runtime.tap import Seen

MASKED, BLANK = "masked", "blank"
NULLS = (MASKED, BLANK)
_PIXELS = ("pixel_values", "pixel_values_videos")


@dataclass(frozen=True)
class Reference:
    """Full's answer to a prompt, what its blocks were called with, and the null's logits.

    Attributes:
        inputs: of the prompt: one row, no padding.
        answer: Full's own.
        seen: block -> its call in the prompt's forward.
        null: [T, V] in front of Full's own history; None when no null was asked for.
        seconds: of the runs, by name.
    """

    inputs: Mapping[str, Any]
    answer: Answer
    seen: Mapping[int, Seen]
    null: Tensor | None
    seconds: Mapping[str, float]


@dataclass(frozen=True)
class Look:
    """A compressed run of a prompt.

    Attributes:
        record: of the prompt.
        compactions: of all stages; fewer where a stage had nothing to compress.
        seen: block -> its call in the prompt's forward.
        answer: along a given history, or the compact run's own.
        seconds: of the run.
    """

    record: Record
    compactions: tuple[Compaction, ...]
    seen: Mapping[int, Seen]
    answer: Answer
    seconds: float = field(compare=False, default=0.0)


def refer(
    model: Any,
    inputs: Mapping[str, Any],
    *,
    blocks: Iterable[int] = (),
    limit: int = 8,
    null: str | None = MASKED,
    allow_uncertified: bool = False,
) -> Reference:
    """Run Full, and the model without the image along Full's answer.

    Args:
        model: outside of every context.
        inputs: of the prompt, on the model's device.
        blocks: whose calls to keep.
        limit: most tokens of the answer.
        null: "masked" takes the visual columns from every text query, from block 0 on; "blank"
            shows an image whose normalised pixels are all 0; None leaves the null out.
        allow_uncertified: as in ``compress``.
    """
    check_single(inputs)
    if null is not None and null not in NULLS:
        raise SettingError(
            f"null={null!r}; allowed are {', '.join(map(repr, NULLS))} and None. The default is "
            f"{MASKED!r}: the visual columns are removed from every text query."
        )
    start = time.perf_counter()
    with Observer(model, blocks) as observer:
        found = answer(model, inputs, limit)
    seconds = {"full": time.perf_counter() - start}
    start, logits = time.perf_counter(), None
    if null == MASKED:
        with Blind(model, allow_uncertified=allow_uncertified):
            logits = along(model, inputs, found.tokens).of(0)
    elif null == BLANK:
        logits = along(model, blank(inputs), found.tokens).of(0)
    if null is not None:
        seconds["null"] = time.perf_counter() - start
    return Reference(inputs, found, observer.seen, logits, seconds)


def look(
    model: Any,
    inputs: Mapping[str, Any],
    plan: Plan,
    keep: Keep,
    *,
    blocks: Iterable[int] = (),
    history: Sequence[int] | None = None,
    limit: int = 8,
    settings: Settings | None = None,
    prefix: str = "gathered",
    allow_uncertified: bool = False,
    views: bool = True,
    **options: Any,
) -> Look:
    """Run a plan once, along a history or with its own answer, and keep what it saw and did.

    Args:
        model: outside of every context.
        inputs: of the prompt, on the model's device.
        plan: what is run.
        keep: the budget.
        blocks: whose calls to keep.
        history: ids of the answer to follow; None for the compact run's own.
        limit: most tokens of its own answer.
        settings: the method's numbers.
        prefix: execution mode, as in ``compress``.
        allow_uncertified: as in ``compress``.
        views: have every stage's scene hold its views, whatever the stage's methods read.
        **options: more of ``compress``: its processor, its companions.
    """
    check_single(inputs)
    seen: list[Compaction] = []
    start = time.perf_counter()
    with ExitStack() as contexts:
        observer = contexts.enter_context(Observer(model, blocks))
        run = contexts.enter_context(
            compress(
                model,
                with_views(plan) if views else plan,
                keep,
                prefix=prefix,
                settings=settings,
                allow_uncertified=allow_uncertified,
                watch=seen.append,
                audit="full",
                **options,
            )
        )
        if history is None:
            found = answer(model, inputs, limit)
        else:
            found = along(model, inputs, [list(history)])
    seconds = time.perf_counter() - start
    record = dataclasses.replace(
        run.records[-1],
        digest=digest_of(plan, settings or Settings()),
        request=request_of(model, plan, keep, settings or Settings()),
    )
    own = {stage.boundary: stage for stage in plan.stages}
    done = [one._replace(stage=own[one.stage.boundary]) for one in seen]
    return Look(record, tuple(done), observer.seen, found, seconds)


def blank(inputs: Mapping[str, Any]) -> dict[str, Any]:
    """The same prompt with an image of the processor's mean colour.

    Args:
        inputs: of the prompt.
    """
    zeros = {name: torch.zeros_like(inputs[name]) for name in _PIXELS if name in inputs}
    return {**inputs, **zeros}


def check_single(inputs: Mapping[str, Any]) -> None:
    """Raise unless a prompt is one row without padding.

    Args:
        inputs: of the prompt.
    """
    ids, mask = inputs["input_ids"], inputs.get("attention_mask")
    whole = mask is None or bool(mask.all())
    if len(ids) != 1 or not whole:
        raise ShapeError(
            f"an audit got {len(ids)} rows{'' if whole else ' with padding'}; allowed is one "
            "request without padding. Audit the rows one after the other."
        )


def with_views(plan: Plan) -> Plan:
    """The same plan, whose stages are all given their views.

    Args:
        plan: to run.
    """
    stages = []
    for stage in plan.stages:
        if VIEWS not in stage.selector.needs | stage.realiser.needs:
            kind = _CoveringWithViews if isinstance(stage.selector, Covering) else _WithViews
            stage = dataclasses.replace(stage, selector=kind(stage.selector))
        stages.append(stage)
    return dataclasses.replace(plan, stages=tuple(stages))


class _WithViews:
    """A selector that asks for views too and otherwise does what another one does.

    It has slots, and so no numbers of its own for a digest.
    """

    __slots__ = ("_inner",)

    def __init__(self, inner: Selector) -> None:
        self._inner = inner

    @property
    def name(self) -> str:
        """Of the other one."""
        return self._inner.name

    @property
    def query_aware(self) -> bool:
        """Of the other one."""
        return self._inner.query_aware

    @property
    def needs(self) -> frozenset[str]:
        """Of the other one, and views."""
        return self._inner.needs | {VIEWS}

    def select(self, scene: Scene, keep: int) -> Selection:
        """What the other one selects."""
        return self._inner.select(scene, keep)


class _CoveringWithViews(_WithViews):
    """The same for a selector that can choose its own K."""

    __slots__ = ()

    def select_covering(self, scene: Scene, target: Target) -> Selection:
        """What the other one selects."""
        inner = self._inner
        assert isinstance(inner, Covering)
        return inner.select_covering(scene, target)
