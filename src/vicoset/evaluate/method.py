"""The methods of a comparison: Full, plans with their budgets and seeds, and smaller images."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields, is_dataclass, replace
from typing import TYPE_CHECKING, Any

from vicoset.errors import PlanError
from vicoset.evaluate.entry import FULL
from vicoset.plan import Keep, Plan, plan_named
from vicoset.runtime import downsample

if TYPE_CHECKING:
    from vicoset.evaluate.answering import Answer, Model


@dataclass(frozen=True)
class Method:
    """One row of a comparison.

    Attributes:
        plan: what is run; None for Full.
        keep: the budget; None for Full and for plans whose stages all have their own.
        seed: of a method that draws; None for one that does not.
    """

    plan: Plan | None = None
    keep: Keep | None = None
    seed: int | None = None

    @property
    def name(self) -> str:
        """The method's name for tables: that of the first stage's selector, or "full"."""
        return FULL if self.plan is None else self.plan.stages[0].selector.name

    @property
    def asked(self) -> str:
        """The plan's name, or "full"."""
        return FULL if self.plan is None else self.plan.name

    @property
    def requested(self) -> str:
        """The budget as asked for, "full", or "own" where the plan brings its budgets along."""
        if self.keep is None:
            return FULL if self.plan is None else "own"
        return str(self.keep)

    @property
    def query_aware(self) -> bool:
        """Whether a stage's choice depends on the question."""
        return self.plan is not None and any(s.selector.query_aware for s in self.plan.stages)

    @property
    def label(self) -> str:
        """``gmc-h2-k128``, ``random@2-k128-s1`` or ``full``."""
        if self.plan is None:
            return FULL
        seed = f"-s{self.seed}" if self.seed else ""
        keep = "" if self.keep is None else f"-k{self.requested}"
        return f"{self.plan.name}{keep}{seed}"

    def facts(self) -> dict[str, Any]:
        """What an identity says of it; :attr:`plan`'s numbers are in its digest."""
        if self.plan is None:
            return {"plan": FULL}
        return {"plan": self.plan.digest(), "keep": self.requested}

    @property
    def modules(self) -> tuple[str, ...]:
        """Further code that answers depend on."""
        return ()

    def answers(
        self, asked: Model, chats: Callable[[], Sequence[Any]], inputs: Any, limit: int
    ) -> list[Answer]:
        """An answer per prompt.

        Args:
            asked: the model.
            chats: gives the prompts, images and all.
            inputs: the prompts as the model takes them.
            limit: most new tokens.
        """
        return asked.generate(self, inputs, limit)


@dataclass(frozen=True)
class Downsampled(Method):
    """The control whose images are made smaller, see :mod:`vicoset.runtime.downsample`."""

    @property
    def name(self) -> str:
        """Its name for tables."""
        return downsample.NAME

    @property
    def asked(self) -> str:
        """Its name in the place of a plan's."""
        return downsample.NAME

    @property
    def requested(self) -> str:
        """The budget as asked for."""
        return str(self.keep)

    @property
    def label(self) -> str:
        """``downsample-k128``."""
        return f"{self.name}-k{self.requested}"

    def facts(self) -> dict[str, Any]:
        """What an identity says of it."""
        return {"plan": self.name, "keep": self.requested}

    @property
    def modules(self) -> tuple[str, ...]:
        """Code that its answers depend on."""
        return (downsample.__name__,)

    def answers(
        self, asked: Model, chats: Callable[[], Sequence[Any]], inputs: Any, limit: int
    ) -> list[Answer]:
        """An answer per prompt, whose images are prepared anew.

        Args:
            asked: the model.
            chats: gives the prompts, images and all.
            inputs: the prompts with the images as they came; not used.
            limit: most new tokens.
        """
        assert self.keep is not None
        start = time.perf_counter()
        small = downsample.Downsample(asked.model, asked.processor, self.keep)
        shrunk = small.encode(chats())
        spent = round((time.perf_counter() - start) / len(shrunk.full), 6)
        with small.attached():
            rows = asked.generate(self, shrunk.inputs, limit)
        records = shrunk.records([row.record for row in rows])
        return [
            row._replace(record=record, seconds={"prepare": spent, **row.seconds})
            for row, record in zip(rows, records, strict=True)
        ]


def methods_of(
    plans: Sequence[str | Plan],
    keeps: Sequence[Keep | int | float],
    depth: int,
    seeds: Sequence[int] = (0,),
) -> list[Method]:
    """Every plan with every budget, and with every seed where it draws; Full once.

    So are plans whose stages all have budgets of their own, which leave the run's nothing to say.

    Args:
        plans: names such as "full", "downsample", "gmc-h2", "random+drop@2", or plans.
        keeps: budgets.
        depth: L, blocks of the decoder.
        seeds: for the plans that draw.
    """
    made: list[Method] = []
    for given in plans:
        if given == FULL:
            made.append(Method())
            continue
        if given == downsample.NAME:
            made += [_downsampled(Keep.parse(keep)) for keep in keeps]
            continue
        plan = plan_named(given, depth) if isinstance(given, str) else given
        drawn = [(None, plan)] if not _draws(plan) else [(s, _seeded(plan, s)) for s in seeds]
        budgets = [Keep.parse(keep) for keep in keeps] if plan.reads_keep else [None]
        if not budgets:
            raise PlanError(
                f"plan {plan.name!r} came without a budget; allowed are one or more. Pass "
                "keeps=(64, 128), or --keeps 64,128."
            )
        made += [Method(plan, keep, seed) for keep in budgets for seed, plan in drawn]
    return list(dict.fromkeys(made))


def _downsampled(keep: Keep) -> Method:
    """The control, or an error that says which budgets it has."""
    downsample.check(keep)
    return Downsampled(keep=keep)


def budget_of(text: str) -> Keep:
    """A count (128), a fraction (0.1 or 10%) or a coverage (coverage=0.95:min=16:max=256).

    Args:
        text: of a command.
    """
    return Keep.read(text)


def _draws(plan: Plan) -> bool:
    return any(_has_seed(m) for s in plan.stages for m in (s.selector, s.realiser))


def _has_seed(method: Any) -> bool:
    return is_dataclass(method) and any(field.name == "seed" for field in fields(method))


def _seeded(plan: Plan, seed: int) -> Plan:
    def own(method: Any) -> Any:
        return replace(method, seed=seed) if _has_seed(method) else method

    stages = [
        replace(stage, selector=own(stage.selector), realiser=own(stage.realiser))
        for stage in plan.stages
    ]
    return replace(plan, stages=tuple(stages))
