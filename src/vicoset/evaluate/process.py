"""One process's share of some runs on the same items; it needs no model library."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import ExitStack

from vicoset.evaluate.blocks import Block
from vicoset.evaluate.entry import Failure
from vicoset.evaluate.folder import Folder
from vicoset.evaluate.interrupt import Signals
from vicoset.evaluate.journal import Journal
from vicoset.evaluate.loop import Answer, Lane, Prepare, work_through
from vicoset.evaluate.progress import Progress
from vicoset.evaluate.shards import Shard


def run_shard(
    folders: Sequence[Folder],
    answers: Sequence[Answer],
    prepare: Prepare,
    blocks: Sequence[Block],
    shard: Shard,
    progress: Progress,
    *,
    repair: bool = False,
    ahead: int = 0,
    seconds: float | None = None,
) -> tuple[tuple[str, Failure], ...]:
    """The share of one process in some runs on the same items.

    Args:
        folders: of the runs.
        answers: of each run, from a prepared block to its entries.
        prepare: reads a block.
        blocks: of the whole task.
        shard: which of them.
        progress: is told.
        repair: see :class:`Journal`.
        ahead: see :func:`work_through`.
        seconds: see :func:`work_through`.
    """
    with Signals() as signals, ExitStack() as open_files:
        lanes = []
        for folder, answer in zip(folders, answers, strict=True):
            journal = open_files.enter_context(_opened(folder, shard, repair, progress))
            found = folder.read()
            for note in found.notes:
                progress.say(note)
            failed = set(found.failures)
            lanes.append(Lane(folder.name, folder.task, journal, found.answered, failed, answer))
        try:
            work_through(
                shard.of(blocks), prepare, lanes, progress, signals, ahead=ahead, seconds=seconds
            )
        finally:
            progress.close()
    return tuple((lane.name, failure) for lane in lanes for failure in lane.failures)


def _opened(folder: Folder, shard: Shard, repair: bool, progress: Progress) -> Journal:
    """The shard's journal; to repair, damaged journals of other shards are mended as well."""
    journal = folder.journal(shard, repair=repair)
    for note in journal.notes:
        progress.say(note)
    for path in folder.journals() if repair else []:
        if path != journal.path:
            with Journal(path, repair=True) as other:
                for note in other.notes:
                    progress.say(note)
    return journal
