"""The model that ``--model vicoset`` names; loaded by lmms-eval, and by nothing of ours."""

from __future__ import annotations

import difflib
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from lmms_eval.api.instance import GenerationResult, TokenCounts
from lmms_eval.api.model import lmms

from vicoset.errors import SettingError, UnsupportedError
from vicoset.evaluate import identity
from vicoset.evaluate.answering import Model
from vicoset.evaluate.fingerprint import Files
from vicoset.evaluate.interrupt import Signals
from vicoset.evaluate.lmms.asking import Ask, ask_of
from vicoset.evaluate.lmms.store import Store
from vicoset.evaluate.loading import BUNDLED, load_named
from vicoset.evaluate.method import budget_of, methods_of
from vicoset.evaluate.progress import progress_for
from vicoset.evaluate.runner import info_of
from vicoset.evaluate.shards import Shard

JOURNAL = "vicoset-journal"
_ARGUMENTS = (
    *("pretrained", "plan", "keep", "seed", "prefix", "dtype", "attention", "journal", "repair"),
    *("max_new_tokens", "allow_uncertified", "support", "evidence", "name", "square"),
)


class Vicoset(lmms):  # type: ignore[misc]
    """A checkpoint with a plan, asked by lmms-eval.

    Every answer goes to a journal; the same command reuses those that are there.
    """

    is_simple = False

    def __init__(
        self,
        pretrained: str | None = None,
        plan: str = "gmc-h2",
        keep: str | int | float = 128,
        seed: int = 0,
        prefix: str = "gathered",
        dtype: str = "auto",
        attention: str | None = None,
        journal: str = JOURNAL,
        repair: bool = False,
        max_new_tokens: int = 128,
        allow_uncertified: bool = False,
        support: bool = False,
        evidence: bool = False,
        name: str | None = None,
        square: int | str | None = None,
        batch_size: int | str = 1,
        device: str | None = None,
        max_batch_size: int | None = None,
        **unknown: Any,
    ) -> None:
        """Load the model.

        Args:
            pretrained: directory of a checkpoint, or a bundled model, "tiny" or "tiny-llava".
            plan: a preset or a plan's name; "full" for the uncompressed model.
            keep: budget: a count (128), a fraction (0.1 or 10%) or a coverage.
            seed: for a plan that draws.
            prefix: execution mode.
            dtype: "auto" for the checkpoint's own.
            attention: kernel, such as sdpa or eager.
            journal: directory of all journals; "none" for none.
            repair: compute damaged lines again instead of refusing them.
            max_new_tokens: where the task does not say it.
            allow_uncertified: as in ``compress``.
            support: store the kept indices.
            evidence: store what the methods measured.
            name: of the model, for tables.
            square: pixels of both sides of every image.
            batch_size: lmms-eval's.
            device: lmms-eval's; torchrun's accelerator, or the first, or the CPU by default.
            max_batch_size: lmms-eval's; only a fixed size is known here.
            unknown: refused.
        """
        super().__init__()
        _check(pretrained, unknown, batch_size)
        model, processor = load_named(
            str(pretrained), dtype=str(dtype), device=device or "auto", attention=attention
        )
        depth = identity.depth(model)
        (self._method,) = methods_of([str(plan)], [budget_of(str(keep))], depth, [int(seed)])
        self._asked = Model(
            model,
            processor,
            prefix=prefix,
            allow_uncertified=allow_uncertified,
            support=support,
            evidence=evidence,
            square=None if square is None else int(square),
        )
        self._device, self._repair = model.device, repair
        self._batch, self._limit = int(batch_size), int(max_new_tokens)
        self._journal = None if str(journal).lower() == "none" else Path(journal)
        self._facts: dict[str, Any] = {}
        if self._journal is not None:
            directory = None if pretrained in BUNDLED else pretrained
            files = Files(self._journal / "fingerprints.jsonl")
            size = None if square is None else int(square)
            about = identity.of_model(model, self._asked.processor, directory, files, size)
            facts = identity.run_facts(
                about, {}, identity.of_method(self._method, prefix, None), self._batch
            )
            known = name or Path(str(pretrained)).name
            info = info_of(self._method, facts["run_id"], known, depth)
            self._facts = {**facts, "info": info, "machine": identity.machine(model)}

    @property
    def device(self) -> Any:
        """Where the model is; lmms-eval puts what it gathers from all processes there."""
        return self._device

    def generate_until(self, requests: Sequence[Any]) -> list[Any]:
        """An answer per request, greedy, with the number of its tokens.

        Args:
            requests: of lmms-eval, of any tasks.
        """
        shard = Shard(int(self.rank) + 1, int(self.world_size))
        store = self._store(shard)
        progress = progress_for(f"vicoset {self._method.label} {shard}")
        found: list[Any] = []
        waiting: list[Ask] = []
        try:
            with Signals() as signals:
                progress.start(len(requests), 0)
                for note in store.notes if store is not None else []:
                    progress.say(note)
                for request in requests:
                    ask = ask_of(request.args, self.task_dict, self._limit)
                    if waiting and (ask.kind != waiting[0].kind or len(waiting) == self._batch):
                        found += self._answered(waiting, store, signals)
                        progress.advance(len(waiting), 0)
                        waiting = []
                    waiting.append(ask)
                found += self._answered(waiting, store, signals)
                progress.advance(len(waiting), 0)
        finally:
            progress.close()
            if store is not None:
                store.close()
        return found

    def generate_until_multi_round(self, requests: Sequence[Any]) -> list[Any]:
        """Refused.

        Args:
            requests: of lmms-eval.
        """
        raise UnsupportedError(
            "the task asks in several rounds; allowed are tasks of one prompt and one answer "
            "(output_type: generate_until). Choose another task."
        )

    def loglikelihood(self, requests: Sequence[Any]) -> list[Any]:
        """Refused.

        Args:
            requests: of lmms-eval.
        """
        raise UnsupportedError(
            "the task compares likelihoods of given answers; allowed are tasks that generate "
            "(output_type: generate_until). Choose the generating form of the task."
        )

    def _store(self, shard: Shard) -> Store | None:
        if self._journal is None:
            return None
        label = self._method.label
        return Store(self._journal, label, self._facts, shard, repair=self._repair)

    def _answered(self, asks: Sequence[Ask], store: Store | None, signals: Signals) -> list[Any]:
        """The answers of a batch: stored ones where all are there, else all computed together.

        A batch is computed as a whole, so that whoever resumes gets the bits of one who did not.
        """
        keys = [ask.key for ask in asks]
        if store is not None and all(key in store for key in keys):
            return [_result(store.get(key)) for key in keys]
        if not asks:
            return []
        chats = [self._asked.sized(ask.chat) for ask in asks]
        inputs = self._asked.encode(chats)
        rows = self._method.answers(self._asked, lambda: chats, inputs, asks[0].limit)
        lines = []
        for ask, key, row in zip(asks, keys, rows, strict=True):
            about = {"key": key, "task": ask.task, "doc_id": ask.doc_id, "raw": row.text}
            line = {**about, "cost": self._asked.cost(self._method, row, row.seconds)}
            if store is not None and key not in store:
                with signals.writing():
                    store.add(line)
            lines.append(line if store is None else store.get(key))
        return [_result(line) for line in lines]


def _result(line: Any) -> Any:
    cost = line["cost"]
    counts = TokenCounts(input_tokens=cost["length"], output_tokens=cost["new_tokens"])
    return GenerationResult(line["raw"], counts)


def _check(pretrained: str | None, unknown: dict[str, Any], batch_size: int | str) -> None:
    for given in unknown:
        near = difflib.get_close_matches(given, _ARGUMENTS, n=1)
        hint = f" Did you mean {near[0]}?" if near else ""
        raise SettingError(
            f"--model_args got {given}={unknown[given]!r}; allowed are {', '.join(_ARGUMENTS)}."
            f"{hint}"
        )
    if not pretrained:
        raise SettingError(
            f"--model_args names no pretrained=; allowed are a checkpoint's directory and "
            f"{', '.join(BUNDLED)}. Write --model_args pretrained=DIR,plan=gmc-h2,keep=128."
        )
    if not str(batch_size).isdecimal() or int(batch_size) < 1:
        raise SettingError(
            f"--batch_size {batch_size}; allowed are whole numbers from 1 on. Pass --batch_size 1."
        )
