"""Write golden.json anew: ``python -m tests.tiny.bench.make_golden`` (PYTHONPATH=src).

Do so when scenes or drawing have changed on purpose, raise ``EDITION`` if a release had the old
pictures, and look at what changed first: every number measured on the old items is void.
"""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Any

from vicoset.tiny import bench
from vicoset.tiny.bench.item import pixels

PATH = Path(__file__).with_name("golden.json")
PICTURES = [f"{kind}/{number:04d}" for kind in bench.KINDS for number in (0, 7)]


def digest_of_items(model: str) -> str:
    """Of all default items: ids, questions, answers, boxes, scenes."""
    lines = [
        repr((i.item_id, i.question, i.answer, i.boxes, i.scene_digest)) for i in all_of(model)
    ]
    return hashlib.sha256("\n".join(lines).encode()).hexdigest()


def digest_of_picture(model: str, unit: str) -> str:
    return hashlib.sha256(pixels(model, unit).tobytes()).hexdigest()


def all_of(model: str) -> list[bench.Item]:
    return bench.items(model)


def found() -> dict[str, Any]:
    return {
        model: {
            "items": digest_of_items(model),
            "pictures": {unit: digest_of_picture(model, unit) for unit in PICTURES},
        }
        for model in bench.RESOLUTIONS
    }


if __name__ == "__main__":
    PATH.write_text(json.dumps(found(), indent=2) + "\n", encoding="utf-8")
    print(PATH)
