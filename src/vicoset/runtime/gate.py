"""One thread at a time: what is known of a running prompt is known once for each model."""

from __future__ import annotations

import threading

from vicoset.errors import RuntimeStateError


class Gate:
    """Who runs the model now; a thread may pass again while it is inside."""

    def __init__(self) -> None:
        self._inside = 0
        self._lock = threading.Lock()

    @property
    def mine(self) -> bool:
        """Whether this thread is the one inside."""
        return self._inside == threading.get_ident()

    def enter(self) -> None:
        """Pass, or raise while another thread is inside."""
        with self._lock:
            if self._inside and not self.mine:
                raise RuntimeStateError(
                    "a compressed model was called while another thread runs it; one thread at a "
                    "time is allowed. Wait for that call to end, or give each thread a model."
                )
            self._inside = threading.get_ident()

    def leave(self) -> None:
        """Let others pass."""
        self._inside = 0
