r"""An append-only journal: a line per event, each with a checksum and on the disk before the next.

A line is a JSON object ``{"sum": "<16 hex digits>", "line": {...}}``; the sum is over the bytes of
the inner object. A process that dies leaves at most its last line half written: the next one keeps
those bytes aside and goes on. Damage anywhere else is never passed over in silence.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import Any

from vicoset.errors import JournalError
from vicoset.evaluate.lock import Lock

_HEAD, _MIDDLE, _TAIL = b'{"sum": "', b'", "line": ', b"}"
_BODY = len(_HEAD) + 16 + len(_MIDDLE)


@dataclass(frozen=True)
class Scan:
    """What a file holds.

    Attributes:
        lines: number, from 1 on, and content of every sound line.
        damaged: number of every line, but the last, whose sum does not fit.
        torn: bytes of a last line that is half or does not fit.
        sound: bytes before those.
    """

    lines: list[tuple[int, dict[str, Any]]] = field(default_factory=list)
    damaged: list[int] = field(default_factory=list)
    torn: bytes = b""
    sound: int = 0


def sealed(content: Mapping[str, Any]) -> bytes:
    """A line with its checksum and its line break.

    Args:
        content: JSON values.
    """
    body = json.dumps(content, ensure_ascii=False, separators=(",", ":"), allow_nan=False).encode()
    return _HEAD + _sum(body) + _MIDDLE + body + _TAIL + b"\n"


def unsealed(line: bytes) -> dict[str, Any]:
    """The content of a line without its line break; ValueError when the sum does not fit.

    Args:
        line: as :func:`sealed` made it.
    """
    body = line[_BODY : -len(_TAIL)]
    if line != _HEAD + _sum(body) + _MIDDLE + body + _TAIL:
        raise ValueError("the checksum does not fit")
    content: dict[str, Any] = json.loads(body)
    return content


def scan(path: Path) -> Scan:
    """Read a journal without changing it; a file that is not there is an empty one.

    Args:
        path: of the journal.
    """
    data = path.read_bytes() if path.is_file() else b""
    *whole, torn = data.split(b"\n")
    lines: list[tuple[int, dict[str, Any]]] = []
    damaged: list[int] = []
    for number, line in enumerate(whole, start=1):
        try:
            lines.append((number, unsealed(line)))
        except ValueError:
            damaged.append(number)
    if damaged and damaged[-1] == len(whole) and not torn:
        torn = whole[-1] + b"\n"
        damaged.pop()
    return Scan(lines, damaged, torn, len(data) - len(torn))


class Journal:
    """The one writer of a journal.

    Attributes:
        path: of the file.
        notes: what was found damaged and where it was put.
    """

    def __init__(self, path: Path, *, repair: bool = False) -> None:
        """Lock the file and bring it into order.

        Args:
            path: of the journal; made when it is not there.
            repair: leave damaged lines out, which keeps the old file aside, instead of raising.
        """
        self.path = path
        self.notes: list[str] = []
        self._lock = Lock(path.with_suffix(".lock"))
        self._lock.take()
        try:
            self._lines = self._ordered(scan(path), repair)
            self._file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_APPEND, 0o644)
            _sync_folder(path)
        except BaseException:
            self._lock.free()
            raise
        self._size = os.fstat(self._file).st_size

    @property
    def lines(self) -> list[tuple[int, dict[str, Any]]]:
        """Number and content of every line that was there when the journal was opened."""
        return self._lines

    def append(self, content: Mapping[str, Any]) -> None:
        """Add a line; when this returns, it is on the disk.

        Args:
            content: JSON values.
        """
        line = memoryview(sealed(content))
        total = len(line)
        try:
            while line:
                line = line[_write(self._file, line) :]
            os.fsync(self._file)
        except OSError as error:
            self._take_back()
            raise JournalError(
                f"{self.path} cannot be written: {error}. All lines before this one are stored. "
                "Make room or repair the disk, then run the same command again."
            ) from error
        self._size += total

    def close(self) -> None:
        """Let the next writer in; safe to call twice."""
        if self._file >= 0:
            os.close(self._file)
            self._file = -1
        self._lock.free()

    def __enter__(self) -> Journal:
        """Itself."""
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Close."""
        self.close()

    def _take_back(self) -> None:
        """Cut a line off that was not written whole; where that fails, it is a torn one."""
        try:
            os.ftruncate(self._file, self._size)
        except OSError:
            self.notes.append(f"{self.path}: the last line may be half written")

    def _ordered(self, found: Scan, repair: bool) -> list[tuple[int, dict[str, Any]]]:
        """The sound lines, with a torn end cut off and, to repair, damaged lines left out."""
        if found.damaged and not repair:
            raise damage(self.path, found.damaged)
        if found.damaged:
            kept = self._aside("damaged", self.path.read_bytes())
            self.notes.append(
                f"{self.path}: damaged lines {_listed(found.damaged)} are left out and will be "
                f"computed again; the file as it was is {kept.name}"
            )
            fresh = self.path.with_suffix(".new")
            _write_whole(fresh, b"".join(sealed(content) for _, content in found.lines))
            os.replace(fresh, self.path)
            return list(enumerate((content for _, content in found.lines), start=1))
        if found.torn:
            kept = self._aside("torn", found.torn)
            self.notes.append(
                f"{self.path}: the last line, {len(found.torn)} bytes, is half or damaged; it is "
                f"kept as {kept.name} and its sample will be computed again"
            )
            os.truncate(self.path, found.sound)
        return found.lines

    def _aside(self, why: str, data: bytes) -> Path:
        """Store bytes beside the journal, under a name that is still free."""
        number = 1
        while (path := self.path.with_suffix(f".{why}-{number}")).exists():
            number += 1
        _write_whole(path, data)
        return path


def damage(path: Path, lines: list[int]) -> JournalError:
    """The error for lines whose checksum does not fit.

    Args:
        path: of the journal.
        lines: their numbers.
    """
    return JournalError(
        f"{path} is damaged in line {_listed(lines)}: the checksum does not fit, and only a last "
        "line may be half written. Restore the file from a copy, or run again with --repair, which "
        "keeps the file aside and computes exactly those samples again."
    )


def _listed(lines: list[int]) -> str:
    more = f" and {len(lines) - 10} more" if len(lines) > 10 else ""
    return ", ".join(map(str, lines[:10])) + more


def _sum(body: bytes) -> bytes:
    return hashlib.sha256(body).hexdigest()[:16].encode()


def _write(handle: int, data: memoryview) -> int:
    """``os.write``, in one place, so that a test can let the disk be full."""
    return os.write(handle, data)


def _write_whole(path: Path, data: bytes) -> None:
    with open(path, "wb") as file:
        file.write(data)
        file.flush()
        os.fsync(file.fileno())
    _sync_folder(path)


def _sync_folder(path: Path) -> None:
    """A new name is on the disk once its folder is."""
    if os.name == "posix":
        handle = os.open(path.parent, os.O_RDONLY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)
