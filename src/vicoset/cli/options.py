"""Options that several commands take, and what their texts mean."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from vicoset.plan import Keep

KEEP_FORMS = "a count (128), a share (0.1 or 10%), or coverage=0.95[,min=16][,max=256]"


def keep_of(text: str) -> Keep:
    """The budget that a text names.

    Args:
        text: as ``KEEP_FORMS`` says.
    """
    from vicoset.plan import Keep

    return Keep.read(text)


def whole(text: str) -> int:
    """A whole number from 1 on, for argparse."""
    if not text.isdecimal() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"{text!r}; allowed are whole numbers from 1 on")
    return int(text)
