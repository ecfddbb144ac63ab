"""``python -m vicoset.demo``: draw a page, compress it, print what was measured."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence

from vicoset.core.budget import realised_keep
from vicoset.demo.measure import study
from vicoset.demo.page import GRIDS, draw_page
from vicoset.demo.show import report
from vicoset.errors import BudgetError, VicosetError

KEEPS = (256, 128, 64, 16)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the demonstration; 0, or 2 when a request cannot be served."""
    options = _parser().parse_args(arguments)
    try:
        tokens = options.grid**2
        keeps = [_budget(keep, tokens) for keep in options.keep or _defaults(tokens)]
        page = draw_page(options.grid, options.seed)
        print(report(study(page, keeps, options.seed), options.seed))
    except VicosetError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m vicoset.demo",
        description="Compress a synthetic page of visual tokens and print coverage, message errors "
        "and bounds. No model and no image is read.",
    )
    parser.add_argument(
        "--keep",
        type=_keep,
        nargs="+",
        metavar="K",
        help="budgets: counts, or fractions such as 0.1 (default: 256 128 64 16)",
    )
    parser.add_argument("--seed", type=_seed, default=0, help="seed of the page (default: 0)")
    parser.add_argument(
        "--grid",
        type=_grid,
        default=36,
        metavar="SIDE",
        help=f"visual tokens per side, {GRIDS[0]} to {GRIDS[1]} (default: 36)",
    )
    return parser


def _keep(text: str) -> int | float:
    """A count or a fraction; what the library allows it decides itself."""
    for kind in (int, float):
        try:
            return kind(text)
        except ValueError:
            continue
    raise argparse.ArgumentTypeError(f"{text!r} is neither a count nor a fraction; try 128 or 0.1")


def _grid(text: str) -> int:
    if not text.isdecimal() or not GRIDS[0] <= int(text) <= GRIDS[1]:
        raise argparse.ArgumentTypeError(
            f"{text!r}; allowed are whole numbers from {GRIDS[0]} to {GRIDS[1]}"
        )
    return int(text)


def _seed(text: str) -> int:
    if not text.isdecimal() or int(text) >= 2**31:
        raise argparse.ArgumentTypeError(
            f"{text!r}; allowed are whole numbers from 0 to 2147483647"
        )
    return int(text)


def _defaults(tokens: int) -> list[int]:
    return [keep for keep in KEEPS if keep < tokens]


def _budget(keep: int | float, tokens: int) -> int:
    """Realised K; a budget that compresses nothing has nothing to show."""
    kept = realised_keep(keep, tokens)
    if kept == tokens:
        raise BudgetError(
            f"keep={keep} of {tokens} visual tokens: realised K = {tokens}, so nothing is "
            f"compressed and there is nothing to compare; allowed here are 1 to {tokens - 1}. "
            "Pass --keep 128, or a fraction such as --keep 0.1."
        )
    return kept


if __name__ == "__main__":
    sys.exit(main())
