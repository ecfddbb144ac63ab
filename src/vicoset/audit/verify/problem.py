"""What is wrong with a record, and where."""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import Any, NamedTuple

from vicoset.errors import VicosetError

REFUSED = (TypeError, ValueError, ArithmeticError, AttributeError, VicosetError)
EXACT = 1e-6  # relative: a quotient of two float32 numbers, written with nine digits
SUMMED = 2e-5  # relative: sums of float32 numbers taken in another order
_LONGEST = 60  # characters of a value in a message


class Problem(NamedTuple):
    """One disagreement.

    Attributes:
        where: the field, such as ``stages[0].indices[3]``.
        what: what stands there and what should.
    """

    where: str
    what: str

    def __str__(self) -> str:
        """``stages[0].kept: 5, and 6 indices stand there``."""
        return f"{self.where}: {self.what}"


class Findings(list[Problem]):
    """The problems of a record, in the order in which they were found."""

    def add(self, where: str, what: str) -> None:
        """One more, unless it is there already."""
        found = Problem(where, what)
        if found not in self:
            self.append(found)

    def same(self, where: str, written: Any, recomputed: Any, source: str = "") -> bool:
        """Whether a value is the one that follows from others; adds a problem if not.

        Args:
            where: the field.
            written: what stands there.
            recomputed: what should.
            source: the fields that it follows from, for the message.
        """
        if type(written) is type(recomputed) and written == recomputed:
            return True
        told = f" from {source}" if source else ""
        self.add(where, f"{shown(written)}, recomputed {shown(recomputed)}{told}")
        return False

    def close(
        self,
        where: str,
        written: float | None,
        recomputed: float,
        tolerance: float = EXACT,
        source: str = "",
    ) -> bool:
        """The same for numbers that were rounded.

        Args:
            where: the field.
            written: what stands there.
            recomputed: what should.
            tolerance: relative to the larger of the two, and to 1e-30.
            source: the fields that it follows from, for the message.
        """
        if written is not None and math.isfinite(recomputed):
            scale = max(abs(written), abs(recomputed), 1e-30)
            if abs(written - recomputed) <= tolerance * scale:
                return True
        told = f" from {source}" if source else ""
        self.add(where, f"{shown(written)}, recomputed {shown(recomputed)}{told}")
        return False

    def under(self, prefix: str, found: Iterable[Problem]) -> None:
        """Take problems over, their places below another one."""
        for problem in found:
            self.add(f"{prefix}{problem.where}", problem.what)


def shown(value: Any) -> str:
    """A value in a message: in ASCII, and not the whole of a long one."""
    if isinstance(value, float) and math.isfinite(value):
        return f"{value:.9g}"
    text = ascii(value)
    return text if len(text) <= _LONGEST else f"{text[: _LONGEST - 3]}..."


def said(error: Exception) -> str:
    """An error in a message: one line of ASCII."""
    text = " ".join(str(error).split()) or type(error).__name__
    return text.encode("ascii", "backslashreplace").decode("ascii")
