"""``vicoset demo``: one question, with fewer and fewer visual tokens, on the bundled model."""

from __future__ import annotations

import argparse
import os
import shlex
import shutil
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from vicoset.cli.options import add_model, loaded, quiet

if TYPE_CHECKING:
    from vicoset.ask import Asked, Request, Source
    from vicoset.evaluate.method import Method

HELP = """\
Ask the bundled model about a document, with all visual tokens and with 256 and 128 of them: GMC at
an early and at a deep boundary, and random tokens as a control. Prints what was answered, how much
of the evidence was kept and what it cost, and draws what was kept."""

ITEM = "tinybench:document/0003"
PICTURE = "vicoset-demo.png"
LIMIT = 8  # tokens; an answer has three and its end
MORE, FEWER = 256, 128
EARLY, DEEP, CONTROL = "gmc-h2", "gmc-l16", "random"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The command's options."""
    add = parser.add_argument
    add("--item", default=ITEM, help=f"picture or question of the benchmark (default: {ITEM})")
    add("--picture", default=PICTURE, metavar="FILE", help=f"what to draw (default: {PICTURE})")
    add_model(parser)
    parser.set_defaults(dtype="float32")  # the same answers, and no slower, on any CPU


def run(options: argparse.Namespace) -> int:
    """Ask, print, draw."""
    start = time.perf_counter()
    from vicoset.ask import source_of
    from vicoset.ask.page import comparison_page
    from vicoset.ask.request import Request
    from vicoset.cli.asked import table
    from vicoset.errors import SettingError
    from vicoset.evaluate.method import Method
    from vicoset.runtime.engine import depth_of
    from vicoset.view.saving import check_target, save

    target = check_target(options.picture)
    source = source_of(options.item, None, options.model)
    if source.item is None:
        raise SettingError(
            f"--item {options.item!r} is no question of the benchmark; allowed are names such as "
            f"{ITEM}. Ask about a picture of your own with {program()} run IMAGE QUESTION."
        )
    model, processor = loaded(options)
    depth = depth_of(model)
    methods = methods_at(depth)
    with quiet():
        request = Request(model, processor, source, limit=LIMIT)
        for method in (Method(), methods[0]):
            request.warm(method)
        full = request.ask(Method())
        print("\n".join(_head(request, full, model, depth)), flush=True)
        asked = [request.ask(method) for method in methods]
    print("\n".join(f"  {line}" for line in table([full, *asked])), flush=True)
    print("\n".join(_legend(full, asked)), flush=True)
    shown = [one for one in asked if str(one.method.keep) == str(FEWER)][:3]
    path = save(comparison_page(request, shown, full), target)
    print(f"\nPicture: {path}, what was kept at K = {FEWER} and where the other tokens went.")
    print("\n".join(_next(options.model, source)))
    print(f"\n{time.perf_counter() - start:.0f} seconds in all.")
    return 0


def methods_at(depth: int) -> list[Method]:
    """What is compared with Full: both boundaries at both budgets, and the control at both.

    Args:
        depth: L, blocks of the decoder.
    """
    from vicoset.evaluate.method import methods_of
    from vicoset.plan import plan_named

    boundaries = [plan_named(name, depth).boundaries[0] for name in (EARLY, DEEP)]
    controls = [f"{CONTROL}@{boundary}" for boundary in dict.fromkeys(boundaries)]
    made = methods_of([EARLY, DEEP], [MORE], depth)
    return made + methods_of([EARLY, DEEP, *controls], [FEWER], depth)


def program() -> str:
    """How this installation's command is called in this shell."""
    own = Path(sys.executable).with_name("vicoset")
    found = shutil.which("vicoset")
    if found is not None and (not own.exists() or os.path.samefile(found, own)):
        return "vicoset"
    if own.exists():
        near = os.path.relpath(own)
        return shlex.quote(near if len(near) < len(str(own)) else str(own))
    return f"{shlex.quote(sys.executable)} -m vicoset"


def suggestions(model: str, source: Source) -> list[tuple[str, str]]:
    """What to try next: a line about it, and the command.

    Args:
        model: as the demonstration was given it.
        source: what was asked.
    """
    given = "" if model == "tiny" else f" --model {shlex.quote(model)}"
    ask = f"run tinybench:chart/0000 --plan {DEEP} --keep 64 --compare --picture chart.png{given}"
    audit = f"audit {source.name} {shlex.quote(source.question)} --plan {DEEP}{given}"
    study = (
        "evaluate study fixed-k --tasks tinybench-document --images 5 "
        "--methods downsample,grid+drop@2,random+drop@2 --seeds 0 "
        f"--keeps {FEWER} --model {shlex.quote(model)} --out runs"
    )
    return [
        ("another picture, another budget", f"{program()} {ask}"),
        ("what became of coverage, messages and decisions", f"{program()} {audit}"),
        ("a measurement: 20 questions, with intervals", f"{program()} {study}"),
    ]


def _head(request: Request, full: Asked, model: object, depth: int) -> Iterator[str]:
    source, record = request.source, full.record
    assert source.item is not None
    size = "{} x {} pixels".format(*source.image.size)
    device = getattr(model, "device", "cpu")
    kind = type(model).__name__
    yield "One question about one document, with fewer and fewer visual tokens."
    yield ""
    yield f"  picture    {source.name}, {size}, N = {record.tokens} visual tokens"
    yield f"  question   {source.question}"
    yield f"  reference  {source.item.answer}"
    yield f"  model      {kind}, {depth} blocks, {record.dtype} on {device}"
    yield ""


def _legend(full: Asked, asked: Sequence[Asked]) -> Iterator[str]:
    marks = len(full.evidence)
    yield ""
    if marks:
        yield f"  evidence  of the {marks} marks that the answer needs, those under a kept token"
    yield "  coverage  F(S)/F(V): how well the kept tokens cover what all of them cover"
    yield "  work      visual tokens times blocks, beside Full's; seconds include the vision tower"
    yield from (f"  note      {note}" for note in _notes(asked))
    yield ""
    yield "One question shows how it works and proves nothing. What it costs is exact; how often"
    yield "answers survive is for a benchmark to say, such as the last command below."


def _notes(asked: Sequence[Asked]) -> list[str]:
    return list(dict.fromkeys(note for one in asked for note in one.record.notes))


def _next(model: str, source: Source) -> Iterator[str]:
    yield ""
    yield "To try next:"
    for line, command in suggestions(model, source):
        yield f"  # {line}"
        yield f"  {command}"
