"""One thread at a time: what is known of a running prompt is known once for each model."""

from __future__ import annotations

import sys
import threading
from typing import Any

from vicoset.errors import RuntimeStateError


class Gate:
    """Who runs the model now; a thread may pass again while it is inside.

    A KeyboardInterrupt leaves a forward without calling anybody, so a thread only counts as
    inside while one of the owners is really on its stack.
    """

    def __init__(self, *owners: Any) -> None:
        """Closed while a method of one of the owners runs in the thread that has entered."""
        self._owners = owners
        self._inside = 0
        self._lock = threading.Lock()

    @property
    def mine(self) -> bool:
        """Whether this thread is the one inside."""
        return self._inside == threading.get_ident()

    def enter(self) -> None:
        """Pass, or raise while another thread is inside."""
        with self._lock:
            if self._inside and not self.mine and self._running():
                raise RuntimeStateError(
                    "a compressed model was called while another thread runs it; one thread at a "
                    "time is allowed. Wait for that call to end, or give each thread a model."
                )
            self._inside = threading.get_ident()

    def _running(self) -> bool:
        """Whether the thread inside still is; looked at only when two threads meet."""
        frame = sys._current_frames().get(self._inside)
        while frame is not None:
            held = frame.f_locals.get("self")
            if any(held is owner for owner in self._owners):
                return True
            frame = frame.f_back
        return False

    def leave(self) -> None:
        """Let others pass."""
        self._inside = 0
