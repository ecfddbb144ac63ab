"""One process at a time: a file that the operating system frees when its holder dies."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from types import TracebackType

from vicoset.errors import JournalError


class Lock:
    """A lock on a file beside what it protects; the file itself stays.

    Attributes:
        path: of the lock file; it names the process that holds or last held it.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self._handle: int | None = None

    def take(self, *, wait: bool = False) -> None:
        """Hold the lock, or say who does.

        Args:
            wait: until it is free, instead of raising at once.
        """
        handle = os.open(self.path, os.O_RDWR | os.O_CREAT, 0o644)
        try:
            _lock(handle, wait)
        except OSError as error:
            holder = os.read(handle, 200).decode(errors="replace").strip()
            os.close(handle)
            raise JournalError(
                f"{self.path} is held by {holder or 'another process'}; allowed is one "
                "writer. Wait for it, stop it, or give this process another --shard."
            ) from error
        os.ftruncate(handle, 0)
        os.write(handle, f"process {os.getpid()}".encode())
        self._handle = handle

    def free(self) -> None:
        """Let the next one in; safe to call twice."""
        if self._handle is not None:
            os.close(self._handle)  # closing frees the lock
            self._handle = None

    def __enter__(self) -> Lock:
        """Hold it, waiting until it is free."""
        self.take(wait=True)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Free it."""
        self.free()


if sys.platform == "win32":  # pragma: no cover
    import msvcrt

    def _lock(handle: int, wait: bool) -> None:
        os.lseek(handle, 1 << 20, os.SEEK_SET)  # behind the text, which stays readable
        msvcrt.locking(handle, msvcrt.LK_LOCK if wait else msvcrt.LK_NBLCK, 1)
        os.lseek(handle, 0, os.SEEK_SET)

else:
    import fcntl

    def _lock(handle: int, wait: bool) -> None:
        fcntl.flock(handle, fcntl.LOCK_EX | (0 if wait else fcntl.LOCK_NB))
