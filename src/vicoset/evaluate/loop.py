"""The loop of a run: answer what is missing, store each answer, survive what goes wrong."""

from __future__ import annotations

import time
import traceback
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from typing import Any

from vicoset.errors import JournalError, RunError
from vicoset.evaluate.blocks import Block
from vicoset.evaluate.entry import Entry, Failure
from vicoset.evaluate.folder import line_of
from vicoset.evaluate.interrupt import Interrupted, Signals
from vicoset.evaluate.journal import Journal
from vicoset.evaluate.progress import Progress

IN_A_ROW = 20  # so many new failures one after the other say that not the samples are at fault
STOPPED = 75  # exit status of a run that its own time limit stopped: try again

Prepare = Callable[[Block], Any]
Answer = Callable[[Block, Any], Sequence[Entry]]


@dataclass
class Lane:
    """One method on the samples of a grid.

    Attributes:
        name: for messages.
        task: name of the task.
        journal: where its answers go.
        answered: ids of the samples that are there already.
        failed: ids of those that failed before.
        answer: gives an entry per item of a block from what was prepared for it.
        failures: of this process.
    """

    name: str
    task: str
    journal: Journal
    answered: set[str]
    failed: set[str]
    answer: Answer
    failures: list[Failure] = field(default_factory=list)

    def lacks(self, block: Block) -> bool:
        """Whether a sample of the block is not answered yet."""
        return any(name not in self.answered for name in block.ids)


class Prepared:
    """What a block's items look like to the model, made once for all methods.

    A block that cannot be prepared is taken apart, so that one unreadable image costs one sample.
    """

    def __init__(self, prepare: Prepare) -> None:
        self._prepare = prepare
        self._made: dict[tuple[int, int], Any] = {}

    def of(self, block: Block) -> Any:
        """The prepared block; raises again what its preparation raised.

        Args:
            block: this one, or one of its items alone.
        """
        key = (block.first, len(block.items))
        if key not in self._made:
            try:
                self._made[key] = self._prepare(block)
            except Exception as error:
                self._made[key] = error
        found = self._made[key]
        if isinstance(found, Exception):
            raise found
        return found


def work_through(
    blocks: Sequence[Block],
    prepare: Prepare,
    lanes: Sequence[Lane],
    progress: Progress,
    signals: Signals,
    *,
    ahead: int = 0,
    seconds: float | None = None,
) -> None:
    """Answer what the lanes lack of some blocks.

    Args:
        blocks: of this shard.
        prepare: reads a block's images and makes what the model takes; runs in another thread
            when ``ahead`` is not 0.
        lanes: the methods.
        progress: is told.
        signals: entered by the caller; storing is guarded by them.
        ahead: how many blocks are prepared while another one is answered.
        seconds: stop after so long, between two blocks.
    """
    missing = [block for block in blocks if any(lane.lacks(block) for lane in lanes)]
    names = {name for block in blocks for name in block.ids}
    done = sum(len(names & lane.answered) for lane in lanes)
    progress.start(len(names) * len(lanes), done)
    began, row = time.monotonic(), 0
    for block, prepared in _prepared(missing, prepare, ahead):
        for lane in lanes:
            if not lane.lacks(block):
                continue
            if seconds is not None and time.monotonic() - began > seconds:
                raise Interrupted(f"stopped after {seconds:g} s, as asked", STOPPED)
            answered, failed = _store(lane, _attempt(lane, block, prepared), signals)
            progress.advance(answered, len(failed))
            fresh = [one for one in failed if one.sample_id not in lane.failed]
            row = row + len(fresh) if fresh and not answered else 0
            if row >= IN_A_ROW:
                raise RunError(
                    f"{row} samples of {lane.name} failed one after the other, the last with "
                    f"{failed[-1].error}. That looks like the run, not like the samples: mend it "
                    "and run the same command again."
                )


def _prepared(
    blocks: Sequence[Block], prepare: Prepare, ahead: int
) -> Iterator[tuple[Block, Prepared]]:
    """Every block with what was prepared for it, the next ones meanwhile in the making."""
    if not ahead:
        for block in blocks:
            yield block, Prepared(prepare)
        return
    pool = ThreadPoolExecutor(ahead, thread_name_prefix="vicoset-prepare")
    waiting: deque[tuple[Block, Prepared, Future[None]]] = deque()
    try:
        rest = iter(blocks)
        while True:
            while len(waiting) < ahead + 1 and (coming := next(rest, None)) is not None:
                made = Prepared(prepare)
                waiting.append((coming, made, pool.submit(_warm, made, coming)))
            if not waiting:
                return
            block, prepared, future = waiting.popleft()
            future.result()
            yield block, prepared
    finally:
        pool.shutdown(wait=False, cancel_futures=True)


def _warm(prepared: Prepared, block: Block) -> None:
    """Prepare now; what it raises is raised again where the block is answered."""
    try:
        prepared.of(block)
    except Exception:
        return


def _attempt(lane: Lane, block: Block, prepared: Prepared) -> list[Entry | Failure]:
    """An entry or a failure per item; a batch that raises is taken apart."""
    try:
        return list(lane.answer(block, prepared.of(block)))
    except JournalError:
        raise
    except Exception as error:
        if len(block.items) > 1:
            singles = [block.alone(place) for place in range(len(block.items))]
            wanted = [one for one in singles if lane.lacks(one)]
            found = [found for one in wanted for found in _attempt(lane, one, prepared)]
            return [_noted(one, error) for one in found]
        said = " ".join(f"{type(error).__name__}: {error}".split())
        where = "".join(traceback.format_exception(error)[-4:])
        return [Failure(lane.task, block.ids[0], block.first, said, where)]


def _noted(found: Entry | Failure, error: Exception) -> Entry | Failure:
    """An answer that was given alone says so: numbers of a batch may differ in the last bits."""
    if isinstance(found, Failure):
        return found
    why = f"answered alone, since its batch raised {type(error).__name__}"
    return replace(found, notes=(*found.notes, why))


def _store(
    lane: Lane, found: Sequence[Entry | Failure], signals: Signals
) -> tuple[int, list[Failure]]:
    """Append what is new; gives the number of answers and the failures."""
    answered, failed = 0, []
    for one in found:
        if one.sample_id in lane.answered:
            continue  # computed again beside a neighbour of its batch that was missing
        with signals.writing():
            lane.journal.append(line_of(one))
            if isinstance(one, Failure):
                failed.append(one)
                lane.failures.append(one)
            else:
                answered += 1
                lane.answered.add(one.sample_id)
    return answered, failed
