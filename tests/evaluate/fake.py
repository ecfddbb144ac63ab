"""A run without a model: items, answers that follow from their ids, and a process that can be shot.

As a script it takes one JSON object of options and works through one shard.
"""

from __future__ import annotations

import hashlib
import json
import os
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from vicoset.evaluate import journal
from vicoset.evaluate.blocks import Block, cut
from vicoset.evaluate.entry import Entry
from vicoset.evaluate.folder import Folder, create
from vicoset.evaluate.process import run_shard
from vicoset.evaluate.progress import Log, Progress, Silent
from vicoset.evaluate.shards import Shard
from vicoset.evaluate.task import Item, Picture

NAMES = ("full", "gmc-h2-k128")


def read() -> str:
    return "an image"


def items(count: int) -> list[Item]:
    """Two questions an image; ids as wild as data can be."""
    return [
        Item(
            sample_id=f"q{place}\n☃" if place % 7 == 0 else f"q{place}",
            unit_id=f"image{place // 2}",
            stratum="",
            prompt=f"what is {place}?",
            references=[str(place)],
            limit=4,
            pictures=(Picture(f"{place}.png", read),),
        )
        for place in range(count)
    ]


def entry(name: str, item: Item, index: int) -> Entry:
    number = int(hashlib.sha256(f"{name} {item.sample_id}".encode()).hexdigest()[:8], 16)
    return Entry(
        task="fake",
        sample_id=item.sample_id,
        unit_id=item.unit_id,
        stratum=item.stratum,
        stats={"right": float(number % 2), "n": 1.0},
        score=number / 2**32,
        raw=f"{number} ‽",
        normalised=str(number % 2),
        index=index,
        seconds={"request": time.perf_counter()},
    )


def answer(name: str, pause: float = 0.0, bad: Sequence[str] = ()) -> Callable[..., list[Entry]]:
    def answer(block: Block, prepared: Any) -> list[Entry]:
        assert prepared == [item.prompt for item in block.items]
        for item in block.items:
            time.sleep(pause)
            if item.sample_id in bad:
                raise ValueError(f"cannot answer {item.sample_id}")
        return [entry(name, item, block.first + i) for i, item in enumerate(block.items)]

    return answer


def prepare(block: Block) -> list[str]:
    assert all(picture.read() == "an image" for item in block.items for picture in item.pictures)
    return [item.prompt for item in block.items]


def folders(out: Path, count: int) -> list[Folder]:
    ids = [item.sample_id for item in items(count)]
    info = {"run_id": "r", "method": "fake", "plan": "fake", "keep": ""}
    return [
        create(
            out,
            name,
            {"task": "fake", "digest": f"{len(name):0>16}", "info": {**info, "run_id": name}},
            ids,
        )
        for name in NAMES
    ]


def run(
    out: Path,
    count: int = 30,
    shard: str = "1/1",
    batch: int = 1,
    progress: Progress | None = None,
    prepare: Callable[[Block], Any] = prepare,
    answers: Sequence[Callable[..., list[Entry]]] | None = None,
    **options: Any,
) -> Any:
    """One shard of all methods; gives the failures."""
    made = [answer(name) for name in NAMES] if answers is None else answers
    return run_shard(
        folders(out, count),
        made,
        prepare,
        cut(items(count), batch),
        Shard.parse(shard),
        progress or Silent(),
        **options,
    )


def scores(out: Path, count: int = 30) -> bytes:
    """All that a run says, but for the times, as bytes."""
    from vicoset.evaluate.folder import complete

    found = []
    for folder in folders(out, count):
        for one in complete(folder):
            found.append({**one.to_json(), "seconds": None})
    return json.dumps(found, sort_keys=True).encode()


def _in_pieces(handle: int, data: memoryview) -> int:
    """Half a line now and half a moment later: a shot often hits between the two."""
    time.sleep(0.001)
    return os.write(handle, data[: max(1, len(data) // 2)])


if __name__ == "__main__":
    given = json.loads(sys.argv[1])
    journal._write = _in_pieces
    pause, bad = given.pop("pause", 0.0), given.pop("bad", [])
    run(
        Path(given.pop("out")),
        answers=[answer(name, pause, bad) for name in NAMES],
        progress=Log("fake", every=0.0),
        **given,
    )
