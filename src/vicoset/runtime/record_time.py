"""How long a stage and its parts took, without making a GPU wait."""

from __future__ import annotations

import itertools
import time
from typing import Any

import torch


class Laps:
    """A clock that starts now; each lap ends a part of the work.

    On a GPU nothing waits: events are recorded, and read when the seconds are asked for.
    """

    def __init__(self, device: torch.device) -> None:
        self._cuda = device.type == "cuda"
        self._marks: list[tuple[str, Any]] = [("", self._now())]

    def lap(self, name: str) -> None:
        """What happened since the lap before belongs to a part.

        Args:
            name: of the part; a part may have several laps.
        """
        self._marks.append((name, self._now()))

    def parts(self) -> dict[str, float]:
        """Seconds by part, in the order of their first laps."""
        if self._cuda:
            self._marks[-1][1].synchronize()
        found: dict[str, float] = {}
        for (_, before), (name, after) in itertools.pairwise(self._marks):
            spent = before.elapsed_time(after) / 1000 if self._cuda else after - before
            found[name] = found.get(name, 0.0) + spent
        return found

    def total(self) -> float:
        """Seconds of all laps."""
        return sum(self.parts().values())

    def _now(self) -> Any:
        if not self._cuda:
            return time.perf_counter()
        kind: Any = torch.cuda.Event
        event = kind(enable_timing=True)
        event.record()
        return event
