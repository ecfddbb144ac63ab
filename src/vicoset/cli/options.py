"""Options that several commands take, and what their texts mean."""

from __future__ import annotations

import argparse
import sys
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from vicoset.plan import Keep

KEEP_FORMS = "a count (128), a share (0.1 or 10%), or coverage=0.95[,min=16][,max=256]"
PLANS = "a plan; `vicoset methods` lists them (default: gmc-h2)"
PREFIXES = ("gathered", "dense", "replay")
ANY_DEPTH = 1000  # blocks of a decoder in which every known name makes a plan


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


def wholes(text: str) -> list[int]:
    """Whole numbers from 0 on with commas between them, for argparse."""
    parts = [part.strip() for part in text.split(",")]
    if not all(part.isdecimal() for part in parts):
        raise argparse.ArgumentTypeError(f"{text!r}; allowed are whole numbers such as 2,5")
    return [int(part) for part in parts]


def add_keep(parser: argparse.ArgumentParser) -> None:
    """The budget.

    Args:
        parser: of the command.
    """
    told = f"{KEEP_FORMS} (default: 128)".replace("%", "%%")
    parser.add_argument("--keep", default="128", metavar="K", help=told)


def add_model(parser: argparse.ArgumentParser) -> None:
    """Which model is asked, and how it is loaded.

    Args:
        parser: of the command.
    """
    add = parser.add_argument
    add("--model", default="tiny", help="a directory, or tiny, the bundled model")
    add("--dtype", default="auto", help="auto, float32, bfloat16 or float16")
    add("--device", default="auto", help="cpu, cuda, ...")
    add("--attention", help="attention kernel, such as sdpa or eager")


def loaded(options: argparse.Namespace) -> tuple[Any, Any]:
    """The model and the processor that the options name; warnings become a line each.

    Args:
        options: of a parser with :func:`add_model`.
    """
    from transformers.utils import logging as library

    from vicoset.evaluate.loading import load_named

    logging: Any = library
    bars = logging.is_progress_bar_enabled()
    logging.disable_progress_bar()
    try:
        with warnings.catch_warnings(record=True) as found:
            warnings.simplefilter("always", UserWarning)
            pair = load_named(
                options.model,
                dtype=options.dtype,
                device=options.device,
                attention=options.attention,
            )
    finally:
        if bars:
            logging.enable_progress_bar()
    for text in dict.fromkeys(str(one.message) for one in found if one.category is UserWarning):
        print(f"note: {text}", file=sys.stderr)
    return pair


@contextmanager
def quiet() -> Iterator[None]:
    """While a model is asked, leave out what the library logs below an error."""
    from transformers.utils import logging as library

    logging: Any = library
    before = logging.get_verbosity()
    logging.set_verbosity_error()
    try:
        yield
    finally:
        logging.set_verbosity(before)


def check_record(path: str | None) -> None:
    """Refuse a file for records that cannot be written.

    Args:
        path: as given; None for none.
    """
    from vicoset.errors import UnwritableError
    from vicoset.view.saving import check_folder

    if path is None:
        return
    if Path(path).is_dir():
        raise UnwritableError(f"record {path} is a directory; allowed is the name of a file.")
    check_folder(Path(path), "record")
