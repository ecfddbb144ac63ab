"""``vicoset methods``: what a plan can be made of."""

from __future__ import annotations

import argparse
import json
import textwrap
from typing import Any

from vicoset.cli.text import columns

HELP = """\
List the presets, the selectors and the realisers that plans are made of. A plan is a preset, or
<selector>@p, or <selector>+<realiser>@p: keep what the selector chooses before block p, and let the
realiser decide what each carrier holds. Query-aware selectors read the question."""

WIDTH = 100
NOTHING = "boundary states"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The command's options."""
    parser.add_argument("--json", action="store_true", help="print one JSON object instead")


def run(options: argparse.Namespace) -> int:
    """Print the lists."""
    found = listing()
    print(json.dumps(found, indent=2) if options.json else _text(found))
    return 0


def listing() -> dict[str, list[dict[str, Any]]]:
    """Presets, selectors and realisers, in the order of their names."""
    from vicoset import methods, plan

    known = methods.registry.names()
    return {
        "presets": [
            {
                "name": name,
                "stages": [str(stage) for stage in plan.plan_named(name, plan.PAPER_BLOCKS).stages],
            }
            for name in plan.PRESETS
        ],
        "selectors": [_described(methods.registry.selector(name)) for name in known.selectors],
        "realisers": [_described(methods.registry.realiser(name)) for name in known.realisers],
    }


def _described(method: Any) -> dict[str, Any]:
    """Name, what it says about itself, and what it reads."""
    about = getattr(method, "about", None)
    told = " ".join((type(method).__doc__ or "").split("\n\n")[0].split())
    found: dict[str, Any] = {"name": method.name, "what": told}
    if hasattr(method, "query_aware"):
        found["query_aware"] = method.query_aware
    found["needs"] = sorted(getattr(method, "needs", ()))
    if about is not None:
        found |= {"title": about.title, "source": about.source}
    return found


def _text(found: dict[str, list[dict[str, Any]]]) -> str:
    from vicoset.plan import PAPER_BLOCKS

    lines = [f"Presets, in a decoder of {PAPER_BLOCKS} blocks (--plan NAME):", ""]
    rows = [(preset["name"], ", ".join(preset["stages"])) for preset in found["presets"]]
    lines += [f"  {line}" for line in columns(("preset", "stages"), rows)]
    lines += ["", "Selectors (--plan SELECTOR@p): what stays", ""]
    rows3 = [
        (
            method["name"],
            "yes" if method["query_aware"] else "no",
            ", ".join(method["needs"]) or NOTHING,
            method.get("title") or method["what"].partition(";")[0].rstrip("."),
        )
        for method in found["selectors"]
    ]
    head = ("selector", "query-aware", "reads", "what it is")
    lines += [f"  {line}" for line in columns(head, rows3)]
    lines += ["", "Realisers (--plan SELECTOR+REALISER@p): what each carrier holds", ""]
    width = max(len(method["name"]) for method in found["realisers"]) + 2
    for method in found["realisers"]:
        first, *more = textwrap.wrap(method["what"], WIDTH - width - 2) or [""]
        lines.append(f"  {method['name']:{width}s}{first}")
        lines += [" " * (width + 2) + line for line in more]
    return "\n".join(lines)
