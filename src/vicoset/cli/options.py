"""Options that several commands take, and what their texts mean."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from vicoset.plan import Keep

KEEP_FORMS = "a count (128), a share (0.1 or 10%), or coverage=0.95[,min=16][,max=256]"


def keep_of(text: str) -> Keep:
    """The budget that a text names.

    Args:
        text: as ``KEEP_FORMS`` says.
    """
    from vicoset.errors import BudgetError
    from vicoset.plan import Keep

    parts = [part.partition("=")[::2] for part in text.split(",")] if "=" in text else []
    try:
        if parts:
            given: dict[str, Any] = {name.strip(): _number(value.strip()) for name, value in parts}
            return Keep(**given)
        return Keep.parse(_number(text))
    except BudgetError:
        raise
    except (TypeError, ValueError):
        raise BudgetError(f"--keep {text!r}; allowed are {KEEP_FORMS}.") from None


def _number(text: str) -> int | float:
    """An int is a count, a float or a percentage a share."""
    if text.endswith("%"):
        return float(text[:-1]) / 100
    try:
        return int(text)
    except ValueError:
        return float(text)


def whole(text: str) -> int:
    """A whole number from 1 on, for argparse."""
    if not text.isdecimal() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"{text!r}; allowed are whole numbers from 1 on")
    return int(text)
