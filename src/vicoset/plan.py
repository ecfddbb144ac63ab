"""What to compress, where, and how far: budgets, stages, plans and the work they leave."""

from __future__ import annotations

import dataclasses
import hashlib
import itertools
import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from vicoset.core.derived import Derived as Derived
from vicoset.core.keep import Keep as Keep
from vicoset.core.work import keep_for_work as keep_for_work
from vicoset.core.work import work as work
from vicoset.core.work import work_share as work_share
from vicoset.errors import PlanError
from vicoset.methods import registry
from vicoset.methods.base import Realiser, Selector
from vicoset.methods.presets import PAPER_BLOCKS as PAPER_BLOCKS
from vicoset.methods.presets import PRESETS as PRESETS
from vicoset.methods.presets import Recipe, Step

DEFAULT_REALISER = "transport"


@dataclass(frozen=True)
class Stage:
    """One compaction.

    Attributes:
        boundary: p; it happens before block p, 0 is the decoder's input.
        selector: chooses what stays.
        realiser: decides what each carrier holds.
        keep: the stage's own budget, of what the stage before left, or one that follows from the
            prompt's tokens and the run's budget; None for the run's.
    """

    boundary: int
    selector: Selector
    realiser: Realiser
    keep: Keep | Derived | None = None

    def __post_init__(self) -> None:
        """Refuse what could not run anywhere."""
        p: object = self.boundary
        if isinstance(p, bool) or not isinstance(p, int) or p < 0:
            raise PlanError(
                f"boundary={p!r}; allowed are whole numbers from 0 (the decoder's input) on. "
                "Write boundary=2 to compress before block 2."
            )
        for role, verb in (("selector", "select"), ("realiser", "realise")):
            method = getattr(self, role)
            if isinstance(method, type) or not callable(getattr(method, verb, None)):
                raise PlanError(
                    f"{role}={method!r} is no {role}; allowed are objects with a method {verb}(). "
                    f"Make one by its class, or by registry.{role}(name)."
                )
        if self.keep is not None and not isinstance(self.keep, Keep | Derived):
            raise PlanError(
                f"keep={self.keep!r} of a stage is a {type(self.keep).__name__}; allowed are Keep, "
                "Derived (of the prompt and the run's budget) and None (the run's budget). Write "
                f"keep=Keep.parse({self.keep!r})."
            )

    def budget(self, keep: Keep, tokens: int, images: int = 1) -> Keep:
        """The stage's budget on one prompt.

        Args:
            keep: the run's.
            tokens: N of the prompt, before any stage.
            images: I.
        """
        if isinstance(self.keep, Derived):
            return self.keep.of(keep, tokens, images)
        return self.keep or keep

    def __str__(self) -> str:
        """``selector+realiser@p``, with the stage's own budget where it has one."""
        own = "" if self.keep is None else f" keep {self.keep}"
        return f"{self.selector.name}+{self.realiser.name}@{self.boundary}{own}"


@dataclass(frozen=True)
class Plan:
    """Stages in the order in which a prompt meets them.

    Attributes:
        name: for people.
        stages: boundaries strictly ascending.
        notes: what a reader should know about how the plan was made; no part of what it is.
    """

    name: str
    stages: tuple[Stage, ...]
    notes: tuple[str, ...] = field(default=(), compare=False)

    def __post_init__(self) -> None:
        """Refuse an empty plan and boundaries that do not ascend."""
        object.__setattr__(self, "stages", tuple(self.stages))
        if not self.name or not self.stages:
            raise PlanError(
                f"plan {self.name!r} has {len(self.stages)} stages; a name and at least one stage "
                "are needed. plan_named('gmc-h2', depth) makes a plan of one."
            )
        p = self.boundaries
        if any(after <= before for before, after in itertools.pairwise(p)):
            raise PlanError(
                f"plan {self.name!r} has the boundaries {list(p)}; allowed are strictly ascending "
                f"ones. Order the stages as {sorted(set(p))}, one stage per boundary."
            )

    @property
    def boundaries(self) -> tuple[int, ...]:
        """p of every stage."""
        return tuple(stage.boundary for stage in self.stages)

    def to_json(self) -> dict[str, Any]:
        """Name, boundaries, budgets and the methods with their numbers, as JSON values."""
        content = {
            "name": self.name,
            "stages": [
                {
                    "boundary": stage.boundary,
                    "selector": _described(stage.selector),
                    "realiser": _described(stage.realiser),
                    "keep": None if stage.keep is None else stage.keep.to_json(),
                }
                for stage in self.stages
            ],
        }
        found: dict[str, Any] = json.loads(json.dumps(content, default=_refuse))
        return found

    def digest(self) -> str:
        """16 hex digits that change with the name, a boundary, a budget or a method's number."""
        return digest_of_content(self.to_json())

    def counts(self, keep: Keep, tokens: int, images: int = 1) -> tuple[list[int], list[int]]:
        """K behind every stage, least and most: one list twice but for a budget by coverage.

        Args:
            keep: the run's budget.
            tokens: N.
            images: I.
        """
        ends: tuple[list[int], list[int]] = ([], [])
        for end, found in enumerate(ends):
            left = tokens
            for stage in self.stages:
                left = stage.budget(keep, tokens, images).limits(left, images)[end]
                found.append(left)
        return ends

    @property
    def reads_keep(self) -> bool:
        """Whether the run's budget says anything here; else every stage has its own."""
        own = [stage.keep for stage in self.stages]
        return any(k is None or (isinstance(k, Derived) and k.reads_keep) for k in own)

    def check_depth(self, depth: int) -> None:
        """Raise when a boundary lies behind the last block.

        Args:
            depth: L, blocks of the decoder.
        """
        last = self.boundaries[-1]
        if last >= depth:
            raise PlanError(
                f"plan {self.name!r} has a boundary p = {last}, and this model has {depth} blocks; "
                f"allowed are 0 to {depth - 1}. Choose a smaller p, such as @{depth // 2}."
            )


_WRITTEN = re.compile(r"([^@+\[\]]+)(\[[^@+\[\]]+\])?(?:\+([^@+]+))?(?:@([0-9]+))?")


def plan_named(text: str, depth: int) -> Plan:
    """The plan of a name: a preset, ``selector@p`` (which transports) or ``selector+realiser@p``.

    Numbers of a method stand in brackets behind it, and a preset may have another realiser.

    Args:
        text: such as ``gmc-h2``, ``gmc@7``, ``random+drop@2``, ``gmc[-history,-spatial]@2``,
            ``gmc-l16[probe_rank=8]+uniform``, ``pyramiddrop``.
        depth: L, blocks of the decoder.
    """
    name = text.strip()
    written = _WRITTEN.fullmatch(name)
    if written is None:
        raise _unreadable(name)
    chosen, numbers, realiser, boundary = written[1], written[2] or "", written[3], written[4]
    if boundary:
        recipe = Recipe((Step(int(boundary), chosen),), DEFAULT_REALISER)
    elif chosen in PRESETS:
        recipe = PRESETS[chosen](depth)
    else:
        raise _unreadable(name)
    plan = plan_of(name, recipe, realiser, numbers)
    plan.check_depth(depth)
    return plan


def plan_of(name: str, recipe: Recipe, realiser: str | None = None, numbers: str = "") -> Plan:
    """The plan of a recipe.

    Args:
        name: of the plan.
        recipe: its stages.
        realiser: another than the recipe's.
        numbers: of every stage's selector, in brackets.
    """
    stages = [
        Stage(
            step.boundary,
            registry.selector(step.selector + numbers),
            registry.realiser(realiser or recipe.realiser),
            step.keep,
        )
        for step in recipe.steps
    ]
    return Plan(name, tuple(stages), recipe.notes)


def names_in(text: str) -> list[str]:
    """The names of a list with commas, such as ``gmc-h2,gmc[-history,-spatial]@2``.

    Args:
        text: commas inside brackets belong to the name.
    """
    parts = re.split(r",(?![^\[\]]*\])", text)
    return [part.strip() for part in parts if part.strip()]


def digest_of_content(content: Mapping[str, Any]) -> str:
    """The digest of a plan from what :meth:`Plan.to_json` said of it."""
    text = json.dumps(content, sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def equal_work(plan: Plan, target: int, tokens: int, depth: int, images: int = 1) -> Keep:
    """The run's budget with which a plan's work comes nearest to a target, for plans of any depth.

    Of two that come equally near, the one with less work.

    Args:
        plan: whose budget is sought.
        target: W to meet, such as :func:`work` gives it.
        tokens: N.
        depth: L.
        images: I.
    """

    def spent(keep: int) -> int:
        kept, _ = plan.counts(Keep(tokens=keep), tokens, images)
        return work(plan.boundaries, kept, tokens, depth)

    least, most = spent(images), spent(tokens)
    if not plan.reads_keep or not least <= target <= most:
        raise PlanError(
            f"no budget of plan {plan.name!r} gives the work {target}; with {tokens} tokens in "
            f"{depth} blocks it spends between {least} and {most}. Choose an earlier boundary or "
            "another target."
        )
    low, high = images, tokens  # spent never falls with K: the last K that does not overshoot
    while low < high:
        middle = (low + high + 1) // 2
        low, high = (middle, high) if spent(middle) <= target else (low, middle - 1)
    above = low < tokens and spent(low + 1) - target < target - spent(low)
    return Keep(tokens=low + above)


def _unreadable(name: str) -> Exception:
    """The error for a text that is neither a preset nor of the form ``selector@p``."""
    known = registry.names()
    if "@" in name or re.split(r"[\[+]", name)[0] in known.selectors:
        return PlanError(
            f"plan {name!r} names no boundary, or has brackets that hold nothing; allowed are "
            f"{', '.join(PRESETS)}, <selector>@p and <selector>+<realiser>@p with a whole number "
            "p, numbers as in gmc[-history,probe_rank=8]@p. Write gmc@2 to compress before block 2."
        )
    forms = [f"{selector}@p" for selector in known.selectors]
    forms += [f"{s}+{r}@p" for s in known.selectors for r in known.realisers]
    told = f"{', '.join(PRESETS)}, <selector>@p and <selector>+<realiser>@p (see vicoset methods)"
    return registry.unknown("plan", name, [*PRESETS, *forms], told)


def _described(method: Any) -> dict[str, Any]:
    """A method's name, class and numbers."""
    if dataclasses.is_dataclass(method):
        numbers = {f.name: getattr(method, f.name) for f in dataclasses.fields(method)}
    else:
        numbers = dict(getattr(method, "__dict__", {}))
    return {"name": method.name, "class": type(method).__qualname__, "fields": numbers}


def _refuse(value: Any) -> Any:
    raise PlanError(
        f"a method of the plan holds {value!r}, a {type(value).__name__}, so the plan has no "
        "digest; allowed are numbers, texts, booleans, None and lists of them. Make the method a "
        "frozen dataclass with flat scalar fields."
    )
