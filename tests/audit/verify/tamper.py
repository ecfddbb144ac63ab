"""Records that somebody has changed, with or without sealing them again."""

from __future__ import annotations

import copy
import json
from collections.abc import Iterator
from typing import Any

from tests.runtime.helpers import compressed, generate, model_of, prompt
from vicoset.audit.verify import verify_line
from vicoset.runtime import record_lines
from vicoset.runtime.record_json import fingerprints

Path = tuple[str | int, ...]

# What no record can show by itself, by place; numbers stand for every entry of a list.
UNSEEN = {
    "model.class",
    "model.type",
    "versions.vicoset",
    "versions.torch",
    "versions.transformers",
    "versions.python",
    "prompt",
    "attention",
    "dtype",
    "device",
    "kv.rows",
    "stages.#.seconds",
    "stages.#.evidence.start_value",
    "stages.#.evidence.bank_active.#",
    "stages.#.realised.carrier.#",
    "stages.#.realised.mass.#",
    "stages.#.realised.gate",
    "notes.#",
}


def recorded(family: str, plan: Any, keep: Any, images: Any = 1, **options: Any) -> dict[str, Any]:
    """The record of a tiny model's first row, as it is read from a file."""
    model = model_of(family)
    with compressed(model, plan, keep, **{"audit": "full", **options}) as engine:
        generate(model, prompt(model, family, images), 2)
    return json.loads(json.dumps(engine.records[0].to_json()))


def line_of(body: dict[str, Any], *, renewed: bool = True) -> bytes:
    """A sealed line; its fingerprints are renewed, as somebody would who knows the format."""
    own = {**body, "fields": fingerprints(body)} if renewed else body
    return record_lines.seal(own)[:-1]


def leaves(value: Any, path: Path = ()) -> Iterator[tuple[Path, Any]]:
    """Everything in a record that is no list and no object."""
    if isinstance(value, dict):
        for name, part in value.items():
            yield from leaves(part, (*path, name))
    elif isinstance(value, list):
        for place, part in enumerate(value):
            yield from leaves(part, (*path, place))
    else:
        yield path, value


def put(body: dict[str, Any], path: Path, value: Any) -> dict[str, Any]:
    """The record with another value at a place."""
    found = copy.deepcopy(body)
    part: Any = found
    for name in path[:-1]:
        part = part[name]
    part[path[-1]] = value
    return found


def place(path: Path) -> str:
    """``stages.#.indices.#``."""
    return ".".join("#" if isinstance(part, int) else part for part in path)


def problems(body: dict[str, Any], **options: Any) -> list[str]:
    """What is found in a record that is sealed as it stands."""
    return [str(problem) for problem in verify_line(line_of(body, **options)).problems]
