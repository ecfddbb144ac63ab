"""``vicoset audit IMAGE "QUESTION"``: what a compression did to the evidence of one question."""

from __future__ import annotations

import argparse
import json

from vicoset.cli.options import KEEP_FORMS, keep_of, whole

HELP = """\
Answer a question with and without compression and say what became of the evidence: coverage by
bank with its certificate, states, signed messages, decisions with and without the image. Every
bound of the analysis is checked on the request; the status is 1 when one of them is violated."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The command's options."""
    add = parser.add_argument
    add("images", nargs="+", metavar="IMAGE", help="one or more image files")
    add("question", metavar="QUESTION", help="the user's text behind the images")
    add("--model", default="tiny", help="directory of a checkpoint, or tiny (default)")
    add("--plan", default="gmc-h2", help="a plan; `vicoset methods` lists them (default: gmc-h2)")
    add("--keep", default="128", help=f"{KEEP_FORMS} (default: 128)".replace("%", "%%"))
    add("--level", default="full", choices=("light", "full"), help="light: coverage alone")
    add("--blocks", help="blocks whose messages to compare, such as 2,5 (default: the boundaries)")
    add("--limit", type=whole, default=8, help="most tokens of the answer (default: 8)")
    add("--null", default="masked", choices=("masked", "blank"), help="the model without the image")
    add("--dtype", default="auto", help="auto, float32, bfloat16 or float16")
    add("--device", default="auto", help="cpu, cuda, ...")
    add("--attention", help="attention kernel, such as sdpa or eager")
    add("--json", action="store_true", help="print one JSON object instead")


def run(options: argparse.Namespace) -> int:
    """Audit, and print the result."""
    from vicoset.audit import audit
    from vicoset.evaluate.loading import load_named

    blocks = None if options.blocks is None else [int(b) for b in options.blocks.split(",")]
    model, processor = load_named(
        options.model, dtype=options.dtype, device=options.device, attention=options.attention
    )
    found = audit(
        model,
        processor,
        [_picture(path) for path in options.images],
        options.question,
        options.plan,
        keep_of(options.keep),
        level=options.level,
        blocks=blocks,
        limit=options.limit,
        null=options.null,
    )
    print(json.dumps(found.to_json(), indent=1) if options.json else found)
    return 1 if found.violations else 0


def _picture(path: str) -> object:
    from PIL import Image

    from vicoset.errors import UnreadableError

    try:
        with Image.open(path) as image:
            return image.convert("RGB")
    except (OSError, ValueError) as error:
        raise UnreadableError(
            f"the image {path} cannot be read ({error}); allowed are the formats of Pillow. "
            "Check the path."
        ) from error
