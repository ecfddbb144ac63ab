"""When a request's prompt is done, and when its answer."""

from __future__ import annotations

import time

import torch
from torch import Tensor


class Watch:
    """Tells the prompt's time from the answer's: called with the logits of every step.

    Args:
        device: of the model, which is waited for.
    """

    def __init__(self, device: torch.device) -> None:
        self._device = device
        self._start = self._now()
        self._prompt: float | None = None

    def __call__(self, ids: Tensor, scores: Tensor) -> Tensor:
        """Note the time of the first step; the scores stay as they are."""
        if self._prompt is None:
            self._prompt = self._now() - self._start
        return scores

    def seconds(self, rows: int) -> dict[str, float]:
        """Per row: the whole, the prompt and the steps after it.

        Args:
            rows: of the batch.
        """
        whole = (self._now() - self._start) / rows
        prompt = (self._prompt or 0.0) / rows
        found = {"request": whole, "prompt": prompt, "decode": whole - prompt}
        return {name: round(value, 6) for name, value in found.items()}

    def _now(self) -> float:
        if self._device.type == "cuda":
            torch.cuda.synchronize(self._device)
        return time.perf_counter()
