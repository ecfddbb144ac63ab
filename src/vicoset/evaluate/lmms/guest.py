"""Tasks of ours that lmms-eval lacks, asked and scored by our own code inside of it.

A row of such a task says only where its question stands: task, data, choices and place.
"""

from __future__ import annotations

import functools
import json
from collections.abc import Mapping, Sequence
from typing import Any

from vicoset.errors import RunError
from vicoset.evaluate.sample import Sample
from vicoset.evaluate.task import Item


def rows(task: str, data: str | None, choices: Mapping[str, Any]) -> list[dict[str, Any]]:
    """The rows of a task for lmms-eval.

    Args:
        task: name of the task.
        data: path of its data; None for a task that draws its own.
        choices: of the task.
    """
    text = json.dumps(dict(choices), sort_keys=True)
    return [
        {
            "task": task,
            "data": data or "",
            "choices": text,
            "place": place,
            "sample_id": item.sample_id,
        }
        for place, item in enumerate(_items(task, data or "", text))
    ]


def visual(doc: Mapping[str, Any]) -> list[Any]:
    """The pictures of a row.

    Args:
        doc: as :func:`rows` made it.
    """
    return [picture.read() for picture in _item(doc).pictures]


def text(doc: Mapping[str, Any], lmms_eval_specific_kwargs: Any = None) -> str:
    """The prompt of a row.

    Args:
        doc: as :func:`rows` made it.
        lmms_eval_specific_kwargs: of the task; there are none.
    """
    return _item(doc).prompt


def target(doc: Mapping[str, Any]) -> str:
    """What the scorer compares with.

    Args:
        doc: as :func:`rows` made it.
    """
    return json.dumps(_item(doc).references, ensure_ascii=False)


def process(doc: Mapping[str, Any], results: Sequence[str]) -> dict[str, Any]:
    """The score of an answer, and what the task's own value is made of.

    Args:
        doc: as :func:`rows` made it.
        results: the answer.
    """
    item = _item(doc)
    scored = _task(doc["task"]).score(item, results[0])
    about = {
        "task": doc["task"],
        "sample_id": item.sample_id,
        "unit_id": item.unit_id,
        "stratum": item.stratum,
        "groups": dict(item.groups),
    }
    stats = {name: float(value) for name, value in scored.stats.items()}
    return {"score": scored.score, "value": {**about, "stats": stats, "score": scored.score}}


def aggregate(results: Sequence[Mapping[str, Any]]) -> float:
    """The task's native value.

    Args:
        results: what :func:`process` gave as ``value``, of all rows.
    """
    from vicoset.evaluate.statistics.units import unit_sums

    task = _task(results[0]["task"])
    sums = unit_sums(task.name, {"lmms": [Sample(**row) for row in results]})
    return float(task.aggregate(sums.totals(task.stratified))[0])


def _item(doc: Mapping[str, Any]) -> Item:
    items: Sequence[Item] = _items(doc["task"], doc["data"], doc["choices"])
    place = int(doc["place"])
    if place >= len(items) or items[place].sample_id != doc["sample_id"]:
        raise RunError(
            f"row {place} of {doc['task']!r} was {doc['sample_id']!r} when the task was "
            "prepared, and is not any more; allowed are the same data. Run prepare-tasks again."
        )
    return items[place]


@functools.lru_cache(maxsize=16)
def _items(task: str, data: str, choices: str) -> Sequence[Item]:
    found: Sequence[Item] = _task(task).load(data or None, **json.loads(choices))
    return found


def _task(name: str) -> Any:
    from vicoset.evaluate.tasks import task

    return task(name)
