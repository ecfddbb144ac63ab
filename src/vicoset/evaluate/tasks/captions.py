"""CHAIR: objects that a caption names and the picture does not show."""

from __future__ import annotations

import functools
import os
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from vicoset.errors import UnreadableError
from vicoset.evaluate.sample import Metric, Sums
from vicoset.evaluate.scorers import chair
from vicoset.evaluate.task import Item, Picture, Scored
from vicoset.evaluate.tasks.base import Array, Benchmark, rate, ratio
from vicoset.evaluate.tasks.rows import files_of, picture_of, read_json, read_rows, subset

_INSTANCES, _CAPTIONS = "instances_val2014.json", "captions_val2014.json"


class CHAIR(Benchmark):
    """Share of captions with an object that is not there (CHAIRs), lower is better.

    An image's objects are those of its instance labels and those its reference captions name. Which
    500 images the paper takes is not published: give their ids in a file, or a count of evenly
    spaced ones. Only ``mode="official"`` can be set beside published figures.
    """

    name = "chair"
    limit = 512
    higher_is_better = False
    choices: Mapping[str, tuple[Any, ...]] = {
        "mode": chair.MODES,
        "ids": (),
        "count": (),
        "images": (),
        "synonyms": (),
    }
    metrics: Mapping[str, Metric] = {
        "chair_i": Metric(rate("wrong_mentions", "mentions"), higher_is_better=False),
        "recall": Metric(rate("recalled", "objects")),
        "length": Metric(rate("words", "captions"), maximum=None, higher_is_better=None),
    }
    layout = (
        f"COCO 2014: annotations/{_INSTANCES}, annotations/{_CAPTIONS} and val2014/, or a table "
        "test-*.parquet (question_id, gt_object, image); and the metric's synonyms.txt"
    )

    def items(self, path: str | os.PathLike[str] | None, **choices: Any) -> list[Item]:
        """One request for a description per image."""
        if path is None or not Path(path).exists():
            raise UnreadableError(f"chair got path={path!r}; allowed is a directory or a table.")
        root = Path(path) if Path(path).is_dir() else Path(path).parent
        words = str(choices["synonyms"] or root / "synonyms.txt")
        mode = choices["mode"]
        _tools(mode, words)  # what is missing is said before anything runs
        coco = next((d for d in (root / "annotations", root) if (d / _INSTANCES).is_file()), None)
        if Path(path).is_file() or coco is None:
            images = self._table(path)
        else:
            folder = Path(choices["images"]) if choices["images"] else root / "val2014"
            images = self._coco(coco, folder, mode, words)
        return [
            Item(
                sample_id=str(row["id"]),
                unit_id=str(row["id"]),
                stratum="",
                prompt="Please describe this image in detail.",
                references={"objects": row["objects"](), "mode": mode, "synonyms": words},
                limit=self.limit,
                pictures=(row["picture"],),
            )
            for row in subset(self.name, images, choices["ids"], choices["count"])
        ]

    def _table(self, path: str | os.PathLike[str]) -> list[dict[str, Any]]:
        """Images whose objects are a column, as lmms-eval has them."""
        files_of(path, "test")
        rows = read_rows(path, "test", ("question_id", "gt_object"))
        return [
            {
                "id": int(row["question_id"]),
                "objects": functools.partial(sorted, set(row["gt_object"])),
                "picture": rows.picture(place),
            }
            for place, row in enumerate(rows)
        ]

    def _coco(self, notes: Path, folder: Path, mode: str, words: str) -> list[dict[str, Any]]:
        """Images of COCO; objects are looked up for those that are chosen."""
        synonyms, lemmas = _tools(mode, words)
        labels = read_json(notes / _INSTANCES)
        names = {kind["id"]: kind["name"] for kind in labels["categories"]}
        shown: dict[int, set[str]] = {}
        for mark in labels["annotations"]:
            name = synonyms.classes[names[mark["category_id"]]]
            shown.setdefault(mark["image_id"], set()).add(name)
        said: dict[int, list[str]] = {}
        for text in read_json(notes / _CAPTIONS)["annotations"]:
            said.setdefault(text["image_id"], []).append(text["caption"])

        def objects(image: int) -> list[str]:
            named = _named(synonyms, lemmas, said.get(image, ()))
            return sorted(shown.get(image, set()) | named)

        def picture(row: dict[str, Any]) -> Picture:
            return picture_of(folder / row["file_name"])

        images = sorted(labels["images"], key=lambda row: int(row["id"]))
        return [
            {
                "id": row["id"],
                "objects": functools.partial(objects, row["id"]),
                "picture": picture(row),
            }
            for row in images
        ]

    def score(self, item: Item, raw: str) -> Scored:
        """Counts of one caption; the score is 1 when it names an object that is not there."""
        synonyms, lemmas = _tools(item.references["mode"], item.references["synonyms"])
        found = synonyms.mentions(lemmas(raw.strip()))
        stats = chair.statistics(found, item.references["objects"])
        return Scored(", ".join(found.objects), stats, stats["wrong_captions"])

    def aggregate(self, sums: Sums) -> Array:
        """CHAIRs."""
        return ratio(sums["wrong_captions"], sums["captions"])


@functools.lru_cache(maxsize=8)
def _tools(mode: str, words: str) -> tuple[chair.Synonyms, chair.Lemmas]:
    synonyms = chair.Synonyms.read(words)
    return synonyms, chair.lemmas_of(mode, synonyms)


def _named(synonyms: chair.Synonyms, lemmas: chair.Lemmas, captions: Iterable[str]) -> set[str]:
    return {name for text in captions for name in synonyms.mentions(lemmas(text)).objects}
