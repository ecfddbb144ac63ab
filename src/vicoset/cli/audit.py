"""``vicoset audit IMAGE "QUESTION"``: what a compression did to the evidence of one question."""

from __future__ import annotations

import argparse
import json

from vicoset.cli.options import (
    ANY_DEPTH,
    PLANS,
    add_keep,
    add_model,
    keep_of,
    loaded,
    quiet,
    whole,
    wholes,
)

HELP = """\
Answer a question with and without compression and say what became of the evidence: coverage by
bank with its certificate, states, signed messages, decisions with and without the image. Every
bound of the analysis is checked on the request; the status is 1 when one of them is violated."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The command's options."""
    add = parser.add_argument
    add("images", nargs="+", metavar="IMAGE", help="files, or tinybench:document/0000")
    add("question", metavar="QUESTION", help="the user's text behind the images")
    add("--plan", default="gmc-h2", help=PLANS)
    add_keep(parser)
    add_model(parser)
    add("--level", default="full", choices=("light", "full"), help="light: coverage alone")
    add("--blocks", type=wholes, help="whose messages to compare: 2,5 (default: the boundaries)")
    add("--limit", type=whole, default=8, help="most tokens of the answer (default: 8)")
    add("--null", default="masked", choices=("masked", "blank"), help="the model without the image")
    add("--json", action="store_true", help="print one JSON object instead")


def run(options: argparse.Namespace) -> int:
    """Audit, and print the result."""
    from vicoset.ask.source import image_of
    from vicoset.audit import audit
    from vicoset.plan import plan_named

    plan_named(options.plan, ANY_DEPTH)
    keep = keep_of(options.keep)
    images = [image_of(name, options.model) for name in options.images]
    model, processor = loaded(options)
    with quiet():
        found = audit(
            model,
            processor,
            images,
            options.question,
            options.plan,
            keep,
            level=options.level,
            blocks=options.blocks,
            limit=options.limit,
            null=options.null,
        )
    print(json.dumps(found.to_json(), indent=1) if options.json else found)
    return 1 if found.violations else 0
