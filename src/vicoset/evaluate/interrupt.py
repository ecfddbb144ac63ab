"""Ctrl-C and SIGTERM: stop between two writes, never inside one."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType, TracebackType
from typing import Any

SIGNALS = (signal.SIGINT, signal.SIGTERM)


class Interrupted(KeyboardInterrupt):
    """Somebody, or a time limit, asked the run to stop; what was stored is whole.

    Attributes:
        code: exit status for a command.
    """

    def __init__(self, why: str, code: int) -> None:
        super().__init__(why)
        self.code = code


class Signals:
    """While entered, both signals raise :class:`Interrupted`, but not inside :meth:`writing`.

    Signals belong to the main thread; in another one this changes nothing.
    """

    def __init__(self) -> None:
        self._before: dict[int, Any] = {}
        self._writing = False
        self._pending: int | None = None

    def __enter__(self) -> Signals:
        """Take the signals over."""
        if threading.current_thread() is threading.main_thread():
            self._before = {number: signal.signal(number, self._came) for number in SIGNALS}
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Give the signals back."""
        for number, handler in self._before.items():
            signal.signal(number, handler)
        self._before.clear()

    @contextmanager
    def writing(self) -> Iterator[None]:
        """A stretch that a signal does not cut; one that came meanwhile counts at its end."""
        self._writing = True
        try:
            yield
        finally:
            self._writing = False
        if self._pending is not None:
            raise _stopped(self._pending)

    def _came(self, number: int, frame: FrameType | None) -> None:
        self._pending = number
        if not self._writing:
            raise _stopped(number)


def _stopped(number: int) -> Interrupted:
    return Interrupted(f"stopped by {signal.Signals(number).name}", 128 + number)
