"""Tasks of yes and no: MME, POPE, AMBER, HallusionBench."""

from __future__ import annotations

import functools
import os
from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from vicoset.errors import ShapeError, UnreadableError
from vicoset.evaluate.sample import Metric, Sums
from vicoset.evaluate.scorers import yesno
from vicoset.evaluate.task import Item, Scored
from vicoset.evaluate.tasks.base import (
    SHORT,
    Array,
    Benchmark,
    rate,
    ratio,
    right,
    yes_or_no,
)
from vicoset.evaluate.tasks.reading import UNITS
from vicoset.evaluate.tasks.rows import picture_of, read_json, read_rows, subset

_ASKS = " Please answer yes or no."  # MME's own suffix, which the common one replaces


def _precision(sums: Sums) -> Array:
    return ratio(sums["tp"], sums["tp"] + sums["fp"])


def _recall(sums: Sums) -> Array:
    return ratio(sums["tp"], sums["tp"] + sums["fn"])


def _f1(sums: Sums) -> Array:
    precision, recall = _precision(sums), _recall(sums)
    return ratio(2 * (precision * recall), precision + recall)


def _said_yes(sums: Sums) -> Array:
    return ratio(sums["said_yes"], sums["questions"])


_DETECTION = {
    "precision": Metric(_precision),
    "recall": Metric(_recall),
    "f1": Metric(_f1),
    "yes": Metric(_said_yes, higher_is_better=None),
}


def _part(sums: Sums, perception: bool) -> Array:
    """Of MME: accuracy and pair accuracy in percent, summed over categories one by one.

    Args:
        sums: name to ``[..., strata]``.
        perception: which part.
    """
    pairs = np.asarray(sums["groups:pair"], dtype=np.float64)
    if not np.array_equal(sums["questions"], 2 * pairs):
        raise ShapeError(
            f"mme got sums over {np.sum(sums['questions']):g} questions and {np.sum(pairs):g} "
            "pairs; allowed are exactly two questions a pair. Finish the run before its table."
        )
    # The points of a category are whole numbers, so only this division and the sum round.
    value = ratio(50.0 * sums["correct"] + 100.0 * sums["all:pair"], pairs)
    value = np.where((np.asarray(sums["perception"]) > 0) == perception, value, 0.0)
    total = np.zeros(value.shape[:-1])
    for category in range(value.shape[-1]):
        total = total + value[..., category]
    return total


class MME(Benchmark):
    """MME, perception and cognition (Fu et al., 2023): 14 categories, 200 points each.

    Strata carry the place at which their category first stands in the data, since the points of the
    categories are added in that order, and a sum of rounded numbers depends on its order.
    """

    name = "mme"
    version = "2"
    limit = 16
    maximum = 2800.0
    stratified = True
    metrics: Mapping[str, Metric] = {
        "perception": Metric(functools.partial(_part, perception=True), 2000.0),
        "cognition": Metric(functools.partial(_part, perception=False), 800.0),
    }
    layout = "lmms-lab/MME: test-*.parquet (question_id, image, question, answer, category)"
    cognition = frozenset(
        {"commonsense_reasoning", "numerical_calculation", "text_translation", "code_reasoning"}
    )

    def items(self, path: str | os.PathLike[str] | None, **choices: Any) -> list[Item]:
        """The questions, two to a picture and a pair."""
        rows = read_rows(path, "test", ("question_id", "question", "answer", "category"))
        seen: Counter[str] = Counter()
        strata: dict[str, str] = {}
        found = []
        for place, row in enumerate(rows):
            pair = f"{row['category']}/{row['question_id']}"
            strata.setdefault(row["category"], f"{len(strata) + 1:02d} {row['category']}")
            seen[pair] += 1
            gold = yes_or_no(self.name, f"row {place}", row["answer"])
            perception = row["category"] not in self.cognition
            found.append(
                Item(
                    sample_id=f"{pair}#{seen[pair]}",
                    unit_id=pair,
                    stratum=strata[row["category"]],
                    prompt=row["question"].strip().replace(_ASKS, "") + SHORT,
                    references={"answer": gold, "perception": perception},
                    limit=self.limit,
                    pictures=(rows.picture(place),),
                    groups={"pair": pair},
                )
            )
        odd = [pair for pair, times in seen.items() if times != 2]
        if odd:
            raise UnreadableError(
                f"mme has {seen[odd[0]]} questions with the id {odd[0]!r}; allowed are exactly 2. "
                "Give the whole test split."
            )
        return found

    def score(self, item: Item, raw: str) -> Scored:
        """One question; pairs count in the sums of groups."""
        answer = yesno.mme(raw.strip())
        found = right(answer == item.references["answer"], answer)
        return found._replace(
            stats={**found.stats, "perception": float(item.references["perception"])}
        )

    def aggregate(self, sums: Sums) -> Array:
        """Perception and cognition together."""
        return _part(sums, True) + _part(sums, False)


class POPE(Benchmark):
    """POPE, 9,000 questions of three samplings (Li et al., 2023)."""

    name = "pope"
    limit = 128
    choices: Mapping[str, tuple[Any, ...]] = {"unit": UNITS, "parser": tuple(yesno.POPE_PARSERS)}
    metrics: Mapping[str, Metric] = _DETECTION
    layout = "lmms-lab/POPE: test-*.parquet (question_id, question, answer, image_source, category)"

    def items(self, path: str | os.PathLike[str] | None, **choices: Any) -> list[Item]:
        """The questions; positives repeat in the three samplings, so images are the units."""
        needs = ("question_id", "question", "answer", "image_source", "category")
        rows = read_rows(path, "test", needs)
        found = []
        for place, row in enumerate(rows):
            name = f"{row['category']}/{row['question_id']}"
            gold = yes_or_no(self.name, name, row["answer"])
            image = f"image {row['image_source']}"
            found.append(
                Item(
                    sample_id=name,
                    unit_id=image if choices["unit"] == "image" else name,
                    stratum="",
                    prompt=row["question"].strip() + SHORT,
                    references={"answer": gold, "parser": choices["parser"]},
                    limit=self.limit,
                    pictures=(rows.picture(place),),
                )
            )
        return found

    def score(self, item: Item, raw: str) -> Scored:
        """By the parser that was chosen."""
        answer = yesno.pope_parser(item.references["parser"])(raw.strip())
        return _detected(answer, item.references["answer"], positive="yes")


class AMBER(Benchmark):
    """AMBER's discriminative questions (Wang et al., 2023), accuracy.

    The released code compares answers with the bare words Yes and No; here an answer is yes where
    "yes" occurs in it, else no where "no" does. Which 1,200 of the questions the paper asks is not
    published: give their ids in a file, or a count of evenly spaced ones.
    """

    name = "amber"
    limit = 128
    metrics: Mapping[str, Metric] = _DETECTION
    choices: Mapping[str, tuple[Any, ...]] = {"unit": UNITS, "ids": (), "count": (), "images": ()}
    layout = (
        "the released repository: data/query/query_discriminative.json (id, image, query), "
        "data/annotations.json (id, type, truth), and the pictures in image/ or images="
    )

    def items(self, path: str | os.PathLike[str] | None, **choices: Any) -> list[Item]:
        """The questions that were chosen, in the order of their ids in the query file."""
        root = Path(path) if path is not None else Path()
        if path is None or not root.is_dir():
            raise UnreadableError(f"amber got path={path!r}; allowed is its directory. Check it.")
        data = root / "data" if (root / "data").is_dir() else root
        queries = read_json(data / "query" / "query_discriminative.json")
        truth = {row["id"]: row for row in read_json(data / "annotations.json")}
        folder = Path(choices["images"]) if choices["images"] else root / "image"
        found = []
        for row in subset(self.name, queries, choices["ids"], choices["count"]):
            name, image = str(row["id"]), folder / row["image"]
            gold = yes_or_no(self.name, f"question {name}", truth[row["id"]]["truth"])
            found.append(
                Item(
                    sample_id=name,
                    unit_id=row["image"] if choices["unit"] == "image" else name,
                    stratum="",
                    prompt=row["query"] + SHORT,
                    references={"answer": gold, "type": truth[row["id"]]["type"]},
                    limit=self.limit,
                    pictures=(picture_of(image),),
                )
            )
        return found

    def score(self, item: Item, raw: str) -> Scored:
        """Accuracy; no is the positive class, since it is what denies a hallucination."""
        answer = yesno.amber(raw.strip())
        return _detected(answer, item.references["answer"], positive="no", others_miss=True)


class HallusionBench(Benchmark):
    """HallusionBench, the questions with a picture (Guan et al., 2024), judged by rule.

    The units are the released sets: category, subcategory and set id.
    """

    name = "hallusionbench"
    limit = 8
    metrics: Mapping[str, Metric] = {
        "q_acc": Metric(rate("all:question", "groups:question")),
        "f_acc": Metric(rate("all:figure", "groups:figure")),
    }
    layout = (
        "lmms-lab/HallusionBench: image-*.parquet (category, subcategory, set_id, figure_id, "
        "question_id, question, gt_answer, image)"
    )

    def items(self, path: str | os.PathLike[str] | None, **choices: Any) -> list[Item]:
        """The questions."""
        parts = ("category", "subcategory", "set_id", "figure_id", "question_id")
        rows = read_rows(path, "image", (*parts, "question", "gt_answer"))
        found = []
        for place, row in enumerate(rows):
            unit = "_".join(str(row[name]) for name in parts[:3])
            question, figure = f"{unit}_{row['question_id']}", f"{unit}_{row['figure_id']}"
            found.append(
                Item(
                    sample_id="_".join(str(row[name]) for name in parts),
                    unit_id=unit,
                    stratum="",
                    prompt=f"{row['question']}\nPlease answer yes or no.",
                    references="yes" if str(row["gt_answer"]) == "1" else "no",
                    limit=self.limit,
                    pictures=(rows.picture(place),),
                    groups={"question": question, "figure": figure},
                )
            )
        return found

    def score(self, item: Item, raw: str) -> Scored:
        """Yes wherever "yes" occurs."""
        answer = yesno.hallusion(raw.strip())
        return right(answer == item.references, answer)


def _detected(answer: str, gold: str, positive: str, others_miss: bool = False) -> Scored:
    found = right(answer == gold, answer)
    said, there = answer == positive, gold == positive
    # To lmms-eval's POPE an answer that is neither misses nothing; AMBER divides by all questions.
    missed = there and not said and (others_miss or answer in ("yes", "no"))
    stats = {"tp": float(said and there), "fp": float(said and not there), "fn": float(missed)}
    stats["said_yes"] = float(answer == "yes")
    return found._replace(stats={**found.stats, **stats})
