"""The model's side: items to chats, chats to answers, answers to entries."""

from __future__ import annotations

import copy
import os
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import Any, NamedTuple

import torch
from torch import Tensor

from vicoset.api import Run, compress
from vicoset.core.settings import Settings
from vicoset.errors import UnreadableError, VicosetError
from vicoset.evaluate import measured
from vicoset.evaluate.blocks import Block
from vicoset.evaluate.entry import Entry
from vicoset.evaluate.method import Method
from vicoset.evaluate.peak import Peak
from vicoset.evaluate.stopwatch import Watch as Stopwatch
from vicoset.evaluate.task import Item, Task
from vicoset.plan import Keep, plan_named
from vicoset.runtime.compact import Watch
from vicoset.runtime.downsample import templated
from vicoset.runtime.record import Record
from vicoset.runtime.record_lines import append
from vicoset.runtime.shared import Shared
from vicoset.runtime.square import squared

VERSION = "1"  # changes when the way of asking changes; part of a run's identity
AUDIT = "audit"  # where an entry's evidence holds the diagnostics of an audit


class Answer(NamedTuple):
    """What a model said to one prompt.

    Attributes:
        text: without special tokens.
        tokens: of the answer, its end included.
        record: of the prompt.
        seconds: of the request and its parts.
        peak: most bytes of memory meanwhile.
        audit: diagnostics of the request; None where nobody audited.
    """

    text: str
    tokens: int
    record: Record
    seconds: dict[str, float]
    peak: int = 0
    audit: dict[str, Any] | None = None


class Model:
    """A model and its processor, asked the way every method is asked: one user turn, greedy.

    Full runs through a context whose budget is all tokens: the model's own path, bit for bit, and
    its record has the same numbers as every other method's.

    Attributes:
        support: whether entries keep the kept indices.
        evidence: whether they keep what the methods measured.
        processor: of the model; with other bounds where one size of images was asked for.
        shared: what methods compute alike on one prompt, computed once; None to run all of it every
            time, as times need it.
        records: a file that gets the sealed record of every answer; None for none.
        asked_with: choices and data of the task, for those records.
    """

    def __init__(
        self,
        model: Any,
        processor: Any,
        *,
        prefix: str = "gathered",
        positions: str = "original",
        settings: Settings | None = None,
        allow_uncertified: bool = False,
        support: bool = False,
        evidence: bool = False,
        records: str | os.PathLike[str] | None = None,
        asked_with: Mapping[str, Any] | None = None,
        watch: Watch | None = None,
        shared: Shared | None = None,
        square: int | None = None,
    ) -> None:
        self._size: Callable[[Any], Any] | None = None
        if square is not None:
            processor, self._size = squared(model, processor, square)
        self.model, self.processor = model, processor
        self.shared = shared
        self._common: Any = None
        self.records, self.asked_with = records, dict(asked_with or {})
        self.support, self.evidence = support, evidence
        self._process = f"{os.getpid()}-{os.urandom(4).hex()}"
        self._options: dict[str, Any] = {
            "prefix": prefix,
            "positions": positions,
            "settings": settings,
            "allow_uncertified": allow_uncertified,
            "processor": processor,
            "watch": watch,
        }

    @property
    def options(self) -> dict[str, Any]:
        """What every context of this model is made with, as ``compress`` takes it."""
        return {name: value for name, value in self._options.items() if name != "watch"}

    def prepare(self, block: Block) -> Any:
        """The inputs of a block, on the CPU, padded on the left.

        Args:
            block: items of one limit.
        """
        start = time.perf_counter()
        inputs = self.encode(self._chats(block))
        return inputs, time.perf_counter() - start

    def encode(self, chats: Sequence[list[dict[str, Any]]]) -> Any:
        """Chats as the model takes them.

        Args:
            chats: with their images, in the form of the chat template.
        """
        return templated(self.processor, chats)

    def sized(self, chat: list[dict[str, Any]]) -> list[dict[str, Any]]:
        """The chat with its images in the one size that was asked for, if any.

        Args:
            chat: with its images.
        """
        if self._size is None:
            return chat
        size = self._size

        def part(found: dict[str, Any]) -> dict[str, Any]:
            return {**found, "image": size(found["image"])} if found["type"] == "image" else found

        return [{**turn, "content": [part(one) for one in turn["content"]]} for turn in chat]

    def _chats(self, block: Block) -> list[list[dict[str, Any]]]:
        return [self.sized(chat_of(item)) for item in block.items]

    def answers(self, task: Task, method: Method) -> Callable[[Block, Any], Sequence[Entry]]:
        """A function from a prepared block to its entries.

        Args:
            task: scores.
            method: what is run.
        """

        def answer(block: Block, prepared: Any) -> list[Entry]:
            inputs, preparing = prepared
            self._common = inputs
            rows = method.answers(self, lambda: self._chats(block), inputs, block.items[0].limit)
            return [
                self._entry(task, method, item, block.first + place, row, preparing / len(rows))
                for place, (item, row) in enumerate(zip(block.items, rows, strict=True))
            ]

        return answer

    def _context(self, method: Method) -> AbstractContextManager[Run]:
        plan, keep = plan_named("random+drop@0", 1), Keep(fraction=1.0)
        if method.plan is not None:
            plan, keep = method.plan, method.keep or keep
        return compress(self.model, plan, keep, **self._options)

    def _sharing(self, inputs: Any) -> AbstractContextManager[None] | None:
        """Inputs of all methods share; those of one alone would only push them out."""
        if self.shared is None or inputs is not self._common:
            return None
        return self.shared.of(inputs)

    @torch.inference_mode()
    def generate(self, method: Method, inputs: Any, limit: int) -> list[Answer]:
        """An answer per row.

        Args:
            method: what is run.
            inputs: as :meth:`encode` gives them.
            limit: most new tokens.
        """
        sharing = self._sharing(inputs)
        inputs = inputs.to(self.model.device, dtype=self.model.dtype)
        watch, peak = Stopwatch(self.model.device), Peak(self.model.device)
        with sharing or nullcontext(), self._context(method) as run:
            out = self.model.generate(
                **inputs,
                generation_config=self._greedy(limit),
                logits_processor=[watch],
            )
        new = out[:, inputs["input_ids"].shape[1] :].cpu()
        seconds = watch.seconds(len(new))
        alone = sharing is None
        if not alone:  # not what the request would take on its own
            seconds = {"shared": seconds["request"]}
        texts = self.processor.tokenizer.batch_decode(
            new, skip_special_tokens=True, clean_up_tokenization_spaces=False
        )
        counts = [self._length(row) for row in new]
        most = peak.bytes()
        return [
            Answer(
                text,
                count,
                record,
                seconds | (measured.parts(record, len(new)) if alone else {}),
                most if alone else 0,
            )
            for text, count, record in zip(texts, counts, run.records, strict=True)
        ]

    def _greedy(self, limit: int) -> Any:
        """The model's own configuration (penalties included), greedy and with the task's limit."""
        config = copy.deepcopy(self.model.generation_config)
        config.update(
            max_new_tokens=limit,
            max_length=None,
            do_sample=False,
            num_beams=1,
            temperature=None,
            top_p=None,
            top_k=None,
        )
        if config.pad_token_id is None:
            config.pad_token_id = self.processor.tokenizer.pad_token_id
        return config

    def _length(self, row: Tensor) -> int:
        """Tokens of an answer, its end included, padding not."""
        ends = self.model.generation_config.eos_token_id
        ends = [] if ends is None else ends if isinstance(ends, list) else [ends]
        hits = torch.isin(row, torch.tensor(ends, dtype=row.dtype)).nonzero()
        return int(hits[0]) + 1 if len(hits) else len(row)

    def _entry(
        self,
        task: Task,
        method: Method,
        item: Item,
        index: int,
        row: Answer,
        preparing: float,
    ) -> Entry:
        normalised, stats, score = task.score(item, row.text)
        self._seal(task, method, item, row, float(score))
        seconds = {"prepare": round(preparing, 6), **row.seconds}
        return Entry(
            task=task.name,
            sample_id=item.sample_id,
            unit_id=item.unit_id,
            stratum=item.stratum,
            stats={name: float(value) for name, value in stats.items()},
            score=float(score),
            raw=row.text,
            normalised=normalised,
            groups=dict(item.groups),
            index=index,
            **self.cost(method, row, seconds),
        )

    def cost(self, method: Method, row: Answer, seconds: Mapping[str, float]) -> dict[str, Any]:
        """What an entry says beside the score, by the names of its fields.

        Args:
            method: what was run.
            row: the answer.
            seconds: to store.
        """
        record = row.record
        return {
            "requested": method.requested,
            "tokens": record.tokens,
            "images": record.images,
            "boundaries": tuple(stage.boundary for stage in record.stages),
            "kept_by_stage": tuple(stage.kept for stage in record.stages),
            "length": record.length,
            "compact_length": record.compact_length,
            "depth": record.depth,
            "work": record.work,
            "kv_bytes": record.kv_bytes,
            "full_kv_bytes": record.full_kv_bytes,
            "new_tokens": row.tokens,
            "seconds": dict(seconds),
            "peak_bytes": row.peak,
            "process": self._process,
            "support": measured.support(record) if self.support else None,
            "evidence": self._measured(row),
            "notes": record.notes,
        }

    def _measured(self, row: Answer) -> dict[str, Any] | None:
        """What an entry says of the methods' numbers, and of an audit."""
        found = dict(measured.evidence(row.record)) if self.evidence else {}
        if row.audit is not None:
            found[AUDIT] = row.audit
        return found if self.evidence or found else None

    def _seal(self, task: Task, method: Method, item: Item, row: Answer, score: float) -> None:
        """Append the request's record to the file of records."""
        if self.records is None:
            return
        asked = {"name": task.name, "sample": item.sample_id, **self.asked_with}
        about = {"task": asked, "method": method.label, "raw": row.text, "score": score}
        append(self.records, [row.record.to_json(about)])


def chat_of(item: Item) -> list[dict[str, Any]]:
    """One user turn: the images, then the prompt.

    Args:
        item: of a task.
    """
    parts: list[dict[str, Any]] = []
    for picture in item.pictures:
        try:
            image = picture.read()
        except VicosetError:
            raise
        except Exception as error:
            raise UnreadableError(
                f"the image {picture.name} of sample {item.sample_id!r} cannot be read "
                f"({type(error).__name__}: {error}). Check that the data were copied whole."
            ) from error
        parts.append({"type": "image", "image": image})
    return [{"role": "user", "content": [*parts, {"type": "text", "text": item.prompt}]}]
