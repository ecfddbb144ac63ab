"""How long a stage took, without making a GPU wait."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import torch


def stopwatch(device: torch.device) -> Callable[[], Callable[[], float]]:
    """Starts now; the first call stops, and what it returns gives the seconds.

    On a GPU nothing waits: events are recorded, and read when the seconds are asked for.
    """
    if device.type == "cuda":
        event: Any = torch.cuda.Event
        start, end = event(enable_timing=True), event(enable_timing=True)
        start.record()

        def stop() -> Callable[[], float]:
            end.record()

            def seconds() -> float:
                end.synchronize()
                return float(start.elapsed_time(end)) / 1000

            return seconds

        return stop
    begun = time.perf_counter()

    def stopped() -> Callable[[], float]:
        spent = time.perf_counter() - begun
        return lambda: spent

    return stopped
