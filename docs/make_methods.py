"""Write docs/methods.md: `make docs-methods`.

Everything on the page comes from the registry: what each method says of itself stands next to its
code, as ``about``.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from vicoset.methods import registry
from vicoset.methods.base import About
from vicoset.plan import PAPER_BLOCKS, PRESETS, Plan, plan_named
from vicoset.runtime import downsample

PAGE = Path(__file__).with_name("methods.md")

HEAD = """\
# Methods

<!-- `make docs-methods` writes this page; edit `about` next to a method instead. -->

Every method runs on the same models, through the same runtime, with the same meaning of a budget:
`K` is the number of visual tokens behind a plan's last compaction, exactly. Published methods are
written from their papers and checked against descriptions of their released code; none of that code
is in this package, whatever its licence.

A method is named in plans: a *preset* such as `fastv-h2`, or `selector@p` for a stage before block
`p`, or `selector+realiser@p` (see [quickstart](quickstart.md#where-plans)). Any selector runs with
any realiser at any boundary where what it reads exists. `vicoset methods` lists them,
`vicoset plan NAME` says what one does to a prompt: tokens behind each stage, their average over the
blocks, work, and what a published name means.

Every selector passes one contract (`tests/methods/test_matrix.py`), on tiny random Qwen2.5-VL and
LLaVA models, with one image, two, and a left-padded batch of both: exactly `K` distinct indices in
ascending order, a carrier for every image, the same twice, the identity at `K = N`, `K` equal to
the number of images and one more, duplicates, and all tokens equal (the first `K` stay, unless the
method spreads over the image by definition). Scores, softmax and accumulation are in FP32, ties go
to the lower index. What *checked* lists comes on top. None of it says that a method reproduces the
scores of its paper: no published checkpoint was run for this page.

*Query-aware* methods read the question. *Positions* are those of the released code; here they are
the original ones, for all methods alike, and `compress(..., positions="packed")` numbers the kept
tokens anew.

"""


def page() -> str:
    """The page."""
    selectors = [registry.selector(name) for name in registry.names().selectors]
    realisers = [registry.realiser(name) for name in registry.names().realisers]
    controls = [one for one in selectors if one.about.source.startswith("control")]
    methods = [one for one in selectors if one not in controls]
    plans = [plan_named(name, PAPER_BLOCKS) for name in PRESETS]
    parts = [
        HEAD + overview(methods),
        "## Plans with a name",
        f"Boundaries in a decoder of {PAPER_BLOCKS} blocks; other depths keep the shares.",
        table(("preset", "stages", "notes"), map(preset_row, plans)),
        "## Published methods",
        *(section(one, plans) for one in methods),
        "## Controls",
        *(section(one, plans) for one in controls),
        described("downsample", downsample.ABOUT, [("query-aware", "no")]),
        "## Realisers",
        "What each kept token holds; `selector+realiser@p` names one.",
        *(section(one, []) for one in realisers),
    ]
    return "\n\n".join(parts) + "\n"


def overview(methods: Sequence[Any]) -> str:
    """The published methods side by side."""
    rows = [
        (
            f"[`{one.name}`](#{one.name})",
            one.about.title,
            yes(one.query_aware),
            yes(one.about.merges),
            one.about.positions,
            one.about.code and f"`{one.about.code}`",
            one.about.licence,
        )
        for one in methods
    ]
    head = ("selector", "method", "query-aware", "merges", "positions", "public code", "licence")
    return table(head, rows)


def preset_row(plan: Plan) -> tuple[str, str, str]:
    """A preset, its stages and its notes."""
    stages = "; ".join(
        f"`{stage.selector.name}+{stage.realiser.name}@{stage.boundary}`"
        + (f" keeps {stage.keep}" if stage.keep is not None else "")
        for stage in plan.stages[:3]
    )
    more = len(plan.stages) - 3
    stages += f"; and {more} more" if more > 0 else ""
    return f"`{plan.name}`", stages, "; ".join(plan.notes)


def section(method: Any, plans: Sequence[Plan]) -> str:
    """All about one method."""
    about: About = method.about
    named = [p.name for p in plans if any(s.selector.name == method.name for s in p.stages)]
    facts = []
    if hasattr(method, "query_aware"):
        facts.append(("query-aware", yes(method.query_aware)))
    if named:
        facts.append(("plans", ", ".join(f"`{name}`" for name in named)))
    if method.needs:
        facts.append(("needs", ", ".join(f"`{need}`" for need in sorted(method.needs))))
    return described(method.name, about, facts)


def described(name: str, about: About, more: Iterable[tuple[str, str]]) -> str:
    """A section: facts, notes, what was checked."""
    facts = [("source", about.source), ("acts", about.acts), ("reads", about.reads), *more]
    facts.append(("merges", yes(about.merges)))
    if about.code:
        facts += [
            ("its own K", about.budget),
            ("released positions", about.positions),
            ("public code", f"`{about.code}`, licence: {about.licence}"),
        ]
    lines = [f"### {name}", "", f"**{about.title}**", ""]
    lines += [f"- *{what}*: {said}" for what, said in facts]
    for title, notes in (("Notes", about.notes), ("Checked", about.checked)):
        if notes:
            lines += ["", f"{title}:", "", *(f"- {note}" for note in notes)]
    return "\n".join(lines)


def table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """A Markdown table."""
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join(
        f"| {' | '.join(cell.replace('|', chr(92) + '|') for cell in line)} |" for line in lines
    )


def yes(flag: bool) -> str:
    """In words."""
    return "yes" if flag else "no"


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
    print(f"wrote {PAGE}")
