"""The answers of one model and method, whatever lmms-eval asked, kept while it runs.

lmms-eval writes nothing before its last answer. Here each answer is a line of an append-only
journal, on the disk before the next one is computed, and a rerun takes what is there.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from vicoset.errors import RunError
from vicoset.evaluate.folder import read_json, write_json
from vicoset.evaluate.journal import Journal, damage, scan
from vicoset.evaluate.shards import Shard

SCHEMA = 1
FACTS = "answers.json"


class Store:
    """The directory of one model and method, ``JOURNAL/<method>-<digest>/``.

    Attributes:
        path: of the directory.
        facts: identity, and what holds for all answers.
        notes: what was found damaged.
    """

    def __init__(
        self, journal: Path, label: str, facts: Mapping[str, Any], shard: Shard, *, repair: bool
    ) -> None:
        """Open this process's journal and read those of the others.

        Args:
            journal: the directory of all of them.
            label: of the method, for people.
            facts: ``run_id`` among them.
            shard: of this process.
            repair: see :class:`Journal`.
        """
        self.facts = facts
        safe = re.sub(r"[^A-Za-z0-9._@+-]+", "_", label)
        self.path = journal / f"{safe}-{str(facts['run_id'])[:12]}"
        self.path.mkdir(parents=True, exist_ok=True)
        if not (self.path / FACTS).is_file():
            write_json(self.path / FACTS, {"schema": SCHEMA, **facts})
        name = f"journal-{shard.number}of{shard.count}.jsonl"
        self._journal = Journal(self.path / name, repair=repair)
        self.notes = list(self._journal.notes)
        try:
            self._known: dict[str, Mapping[str, Any]] = {}
            self._known |= {line["key"]: line for line in lines_of(self.path)}
        except BaseException:
            self._journal.close()
            raise

    def __contains__(self, key: str) -> bool:
        """Whether the answer to a request is there.

        Args:
            key: of the request.
        """
        return key in self._known

    def __len__(self) -> int:
        """Number of answers."""
        return len(self._known)

    def get(self, key: str) -> Mapping[str, Any]:
        """The line of a request.

        Args:
            key: of the request.
        """
        return self._known[key]

    def add(self, line: Mapping[str, Any]) -> None:
        """Store an answer; when this returns, it is on the disk.

        Args:
            line: JSON values, ``key`` among them.
        """
        self._journal.append(line)
        self._known[line["key"]] = line

    def close(self) -> None:
        """Let the next writer in."""
        self._journal.close()


def lines_of(path: Path) -> list[dict[str, Any]]:
    """All answers of a directory, whichever process wrote them; a half last line is passed over.

    Args:
        path: of the directory.
    """
    found = []
    for file in sorted(path.glob("journal-*.jsonl")):
        content = scan(file)
        if content.damaged:
            raise damage(file, content.damaged)
        found += [line for _, line in content.lines]
    return found


def costs_of(path: Path) -> tuple[dict[str, Any], dict[tuple[str, int], dict[str, Any]]]:
    """The facts of a directory, and by task and row what each answer was and cost.

    Args:
        path: of the directory that holds ``answers.json``.
    """
    facts: dict[str, Any] = read_json(path / FACTS)
    answers: dict[tuple[str, int], dict[str, Any]] = {}
    for line in lines_of(path):
        place = (line["task"], line["doc_id"])
        if answers.setdefault(place, line)["key"] != line["key"]:
            raise RunError(
                f"{path} holds two different questions as row {place[1]} of {place[0]!r}: the data "
                "or the prompt changed between two runs. Use another journal= for each."
            )
    return facts, answers
