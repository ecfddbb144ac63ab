"""The most memory that a request needed: of the accelerator, or of the process on the CPU."""

from __future__ import annotations

from pathlib import Path

import torch

_FORGET, _STATUS = Path("/proc/self/clear_refs"), Path("/proc/self/status")
_PEAK = "5"  # what makes Linux forget a process's largest resident size, and nothing else


class Peak:
    """Starts to look now.

    Args:
        device: of the model.
    """

    def __init__(self, device: torch.device) -> None:
        self._device = device
        self._known = True
        if device.type == "cuda":
            torch.cuda.reset_peak_memory_stats(device)
            return
        try:
            _FORGET.write_text(_PEAK)
        except OSError:
            self._known = False  # another system, or one that does not let us

    def bytes(self) -> int:
        """Allocated at most since the start, the model included; 0 where nobody can tell."""
        if self._device.type == "cuda":
            return int(torch.cuda.max_memory_allocated(self._device))
        if not self._known:
            return 0
        lines = _STATUS.read_text().splitlines()
        most = next((line for line in lines if line.startswith("VmHWM:")), "VmHWM: 0 kB")
        return int(most.split()[1]) * 1024
