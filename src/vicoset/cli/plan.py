"""``vicoset plan NAME``: what a plan does, without a model."""

from __future__ import annotations

import argparse
import json
from typing import TYPE_CHECKING, Any

from vicoset.cli.options import add_keep, keep_of, whole
from vicoset.cli.text import columns

if TYPE_CHECKING:
    from vicoset.plan import Keep, Plan

HELP = """\
Say what a plan does to a prompt of N visual tokens in a decoder of L blocks: its stages, the tokens
behind each of them, the average over the blocks, and its work as a share of the uncompressed
model's. No model is loaded."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The command's options."""
    add = parser.add_argument
    add("name", metavar="NAME", help="a preset or selector[+realiser]@p; `vicoset methods` lists")
    add("--tokens", type=whole, default=1296, metavar="N", help="visual tokens (default: 1296)")
    add("--depth", type=whole, default=28, metavar="L", help="blocks of the decoder (default: 28)")
    add_keep(parser)
    add("--images", type=whole, default=1, metavar="I", help="images of the prompt (default: 1)")
    add("--json", action="store_true", help="print one JSON object instead")


def run(options: argparse.Namespace) -> int:
    """Print what the plan does."""
    from vicoset.plan import plan_named

    plan = plan_named(options.name, options.depth)
    found = effect(plan, keep_of(options.keep), options.tokens, options.depth, options.images)
    print(json.dumps(found, indent=2) if options.json else _text(found))
    return 0


def effect(plan: Plan, keep: Keep, tokens: int, depth: int, images: int = 1) -> dict[str, Any]:
    """What a plan does, as JSON values; a budget by coverage gives the two ends of its range.

    Args:
        plan: to look at.
        keep: the run's budget.
        tokens: N.
        depth: L.
        images: I.
    """
    from vicoset.plan import work

    budgets = [stage.budget(keep, tokens, images) for stage in plan.stages]
    ends = plan.counts(keep, tokens, images)
    left = [tokens, *ends[0]]
    notes = [budget.note(n, images) for budget, n in zip(budgets, left, strict=False)]
    spent = [work(plan.boundaries, kept, tokens, depth) for kept in ends]
    return {
        "plan": plan.name,
        "digest": plan.digest(),
        "tokens": tokens,
        "depth": depth,
        "images": images,
        "stages": [
            {
                "boundary": stage.boundary,
                "selector": stage.selector.name,
                "realiser": stage.realiser.name,
                "budget": str(budget),
                "kept": [low, high],
            }
            for stage, budget, low, high in zip(plan.stages, budgets, *ends, strict=True)
        ],
        "kept": [ends[0][-1], ends[1][-1]],
        "average": [w / depth for w in spent],
        "work": spent,
        "work_share": [w / (depth * tokens) for w in spent],
        "notes": [*plan.notes, *filter(None, dict.fromkeys(notes))],
    }


def _text(found: dict[str, Any]) -> str:
    tokens, depth, images = found["tokens"], found["depth"], found["images"]
    of = "" if images == 1 else f" of {images} images"
    edges = [0, *(stage["boundary"] for stage in found["stages"]), depth]
    counts = [[tokens, tokens], *(stage["kept"] for stage in found["stages"])]
    steps = [
        "",
        *(f"{s['selector']} keeps {s['budget']}, {s['realiser']}" for s in found["stages"]),
    ]
    rows = [
        (_blocks(start, end), _range(count), step)
        for start, end, count, step in zip(edges, edges[1:], counts, steps, strict=False)
        if start < end
    ]
    lines = [f"{found['plan']} on {tokens} visual tokens{of} in {depth} blocks", ""]
    lines += [f"  {line}" for line in columns(("", "visual tokens", "stage"), rows, "lr")]
    share = _range([f"{x:.1%}" for x in found["work_share"]])
    work = f"{_range(found['work'])}, {share} of Full's {depth * tokens}"
    lines += [
        "",
        f"  kept behind the last stage  K = {_range(found['kept'])}",
        f"  average over the blocks     {_range([f'{x:.1f}' for x in found['average']])}",
        f"  work W                      {work}",
        f"  digest                      {found['digest']}",
    ]
    return "\n".join([*lines, *(f"  note: {note}" for note in found["notes"])])


def _blocks(first: int, end: int) -> str:
    """The blocks from ``first`` to before ``end``."""
    return f"block {first}" if end - first == 1 else f"blocks {first} to {end - 1}"


def _range(ends: list[Any]) -> str:
    low, high = ends
    return str(low) if low == high else f"{low} to {high}"
