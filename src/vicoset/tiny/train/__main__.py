"""``python -m vicoset.tiny.train``: a bundled model, trained from nothing."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

import torch

from vicoset.errors import SettingError, VicosetError
from vicoset.tiny import configs
from vicoset.tiny.train.loop import Trainer
from vicoset.tiny.train.recipe import recipe
from vicoset.tiny.train.write import write


def main(argv: Sequence[str] | None = None) -> int:
    """Train, from the folder's checkpoint if there is one, and write the model.

    Args:
        argv: arguments; the process's own by default.
    """
    parser = argparse.ArgumentParser(
        prog="python -m vicoset.tiny.train",
        description="Train a bundled model from nothing. A run that was ended goes on where its "
        "last checkpoint was when it is started again with the same folder.",
    )
    add = parser.add_argument
    add("folder", type=Path, help="for the checkpoint, the journal and, in the end, model/")
    add("--family", choices=configs.FAMILIES, default="qwen")
    add("--seed", type=int, default=0)
    add("--scale", type=float, default=1.0, help="of the number of steps; 1 is the whole recipe")
    add("--threads", type=int, default=1, help="of one process (default 1)")
    add("--every", type=int, default=20, help="steps between lines of the journal (default 20)")
    options = parser.parse_args(argv)
    try:
        _check(options.scale, options.threads, options.every)
        torch.set_num_threads(options.threads)
        phases = recipe(options.family, options.scale)
        trainer = Trainer(options.family, options.seed, phases, options.folder)
        trainer.run(every=options.every)
        print(f"wrote {write(trainer.model, options.family, options.folder / 'model')}")
    except KeyboardInterrupt:
        print("\ninterrupted; the same command goes on from the last checkpoint", file=sys.stderr)
        return 130
    except (VicosetError, OSError) as error:
        print(f"vicoset.tiny.train: {error}", file=sys.stderr)
        return 2
    return 0


def _check(scale: float, threads: int, every: int) -> None:
    if not 0 < scale <= 10:
        raise SettingError(
            f"--scale {scale:g}; allowed are numbers above 0 and up to 10. 1 is the whole recipe."
        )
    for name, value in (("--threads", threads), ("--every", every)):
        if value < 1:
            raise SettingError(f"{name} {value}; allowed are whole numbers from 1 on. Try 1.")


if __name__ == "__main__":
    sys.exit(main())
