"""The two lines: ``with compress(model, "gmc-h2", keep=128) as run: model.generate(...)``."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from types import TracebackType
from typing import Any

from vicoset.core.settings import Settings
from vicoset.errors import PlanError, RuntimeStateError, SettingError
from vicoset.plan import Keep, Plan, plan_named
from vicoset.runtime.checkpoint import load
from vicoset.runtime.checks import check_top
from vicoset.runtime.compact import Compaction, Watch
from vicoset.runtime.downsample import Downsample
from vicoset.runtime.engine import AUDITS, PREFIXES, Engine, depth_of
from vicoset.runtime.record import Record, Records
from vicoset.runtime.record_lines import append

__all__ = ["Compaction", "Run", "compress", "downsample", "load"]


class Run:
    """A plan on a model: a context manager, or :meth:`attach` and :meth:`detach` by hand.

    Attributes:
        last: the record of the latest prompt (records, for a batch); None before the first.
        records: all records, a row each.
    """

    def __init__(self, engine: Engine) -> None:
        self._engine = engine

    @property
    def plan(self) -> Plan:
        """What is being run."""
        return self._engine.plan

    @property
    def last(self) -> Record | Records | None:
        """The record of the latest prompt."""
        return self._engine.last

    @property
    def records(self) -> list[Record]:
        """The records of all prompts so far."""
        return self._engine.records

    def write(
        self, path: str | os.PathLike[str], about: Sequence[Mapping[str, Any]] | None = None
    ) -> None:
        """Append all records to a file, a sealed JSON line each.

        Args:
            path: of the file.
            about: for each record what only the caller knows: run, sample and unit ids, the raw
                and the normalised answer, the score.
        """
        told = [{}] * len(self.records) if about is None else about
        if len(told) != len(self.records):
            raise RuntimeStateError(
                f"about has {len(told)} entries for {len(self.records)} records; allowed is one "
                "each, in the order of run.records. Pass about=None to write them without."
            )
        rows = zip(self.records, told, strict=True)
        append(path, [record.to_json(known) for record, known in rows])

    def attach(self) -> Run:
        """Compress the model's prompts from here on."""
        self._engine.attach()
        return self

    def detach(self) -> None:
        """Leave the model as it was; the records stay."""
        self._engine.detach()

    def __enter__(self) -> Run:
        """Attach."""
        return self.attach()

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Detach, also after an exception."""
        self.detach()


def compress(
    model: Any,
    plan: str | Plan = "gmc-h2",
    keep: Keep | int | float = 128,
    *,
    prefix: str = "gathered",
    positions: str = "original",
    settings: Settings | None = None,
    allow_uncertified: bool = False,
    watch: Watch | None = None,
    audit: str = "light",
    record_to: str | os.PathLike[str] | None = None,
    processor: Any = None,
    companions: Mapping[str, Any] | None = None,
) -> Run:
    """Compress the visual tokens of a Hugging Face vision-language model inside its decoder.

    Args:
        model: a stock model; its own ``generate`` and forward are used as before.
        plan: a preset ("gmc-h1", "gmc-h2", "gmc-l16", "gmc@7") or a plan of your own.
        keep: how many visual tokens of each prompt: ``Keep``, an int (a count) or a float (a
            fraction). Stages with a budget of their own use theirs.
        prefix: ``"gathered"`` (blocks before the boundary keep K entries while decoding),
            ``"dense"`` (they keep all N) or ``"replay"`` (no cache; the functional specification).
        positions: ``"original"`` (every token keeps the position that the whole prompt gave it) or
            ``"packed"`` (behind a boundary the kept ones are counted from 0, as released code of
            some methods does; Qwen-VL and LLaVA decoders).
        settings: the method's numbers.
        allow_uncertified: go on with a model family that no contract test covers.
        watch: is called with a ``Compaction`` for each row that a stage compressed: what its
            methods saw, chose and realised. Nothing of it is kept unless the callable keeps it.
        audit: "none" (what was kept and what it costs), "light" (coverage and its certificate as
            well) or "full" (where every token went as well).
        record_to: a file to which every prompt's records are appended, a sealed JSON line a row.
        processor: of the model (or its tokenizer), for methods that read the question as a string.
        companions: further models that a method can use, by name, such as a CLIP text tower.

    Returns:
        a :class:`Run`; nothing happens to the model before it is attached or entered.
    """
    if prefix not in PREFIXES:
        raise PlanError(
            f"prefix={prefix!r}; allowed are {', '.join(map(repr, PREFIXES))}. "
            "The default is 'gathered'."
        )
    if audit not in AUDITS:
        raise PlanError(
            f"audit={audit!r}; allowed are {', '.join(map(repr, AUDITS))}. The default is 'light'."
        )
    check_top(model)
    if isinstance(plan, str):
        plan = plan_named(plan, depth_of(model))
    if not isinstance(plan, Plan):
        raise PlanError(
            f"plan={plan!r} is a {type(plan).__name__}; allowed are a name such as 'gmc-h2' and a "
            "Plan. Stages make one as Plan('mine', (stage, ...))."
        )
    if not isinstance(settings, Settings | None):
        raise SettingError(
            f"settings={settings!r} is a {type(settings).__name__}; allowed is a Settings. Write "
            "settings=Settings(max_queries=64)."
        )
    return Run(
        Engine(
            model,
            plan,
            Keep.parse(keep),
            prefix=prefix,
            positions=positions,
            settings=settings,
            allow_uncertified=allow_uncertified,
            watch=watch,
            audit=audit,
            record_to=record_to,
            processor=processor,
            companions=companions,
        )
    )


def downsample(model: Any, processor: Any, keep: Keep | int | float = 128) -> Downsample:
    """The control that makes the images themselves smaller, until their grids have K cells.

    ``small.encode(chats)`` gives inputs and says which grids there are; inside
    ``with small.attached():`` the model takes them.

    Args:
        model: a stock model.
        processor: of the model.
        keep: the budget of each prompt: ``Keep``, an int (a count) or a float (a fraction).
    """
    check_top(model)
    return Downsample(model, processor, keep)
