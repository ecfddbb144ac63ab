"""What to compress, where, and how far: budgets, stages, plans and the work they leave."""

from __future__ import annotations

import dataclasses
import hashlib
import itertools
import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from vicoset.core.keep import Keep as Keep
from vicoset.errors import PlanError
from vicoset.methods import registry
from vicoset.methods.base import Realiser, Selector

PAPER_BLOCKS = 28  # depth of the decoder on which the paper names its points H1, H2 and L16
DEFAULT_REALISER = "transport"


@dataclass(frozen=True)
class Stage:
    """One compaction.

    Attributes:
        boundary: p; it happens before block p, 0 is the decoder's input.
        selector: chooses what stays.
        realiser: decides what each carrier holds.
        keep: the stage's own budget; None for the run's.
    """

    boundary: int
    selector: Selector
    realiser: Realiser
    keep: Keep | None = None

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
        if self.keep is not None and not isinstance(self.keep, Keep):
            raise PlanError(
                f"keep={self.keep!r} of a stage is a {type(self.keep).__name__}; allowed are Keep "
                f"and None (the run's budget). Write keep=Keep.parse({self.keep!r})."
            )

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


class Preset(NamedTuple):
    """A plan of one stage that has a name; ``rescaled`` points keep their share of the depth."""

    selector: str
    boundary: int
    rescaled: bool = False
    realiser: str = DEFAULT_REALISER


PRESETS = {
    "gmc-h1": Preset("gmc", 1),
    "gmc-h2": Preset("gmc", 2),
    "gmc-l16": Preset("gmc", 16, rescaled=True),
    "fastv-h2": Preset("fastv", 2, realiser="drop"),
}
_WRITTEN = re.compile(r"([^@+\[\]]+)(\[[^@+\[\]]+\])?(?:\+([^@+]+))?(?:@([0-9]+))?")


def plan_named(text: str, depth: int) -> Plan:
    """The plan of a name: a preset, ``selector@p`` (which transports) or ``selector+realiser@p``.

    Numbers of a method stand in brackets behind it, and a preset may have another realiser.

    Args:
        text: such as ``gmc-h2``, ``gmc@7``, ``random+drop@2``, ``gmc[-history,-spatial]@2``,
            ``gmc-l16[probe_rank=8]+uniform``.
        depth: L, blocks of the decoder.
    """
    name = text.strip()
    notes: list[str] = []
    written = _WRITTEN.fullmatch(name)
    if written is None:
        raise _unreadable(name)
    chosen, realiser = written[1], written[3] or DEFAULT_REALISER
    if written[4]:
        boundary = int(written[4])
    elif chosen in PRESETS:
        chosen, boundary, rescaled, usual = PRESETS[chosen]
        realiser = written[3] or usual
        if rescaled and depth != PAPER_BLOCKS:
            original, boundary = boundary, round(boundary / PAPER_BLOCKS * depth)
            notes.append(
                f"{written[1]} is p = {original} of {PAPER_BLOCKS} blocks; "
                f"this model has {depth}, so p = {boundary}"
            )
    else:
        raise _unreadable(name)
    selector = registry.selector(chosen + (written[2] or ""))
    stage = Stage(boundary, selector, registry.realiser(realiser))
    plan = Plan(name, (stage,), tuple(notes))
    plan.check_depth(depth)
    return plan


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


def work(boundaries: Sequence[int], kept: Sequence[int], tokens: int, depth: int) -> int:
    """W = p_1 N + (p_2 - p_1) K_1 + ... + (L - p_n) K_n, exact visual token-layer work.

    Args:
        boundaries: p of every stage, strictly ascending; none for Full.
        kept: realised K of every stage.
        tokens: N.
        depth: L.
    """
    edges = [0, *boundaries, depth]
    counts = [tokens, *kept]
    ascending = all(a < b for a, b in itertools.pairwise(edges[1:]))
    if len(counts) != len(edges) - 1 or not ascending or min(*edges, *counts) < 0:
        raise PlanError(
            f"boundaries {list(boundaries)} and kept {list(kept)} of {tokens} tokens in {depth} "
            f"blocks; allowed are strictly ascending boundaries in 0 to {depth - 1} and one count "
            "per boundary."
        )
    return sum((b - a) * n for (a, b), n in zip(itertools.pairwise(edges), counts, strict=True))


def work_share(boundaries: Sequence[int], kept: Sequence[int], tokens: int, depth: int) -> float:
    """W / (L N), 1 for a prompt without an image; arguments as in :func:`work`."""
    spent = work(boundaries, kept, tokens, depth)
    return spent / (depth * tokens) if tokens else 1.0


def keep_for_work(target: int, boundary: int, tokens: int, depth: int) -> int:
    """K of a plan of one stage whose work comes nearest to a target: equal work, another boundary.

    Of two that come equally near, the one with less work.

    Args:
        target: W to meet, such as :func:`work` gives it.
        boundary: p of the stage.
        tokens: N.
        depth: L.
    """
    least, most = work([boundary], [0], tokens, depth), depth * tokens
    if not least < target <= most:
        raise PlanError(
            f"no budget before block {boundary} gives the work {target}; with {tokens} tokens in "
            f"{depth} blocks allowed is more than {least} and at most {most}. Choose an earlier "
            "boundary or another target."
        )
    below, rest = divmod(target - least, depth - boundary)
    return max(1, below + (2 * rest > depth - boundary))


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
    return registry.unknown("plan", name, [*PRESETS, *forms])


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
