"""The methods of a comparison: Full, and plans with their budgets and seeds."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields, is_dataclass, replace
from typing import Any

from vicoset.errors import PlanError
from vicoset.evaluate.entry import FULL
from vicoset.plan import Keep, Plan, plan_named


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


def methods_of(
    plans: Sequence[str | Plan],
    keeps: Sequence[Keep | int | float],
    depth: int,
    seeds: Sequence[int] = (0,),
) -> list[Method]:
    """Every plan with every budget, and with every seed where it draws; Full once.

    So are plans whose stages all have budgets of their own, which leave the run's nothing to say.

    Args:
        plans: names such as "full", "gmc-h2", "random+drop@2", or plans.
        keeps: budgets.
        depth: L, blocks of the decoder.
        seeds: for the plans that draw.
    """
    made: list[Method] = []
    for given in plans:
        if given == FULL:
            made.append(Method())
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
