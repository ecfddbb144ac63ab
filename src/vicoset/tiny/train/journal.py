"""What training says of itself: a line of JSON every few steps, kept in the run's folder."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any


def say(path: Path, line: dict[str, Any]) -> None:
    """Append a line and print it in short.

    Args:
        path: of the file.
        line: JSON values.
    """
    with path.open("a", encoding="utf-8") as file:
        file.write(json.dumps(line) + "\n")
    shown = " ".join(
        f"{k} {v:.3f}" if isinstance(v, float) else f"{k} {v}" for k, v in line.items()
    )
    print(shown, flush=True)


def lines(path: Path) -> list[dict[str, Any]]:
    """The lines of a run, those that an interruption cut off or repeated left out.

    Args:
        path: of the file.
    """
    found: dict[tuple[str, int], dict[str, Any]] = {}
    if path.is_file():
        for text in path.read_text(encoding="utf-8").splitlines():
            try:
                line = json.loads(text)
            except ValueError:
                continue
            found[line["phase"], line["step"]] = line
    return list(found.values())
