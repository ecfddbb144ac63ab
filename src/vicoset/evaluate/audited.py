"""Methods whose requests are audited while they are answered: one Full and one null for all."""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Callable, Iterable, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from vicoset.audit import LEVELS, Audit, Reference, against, assemble, look, refer
from vicoset.errors import SettingError
from vicoset.evaluate.method import Method
from vicoset.plan import Keep
from vicoset.runtime.shared import Shared

if TYPE_CHECKING:
    from vicoset.evaluate.answering import Answer, Model

VERSION = 1  # changes when the diagnostics change; part of a run's identity
_WHOLE = Keep(fraction=1.0)


@dataclass
class References:
    """Full and the null on the prompt that all methods look at, made once for all of them.

    Attributes:
        blocks: whose calls in Full are kept.
        null: "masked" or "blank".
    """

    blocks: tuple[int, ...]
    null: str = "masked"
    _inputs: Any = field(default=None, repr=False)
    _found: Reference | None = field(default=None, repr=False)
    _tower: Shared | None = field(default=None, repr=False)

    def of(self, inputs: Any, make: Callable[[], Reference]) -> Reference:
        """The reference of a prompt, from before where it is the same one.

        Args:
            inputs: the prompt, as all methods get it.
            make: runs Full and the null.
        """
        if self._found is None or self._inputs is not inputs:
            self._inputs, self._found = inputs, make()
        return self._found

    def looking(self, asked: Model, inputs: Any) -> AbstractContextManager[None]:
        """All runs on a prompt have the same picture, whose tower runs once.

        Args:
            asked: the model.
            inputs: the prompt.
        """
        if asked.shared is None:
            return nullcontext()
        if self._tower is None:
            # No blocks: runs of an audit look into them, each at its own.
            self._tower = Shared(asked.model, 0)
        return self._tower.of(inputs)


@dataclass(frozen=True)
class Audited(Method):
    """A plan whose every request is audited; its answers are the plan's own.

    Attributes:
        level: "light" (coverage) or "full".
        references: Full and the null.
    """

    level: str = "full"
    references: References = field(default_factory=lambda: References(()), compare=False)

    @property
    def label(self) -> str:
        """``gmc-h2-k128-audit-full``."""
        return f"{super().label}-audit-{self.level}"

    def facts(self) -> dict[str, Any]:
        """What an identity says of it."""
        audit: dict[str, Any] = {"level": self.level, "version": VERSION}
        if self.level == "full":
            audit["null"] = self.references.null
        return {**super().facts(), "audit": audit}

    @property
    def modules(self) -> tuple[str, ...]:
        """Code that its numbers depend on."""
        return ("vicoset.audit.request",)

    def answers(
        self, asked: Model, chats: Callable[[], Sequence[Any]], inputs: Any, limit: int
    ) -> list[Answer]:
        """One answer with its audit.

        Args:
            asked: the model.
            chats: gives the prompts; not used.
            inputs: of one prompt.
            limit: most new tokens.
        """
        from vicoset.evaluate.answering import Answer

        if len(inputs["input_ids"]) != 1:
            raise SettingError(
                f"an audited method got {len(inputs['input_ids'])} prompts at once; allowed is "
                "one. Use --batch 1."
            )
        start = time.perf_counter()
        with self.references.looking(asked, inputs):
            audit = self._audit(asked, inputs, limit)
        text = asked.processor.tokenizer.decode(
            list(audit.compact_tokens),
            skip_special_tokens=True,
            clean_up_tokenization_spaces=False,
        )
        seconds = {"audit": round(time.perf_counter() - start, 6)}
        seconds |= {f"audit:{name}": round(spent, 6) for name, spent in audit.seconds.items()}
        count, numbers = len(audit.compact_tokens), numbers_of(audit)
        return [Answer(text, count, audit.record, seconds, audit=numbers)]

    def _audit(self, asked: Model, inputs: Any, limit: int) -> Audit:
        assert self.plan is not None
        keep, options = self.keep or _WHOLE, asked.options
        ready = inputs.to(asked.model.device, dtype=asked.model.dtype)
        if self.level != "full":
            seen = look(asked.model, ready, self.plan, keep, limit=limit, **options)
            light = assemble(self.plan, keep, seen)
            return dataclasses.replace(light, compact_tokens=tuple(seen.answer.tokens[0]))
        reference = self.references.of(
            inputs,
            lambda: refer(
                asked.model,
                ready,
                blocks=self.references.blocks,
                limit=limit,
                null=self.references.null,
                allow_uncertified=options["allow_uncertified"],
            ),
        )
        blocks = self.plan.boundaries
        return against(
            reference, asked.model, self.plan, keep, blocks=blocks, limit=limit, **options
        )


def audited(methods: Iterable[Method], level: str = "full", null: str = "masked") -> list[Method]:
    """The same methods, audited; Full stays as it is.

    Args:
        methods: with their budgets.
        level: "light" or "full".
        null: the model without the image, "masked" or "blank".
    """
    if level not in LEVELS:
        raise SettingError(f"level={level!r}; allowed are {', '.join(map(repr, LEVELS))}.")
    given = list(methods)
    plans = [method.plan for method in given if method.plan is not None]
    references = References(tuple(sorted({p for plan in plans for p in plan.boundaries})), null)
    return [
        one if one.plan is None else Audited(one.plan, one.keep, one.seed, level, references)
        for one in given
    ]


def numbers_of(audit: Audit) -> dict[str, Any]:
    """What tables are made of, as JSON values.

    Args:
        audit: of one request.
    """
    found: dict[str, Any] = {
        "statements": sum(map(len, audit.checks.values())),
        "violations": list(audit.violations),
        "coverage": [_coverage(one) for one in audit.coverage],
    }
    if not audit.decisions:
        return found
    first = audit.decisions[0]
    assert first.prior is not None
    found["messages"] = [
        {
            name: getattr(one, name)
            for name in ("block", "error", "direction", "amplitude", "representation", "mass")
        }
        | {"grouped": one.grouped, "budget": one.budget}
        for one in audit.messages
    ]
    found["states"] = [{"before": one.before, "behind": one.behind} for one in audit.states]
    found["decision"] = {
        "vie": first.prior.vie,
        "distortion": first.prior.distortion,
        "rho": first.ratio if first.ratio < float("inf") else None,
        "certified": first.certified,
        "flip": first.flip,
        "escape": first.prior.escape,
    }
    found["positions"] = {
        "count": len(audit.decisions),
        "certified": sum(one.certified for one in audit.decisions),
        "flips": sum(one.flip for one in audit.decisions),
        "certified_flips": sum(one.certified and one.flip for one in audit.decisions),
        "escapes": sum(one.prior is not None and one.prior.escape for one in audit.decisions),
    }
    return found


def _coverage(one: Any) -> dict[str, Any]:
    """A stage's coverage: all, by bank, and what is left of the grid and of appearance."""
    return {
        "boundary": one.boundary,
        "all": one.ratio,
        **{bank.name: bank.saturation for bank in one.banks},
        "certificate": one.certificate,
        "grid": one.grid,
        "distance": one.quantisation.distance,
        "bound": one.quantisation.bound,
    }
