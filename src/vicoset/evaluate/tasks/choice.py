"""MMBench: questions with lettered options, right when every rotation of the options is."""

from __future__ import annotations

import math
import os
from collections.abc import Mapping
from typing import Any

from vicoset.errors import UnreadableError
from vicoset.evaluate.sample import Metric, Sums
from vicoset.evaluate.scorers import options
from vicoset.evaluate.task import Item, Scored
from vicoset.evaluate.tasks.base import Array, Benchmark, rate, ratio, right
from vicoset.evaluate.tasks.rows import read_rows

ROTATION = 1_000_000  # rows of one question have the same index but for multiples of this
_LETTERS = "ABCDE"


class MMBench(Benchmark):
    """MMBench-EN, dev: 4,329 rows of 1,164 questions (Liu et al., 2023), without a judge.

    Circular: a question counts when all its rotations are right. The unit is the question either
    way, since its rotations move together.
    """

    name = "mmbench"
    limit = 8
    choices: Mapping[str, tuple[Any, ...]] = {"circular": (True, False)}
    metrics: Mapping[str, Metric] = {
        "rows": Metric(rate("correct", "questions"))
    }  # right whatever their question
    layout = "lmms-lab/MMBench: en/dev-*.parquet (index, question, hint, A..D, answer, image)"

    def items(self, path: str | os.PathLike[str] | None, **choices: Any) -> list[Item]:
        """The rows, rotations included."""
        needs = ("index", "question", "answer", "A", "B")
        rows = read_rows(path, "dev", needs, optional=("hint", "C", "D", "E"), config="en")
        base = {int(row["index"]) for row in rows if int(row["index"]) < ROTATION}
        found = []
        for place, row in enumerate(rows):
            index = int(row["index"])
            if index % ROTATION not in base:
                raise UnreadableError(
                    f"mmbench row {place} (index {index}) rotates the question {index % ROTATION}, "
                    "which is not there. Give the whole dev split."
                )
            if row["answer"] not in (*_LETTERS,):
                raise UnreadableError(
                    f"mmbench row {place} (index {index}) has the answer {row['answer']!r}; "
                    "allowed are letters. The test split has none: give the dev split."
                )
            unit = str(index % ROTATION)
            found.append(
                Item(
                    sample_id=str(index),
                    unit_id=unit,
                    stratum="",
                    prompt=prompt_of(row),
                    references={"answer": row["answer"], "options": scored_options(row)},
                    limit=self.limit,
                    pictures=(rows.picture(place),),
                    groups={"question": unit if choices["circular"] else str(index)},
                )
            )
        return found

    def score(self, item: Item, raw: str) -> Scored:
        """One row; whether its question is right is in the sums of groups."""
        letter = options.chosen(raw.strip(), item.references["options"])
        return right(letter == item.references["answer"], letter)

    def aggregate(self, sums: Sums) -> Array:
        """Questions right over questions; rows when not circular."""
        return ratio(sums["all:question"], sums["groups:question"])


def prompt_of(row: Mapping[str, Any]) -> str:
    """Hint, question, options and the request for a letter, as lmms-eval puts them.

    Args:
        row: of the data.
    """
    offered = {c: row[c] for c in _LETTERS if row.get(c) and not _absent(row[c])}
    listed = "\n".join(
        ["There are several options:", *(f"{c}. {text}" for c, text in offered.items())]
    )
    hint = "" if _absent(row.get("hint")) else f"{row['hint']} "
    ask = "\nAnswer with the option's letter from the given choices directly."
    return f"{hint}{row['question']} {listed}\n{ask}"


def scored_options(row: Mapping[str, Any]) -> dict[str, str]:
    """Letter to option, as lmms-eval's scorer sees it: the word "nan" stays an option.

    Args:
        row: of the data.
    """
    return {c: str(row[c]) for c in "ABCD" if c in row and not _missing(row[c])}


def _missing(value: Any) -> bool:
    return value is None or (isinstance(value, float) and math.isnan(value))


def _absent(value: Any) -> bool:
    return _missing(value) or value == "nan"
