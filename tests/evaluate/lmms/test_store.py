"""The answers of one model and method survive what happens to their process."""

from pathlib import Path
from typing import Any

import pytest

from vicoset.errors import JournalError, RunError
from vicoset.evaluate.lmms.store import Store, costs_of
from vicoset.evaluate.shards import Shard

FACTS = {"run_id": "0123456789abcdef", "info": {"plan": "gmc@2"}}


def line(row: int, key: str = "x", **more: Any) -> dict[str, Any]:
    return {"key": f"t/{row}/{key}", "task": "t", "doc_id": row, "raw": "yes", "cost": {}, **more}


def opened(journal: Path, shard: str = "1/1", repair: bool = False) -> Store:
    return Store(journal, "gmc@2-k4", FACTS, Shard.parse(shard), repair=repair)


def test_answers_are_there_again(tmp_path: Path) -> None:
    store = opened(tmp_path)
    store.add(line(0))
    store.close()
    store = opened(tmp_path, "2/3")  # other processes, another number of them
    assert "t/0/x" in store and "t/1/x" not in store and len(store) == 1
    store.add(line(1))
    store.close()
    assert store.path.name == "gmc@2-k4-0123456789ab"
    facts, answers = costs_of(store.path)
    assert facts["info"] == FACTS["info"] and set(answers) == {("t", 0), ("t", 1)}


def test_one_writer_a_shard(tmp_path: Path) -> None:
    store = opened(tmp_path)
    with pytest.raises(JournalError, match="is held by"):
        opened(tmp_path)
    store.close()
    opened(tmp_path).close()


def test_a_half_line_is_computed_again_and_damage_is_refused(tmp_path: Path) -> None:
    store = opened(tmp_path)
    for row in range(3):
        store.add(line(row))
    store.close()
    file = store.path / "journal-1of1.jsonl"
    whole = file.read_bytes()
    file.write_bytes(whole[:-5])
    again = opened(tmp_path)
    assert len(again) == 2 and "half or damaged" in again.notes[0]
    again.close()
    file.write_bytes(whole.replace(b"yes", b"yet", 1))
    with pytest.raises(JournalError, match="damaged in line 1"):
        opened(tmp_path)
    with pytest.raises(JournalError, match="damaged in line 1"):
        opened(tmp_path, "2/2")
    repaired = opened(tmp_path, repair=True)
    assert len(repaired) == 2
    repaired.close()


def test_two_questions_in_one_row_are_refused(tmp_path: Path) -> None:
    store = opened(tmp_path)
    store.add(line(0))
    store.add(line(0, "y"))
    store.close()
    with pytest.raises(RunError, match="two different questions as row 0"):
        costs_of(store.path)
