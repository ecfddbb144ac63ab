"""How far a run is, how fast it goes and how long it will take: a bar, or lines in a log."""

from __future__ import annotations

import importlib.util
import sys
import time
from collections.abc import Callable
from typing import Any, Protocol, TextIO


class Progress(Protocol):
    """Where a run tells how far it is."""

    def start(self, total: int, done: int) -> None:
        """A run of so many answers, of which some are there already."""

    def advance(self, answers: int, failed: int) -> None:
        """So many more answers, some of which failed."""

    def say(self, text: str) -> None:
        """A line for the reader."""

    def close(self) -> None:
        """The run is over, or cut off."""


class Silent:
    """Says nothing."""

    def start(self, total: int, done: int) -> None:
        """Nothing."""

    def advance(self, answers: int, failed: int) -> None:
        """Nothing."""

    def say(self, text: str) -> None:
        """Nothing."""

    def close(self) -> None:
        """Nothing."""


class Log:
    """A line every so many seconds, for output that is no terminal."""

    def __init__(
        self,
        title: str,
        out: TextIO | None = None,
        every: float = 30.0,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.title, self.every, self.clock = title, every, clock
        self.out = sys.stderr if out is None else out
        self.total = self.before = self.done = self.failed = 0
        self.began = self.last = clock()

    def start(self, total: int, done: int) -> None:
        """Say what there is to do."""
        self.total, self.before, self.done = total, done, done
        self.began = self.last = self.clock()
        self.say(f"{total} answers, {done} of them there already")

    def advance(self, answers: int, failed: int) -> None:
        """Count, and say it when it is time."""
        self.done += answers
        self.failed += failed
        if self.clock() - self.last >= self.every:
            self.last = self.clock()
            self.say(self.line())

    def line(self) -> str:
        """Answers so far, rate, time left."""
        seconds = self.clock() - self.began
        rate = (self.done - self.before) / seconds if seconds > 0 else 0.0
        more = self.total - self.done
        left = "nothing" if more <= 0 else duration(more / rate) if rate else "unknown"
        failed = f", {self.failed} failed" if self.failed else ""
        share = self.done / self.total if self.total else 1.0
        return f"{self.done}/{self.total} ({share:.0%}), {rate:.2f}/s, {left} left{failed}"

    def say(self, text: str) -> None:
        """A line."""
        print(f"{self.title}: {text}", file=self.out, flush=True)

    def close(self) -> None:
        """The last state."""
        self.say(self.line())


class Bar:
    """A bar of rich, for a terminal."""

    def __init__(self, title: str) -> None:
        from rich import progress as parts
        from rich.console import Console

        self._bar = parts.Progress(
            parts.TextColumn("{task.description}"),
            parts.BarColumn(),
            parts.MofNCompleteColumn(),
            parts.TextColumn("{task.fields[rate]}"),
            parts.TimeElapsedColumn(),
            parts.TimeRemainingColumn(compact=True),
            parts.TextColumn("[red]{task.fields[failed]}"),
            console=Console(stderr=True),
        )
        self._log = Log(title, every=float("inf"))
        self._title = title
        self._task: Any = None

    def start(self, total: int, done: int) -> None:
        """Draw the bar."""
        self._log.before = self._log.done = done
        self._log.total, self._log.began = total, self._log.clock()
        self._task = self._bar.add_task(
            self._title, total=total, completed=done, rate="", failed=""
        )
        self._bar.start()

    def advance(self, answers: int, failed: int) -> None:
        """Move it."""
        self._log.advance(answers, failed)
        seconds = self._log.clock() - self._log.began
        rate = (self._log.done - self._log.before) / seconds if seconds > 0 else 0.0
        count = self._log.failed
        self._bar.update(
            self._task,
            completed=self._log.done,
            rate=f"{rate:.2f}/s",
            failed=f"{count} failed" if count else "",
        )

    def say(self, text: str) -> None:
        """A line above it."""
        self._bar.console.print(text, markup=False, highlight=False)

    def close(self) -> None:
        """Leave it as it is."""
        self._bar.stop()


def progress_for(title: str, every: float = 30.0) -> Progress:
    """A bar on a terminal that has rich, else lines.

    Args:
        title: of the run.
        every: seconds between two lines.
    """
    if sys.stderr.isatty() and importlib.util.find_spec("rich") is not None:
        return Bar(title)
    return Log(title, every=every)


def duration(seconds: float) -> str:
    """``2 h 05 min``, ``3 min 20 s`` or ``12 s``.

    Args:
        seconds: from 0 on.
    """
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    if hours:
        return f"{hours} h {minutes:02d} min"
    return f"{minutes} min {rest:02d} s" if minutes else f"{rest} s"
