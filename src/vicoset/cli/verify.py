"""``vicoset verify FILE``: recompute what sealed records say, alone or with the model."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from vicoset.cli.options import loaded, quiet, whole

if TYPE_CHECKING:
    from vicoset.audit.verify import Verified

HELP = """\
Recompute from sealed records all that follows from them: seal, digests, K, work, KV bytes,
saturation, certificate, order and range of indices, places and positions. With --model, run every
request again and compare the rest too. A number that disagrees is named. The status is 1 when a
record does not stand. Records come from compress(record_to=...), from vicoset run and from studies;
docs/records.md has the format."""

_MANY = 20  # problems of a line that are printed


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The command's options."""
    add = parser.add_argument
    add("file", metavar="FILE", help="of records, a sealed JSON line each")
    add("--line", type=whole, help="only this line, from 1 on")
    add("--limit", type=whole, help="only the first so many lines")
    add("--model", help="directory of a checkpoint, or tiny: run every request again")
    add("--image", action="append", help="of the request, where the record does not name its own")
    add("--question", help="of the request, where the record does not hold its own")
    add("--device", default="auto", help="cpu, cuda, ...")
    add(
        "--draw", metavar="PNG", help="draw the support of one line (--line), over --image if given"
    )
    add("--quiet", action="store_true", help="print the last line only")
    add("--json", action="store_true", help="print a JSON object for each line")


def run(options: argparse.Namespace) -> int:
    """Verify, and print what was found."""
    from vicoset.audit.verify import verify_file
    from vicoset.errors import SettingError

    if options.draw is not None and options.line is None:
        raise SettingError(
            "--draw shows one record; allowed is together with --line. Add --line 1."
        )
    again = None if options.model is None else _Again(options)
    count = wrong = 0
    for one in verify_file(options.file):
        if options.line is not None and one.number != options.line:
            continue
        if options.limit is not None and count == options.limit:
            break
        if again is not None and one.stands:
            one = again.run(one)
        count += 1
        wrong += not one.stands
        _tell(one, options)
        if options.draw is not None and one.body is not None:
            _draw(one.body, options)
    if not count:
        raise SettingError(f"{options.file} has no line {options.line}; lines count from 1 on.")
    if not options.json:
        how = "from the records alone" if again is None else f"and run again with {options.model}"
        print(f"{count} records verified {how}: {count - wrong} stand, {wrong} do not")
    return 1 if wrong else 0


class _Again:
    """Runs the requests of records with a model."""

    def __init__(self, options: argparse.Namespace) -> None:
        self._options = options
        self._loaded: dict[tuple[str, str], tuple[Any, Any]] = {}

    def run(self, one: Verified) -> Verified:
        """The same line with what a second run disagrees about.

        Args:
            one: a line that stands by itself.
        """
        from vicoset.audit.verify import Problem, rerun
        from vicoset.cli.asking import squared_as
        from vicoset.errors import VicosetError
        from vicoset.runtime.downsample import templated

        assert one.body is not None
        body = one.body
        try:
            model, processor = self._model(body)
            chat, processor = squared_as(body, model, processor, _chat(body, self._options))
            inputs = templated(processor, [chat]).to(model.device, dtype=model.dtype)
        except (VicosetError, OSError) as error:
            found = [Problem("about", f"the request cannot be run again: {error}")]
        else:
            with quiet():
                found = rerun(body, model, inputs, processor=processor)
        return one.also(found)

    def _model(self, body: Mapping[str, Any]) -> tuple[Any, Any]:
        """The model in the dtype and with the kernel of a record."""
        key = body["dtype"], body["attention"]
        if key not in self._loaded:
            self._loaded.clear()
            asked = argparse.Namespace(**{**vars(self._options), "dtype": key[0]})
            asked.attention = key[1]
            self._loaded[key] = loaded(asked)
        return self._loaded[key]


def _chat(body: Mapping[str, Any], options: argparse.Namespace) -> list[dict[str, Any]]:
    """The request of a record, by the options or by what the record says ``about`` it."""
    from vicoset.cli.asking import request_of

    images, question = request_of(body, options.image, options.question)
    parts = [{"type": "image", "image": image} for image in images]
    return [{"role": "user", "content": [*parts, {"type": "text", "text": question}]}]


def _tell(one: Verified, options: argparse.Namespace) -> None:
    if options.json:
        problems = [{"where": p.where, "what": p.what} for p in one.problems]
        print(json.dumps({"line": one.number, "stands": one.stands, "problems": problems}))
        return
    if options.quiet:
        return
    if one.stands:
        print(f"line {one.number}: stands")
        return
    print(f"line {one.number}: does not stand")
    for problem in one.problems[:_MANY]:
        print(f"  {problem}")
    if len(one.problems) > _MANY:
        print(f"  and {len(one.problems) - _MANY} more")


def _draw(body: Mapping[str, Any], options: argparse.Namespace) -> None:
    """The support, and the clusters where the record has them, on one page."""
    from vicoset.ask.source import image_of
    from vicoset.view import Panel, cluster_map, sheet, sheet_of, support_map, support_of

    support = support_of(body)
    image = sheet_of(body)
    if options.image:
        image = image_of(options.image[0], str(body.get("model", {}).get("type", "")))
    lines = (f"{int(support.kept.sum())} of {support.tokens} tokens",)
    panels = [Panel(support_map(image, support), "kept", lines)]
    first = support_of(body, stage=0)
    if first.carrier is not None:
        panels.append(Panel(cluster_map(image, first), "clusters of the first stage"))
    sheet(panels).save(options.draw)
    print(options.draw, file=sys.stderr if options.json else sys.stdout)
