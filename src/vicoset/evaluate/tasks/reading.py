"""Tasks that read text in pictures: TextVQA, ChartQA, DocVQA; and GQA's open questions."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any

from vicoset.errors import UnreadableError
from vicoset.evaluate.sample import Metric, Sums
from vicoset.evaluate.scorers import anls, exact, vqa
from vicoset.evaluate.task import Item, Picture, Scored
from vicoset.evaluate.tasks.base import SHORT, Array, Benchmark, rate, ratio, right
from vicoset.evaluate.tasks.rows import read_rows

UNITS = ("image", "question")


def _augmented(sums: Sums) -> Array:
    """ChartQA's questions that were made by a machine."""
    part = sums["correct"] - sums["human_correct"]
    return ratio(part, sums["questions"] - sums["human_questions"])


class TextVQA(Benchmark):
    """TextVQA, validation (Singh et al., 2019)."""

    name = "textvqa"
    limit = 128
    choices: Mapping[str, tuple[Any, ...]] = {"unit": UNITS}
    layout = "lmms-lab/textvqa: validation-*.parquet (question_id, image_id, question, answers)"

    def items(self, path: str | os.PathLike[str] | None, **choices: Any) -> list[Item]:
        """The questions; people's answers are normalised here, once."""
        needs = ("question_id", "image_id", "question", "answers")
        rows = read_rows(path, "validation", needs)
        found = []
        for place, row in enumerate(rows):
            name = str(row["question_id"])
            image = f"image {row['image_id']}"
            found.append(
                Item(
                    sample_id=name,
                    unit_id=image if choices["unit"] == "image" else name,
                    stratum="",
                    # lmms-eval capitalises, which also puts the rest in lower case
                    prompt=row["question"].capitalize() + SHORT,
                    references=[vqa.normalise(answer) for answer in row["answers"] or ()],
                    limit=self.limit,
                    pictures=(rows.picture(place),),
                )
            )
        return found

    def score(self, item: Item, raw: str) -> Scored:
        """Agreement with the ten people."""
        answer = vqa.normalise(raw.strip())
        value = vqa.agreement(answer, item.references)
        return Scored(answer, {"correct": value, "questions": 1.0}, value)


class ChartQA(Benchmark):
    """ChartQA, test, relaxed accuracy (Masry et al., 2022)."""

    name = "chartqa"
    limit = 16
    choices: Mapping[str, tuple[Any, ...]] = {"unit": UNITS}
    metrics: Mapping[str, Metric] = {
        "human": Metric(rate("human_correct", "human_questions")),
        "augmented": Metric(_augmented),
    }
    layout = "lmms-lab/ChartQA: test-*.parquet (type, question, answer, image)"

    def items(self, path: str | os.PathLike[str] | None, **choices: Any) -> list[Item]:
        """The questions; the data have no ids, so the row's number is one."""
        rows = read_rows(path, "test", ("type", "question", "answer"))
        found = []
        for place, row in enumerate(rows):
            by_image = choices["unit"] == "image"
            found.append(
                Item(
                    sample_id=f"{place:05d}",
                    unit_id=rows.picture_key(place) if by_image else f"{place:05d}",
                    stratum="",
                    prompt=f"{row['question']}\nAnswer the question with a single word.",
                    references={"answer": row["answer"], "human": row["type"] == "human_test"},
                    limit=self.limit,
                    pictures=(rows.picture(place),),
                )
            )
        return found

    def score(self, item: Item, raw: str) -> Scored:
        """Within 5%, or the same text."""
        answer = raw.strip()
        value = float(exact.relaxed(answer, item.references["answer"]))
        human = float(item.references["human"])
        stats = {"correct": value, "questions": 1.0}
        stats |= {"human_correct": value * human, "human_questions": human}
        return Scored(answer, stats, value)


class DocVQA(Benchmark):
    """DocVQA, validation, ANLS (Mathew et al., 2021)."""

    name = "docvqa"
    limit = 32
    choices: Mapping[str, tuple[Any, ...]] = {"unit": UNITS}
    layout = "lmms-lab/DocVQA: DocVQA/validation-*.parquet (questionId, question, answers, docId)"

    def items(self, path: str | os.PathLike[str] | None, **choices: Any) -> list[Item]:
        """The questions."""
        page = ("ucsf_document_id", "ucsf_document_page_no")
        needs = ("questionId", "question", "answers", "docId")
        rows = read_rows(path, "validation", needs, optional=page, config="DocVQA")
        found = []
        for place, row in enumerate(rows):
            name = str(row["questionId"])
            parts = [str(row[p]) for p in page if row.get(p) is not None]
            image = f"page {'/'.join(parts) if len(parts) == 2 else row['docId']}"
            found.append(
                Item(
                    sample_id=name,
                    unit_id=image if choices["unit"] == "image" else name,
                    stratum="",
                    prompt=row["question"] + SHORT,
                    references=list(row["answers"]),
                    limit=self.limit,
                    pictures=(rows.picture(place),),
                )
            )
        return found

    def score(self, item: Item, raw: str) -> Scored:
        """The best similarity over the references."""
        answer = raw.strip()
        value = anls.similarity(answer, item.references)
        return Scored(answer, {"anls": value, "questions": 1.0}, value)

    def aggregate(self, sums: Sums) -> Array:
        """Mean similarity."""
        return ratio(sums["anls"], sums["questions"])


class GQA(Benchmark):
    """GQA, balanced testdev (Hudson and Manning, 2019)."""

    name = "gqa"
    limit = 16
    choices: Mapping[str, tuple[Any, ...]] = {"unit": UNITS}
    layout = (
        "lmms-lab/GQA: testdev_balanced_instructions/ (id, imageId, question, answer) and "
        "testdev_balanced_images/ (id, image), or one table with the column image"
    )

    def items(self, path: str | os.PathLike[str] | None, **choices: Any) -> list[Item]:
        """The questions, each with the picture of its imageId."""
        needs = ("id", "imageId", "question", "answer")
        rows = read_rows(path, "testdev", needs, config="testdev_balanced_instructions", images=())
        pictures = self.pictures(path)
        found = []
        for place, row in enumerate(rows):
            name, image = str(row["id"]), str(row["imageId"])
            if pictures and image not in pictures:
                raise UnreadableError(
                    f"gqa question {name} is about the image {image}, which "
                    "testdev_balanced_images lacks. Copy that folder whole."
                )
            found.append(
                Item(
                    sample_id=name,
                    unit_id=f"image {image}" if choices["unit"] == "image" else name,
                    stratum="",
                    prompt=row["question"] + SHORT,
                    references=row["answer"],
                    limit=self.limit,
                    pictures=(pictures[image] if pictures else rows.picture(place),),
                )
            )
        return found

    def pictures(self, path: str | os.PathLike[str] | None) -> dict[str, Picture]:
        """Image id to picture; empty where the questions' own table holds the pictures.

        Args:
            path: the data's directory or file.
        """
        folder = "testdev_balanced_images"
        if path is None or not os.path.isdir(path) or not os.path.isdir(os.path.join(path, folder)):
            return {}
        rows = read_rows(os.path.join(path, folder), "testdev", ("id",))
        return {str(row["id"]): rows.picture(place) for place, row in enumerate(rows)}

    def score(self, item: Item, raw: str) -> Scored:
        """The same text but for case and punctuation."""
        answer = exact.plain(raw.strip())
        return right(answer == exact.plain(item.references), answer)
