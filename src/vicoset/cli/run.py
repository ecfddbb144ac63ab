"""``vicoset run IMAGE "QUESTION"``: an answer from compressed visual tokens, and what it cost."""

from __future__ import annotations

import argparse
import json
from typing import TYPE_CHECKING, Any

from vicoset.cli.options import (
    ANY_DEPTH,
    PLANS,
    PREFIXES,
    add_keep,
    add_model,
    check_record,
    keep_of,
    loaded,
    quiet,
    whole,
)

if TYPE_CHECKING:
    from vicoset.ask import Asked, Request
    from vicoset.evaluate.method import Method

HELP = """\
Ask a model about a picture with compressed visual tokens; prints the answer and the record's line.
IMAGE is a file, or a picture of the bundled benchmark: tinybench:KIND, tinybench:KIND/NUMBER or
tinybench:KIND/NUMBER/TASK/NUMBER, whose question may be left out. Kinds: document, table, chart,
objects."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The command's options."""
    add = parser.add_argument
    add("image", metavar="IMAGE", help="an image file, or tinybench:document/0000")
    add("question", metavar="QUESTION", nargs="?", help="the user's text behind the image")
    add("--plan", default="gmc-h2", help=PLANS)
    add_keep(parser)
    add_model(parser)
    add(
        "--compare", action="store_true", help="run Full beside it, each once before its clock runs"
    )
    add(
        "--picture", metavar="FILE", help="draw kept tokens and clusters; .png, .jpg, .webp or .pdf"
    )
    add("--record", metavar="FILE", help="append the records, a sealed JSON line each")
    add("--max-new-tokens", type=whole, default=32, metavar="T", help="default: 32")
    add("--prefix", default="gathered", choices=PREFIXES, help="see docs/quickstart.md")
    add("--seed", type=int, default=0, help="for plans that draw (default: 0)")
    add("--allow-uncertified", action="store_true", help="also families without a contract test")
    add("--json", action="store_true", help="print one JSON object instead")


def run(options: argparse.Namespace) -> int:
    """Ask, and print; what can be refused is refused before the model is loaded."""
    from vicoset.ask import Request, source_of
    from vicoset.evaluate.method import Method
    from vicoset.runtime.engine import depth_of
    from vicoset.view.saving import check_target

    _method(options, ANY_DEPTH)
    if options.picture is not None:
        check_target(options.picture)
    check_record(options.record)
    source = source_of(options.image, options.question, options.model)
    model, processor = loaded(options)
    method = _method(options, depth_of(model))
    full: Asked | None = None
    with quiet():
        request = Request(
            model,
            processor,
            source,
            limit=options.max_new_tokens,
            prefix=options.prefix,
            allow_uncertified=options.allow_uncertified,
        )
        if options.compare:
            request.warm(Method())
            full = request.ask(Method())
            request.warm(method)
        asked = request.ask(method)
    if options.json:
        print(json.dumps(_json(request, asked, full), indent=1), flush=True)
    else:
        print("\n".join(_lines(request, asked, full)), flush=True)
    _keep(options, request, asked, full)
    return 0


def _method(options: argparse.Namespace, depth: int) -> Method:
    from vicoset.evaluate.method import methods_of

    (method,) = methods_of([options.plan], [keep_of(options.keep)], depth, [options.seed])
    return method


def _lines(request: Request, asked: Asked, full: Asked | None) -> list[str]:
    """The answer and its record; beside Full, a table between them."""
    from vicoset.cli.asked import table

    if full is None:
        lines = [asked.text]
    else:
        same = "the same" if asked.text == full.text else "another"
        lines = [f"Full: {full.text}", f"{asked.method.asked}: {asked.text}  ({same})", ""]
        lines += [*table([full, asked]), ""]
    lines.append(asked.line)
    source = request.source
    if source.item is not None:
        lines.append(f"{source.question} The benchmark's answer is {source.item.answer}.")
    if full is None and asked.evidence:
        lines.append(f"Of the evidence, {sum(asked.evidence)} of {len(asked.evidence)} is kept.")
    return lines


def _json(request: Request, asked: Asked, full: Asked | None) -> dict[str, Any]:
    from vicoset.cli.asked import to_json

    source = request.source
    found: dict[str, Any] = {"image": source.name, "question": source.question}
    if source.item is not None:
        found["reference"] = source.item.answer
    found |= to_json(asked) | {"record": asked.line}
    if full is not None:
        found |= {"full": to_json(full), "same": asked.text == full.text}
    return found


def _keep(options: argparse.Namespace, request: Request, asked: Asked, full: Asked | None) -> None:
    """Write the record and the picture, in this order; the answer has been printed."""
    from vicoset.ask.page import request_page
    from vicoset.view.saving import save

    if options.record is not None:
        request.write(options.record, [asked] if full is None else [full, asked])
    if options.picture is not None:
        path = save(request_page(request, asked, full), options.picture)
        if not options.json:
            print(f"picture: {path}")
