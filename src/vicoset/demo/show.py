"""The study as plain text."""

from __future__ import annotations

import textwrap
from collections.abc import Iterator

import torch

from vicoset.core.banks import unit
from vicoset.demo.checks import checks
from vicoset.demo.measure import DRAWS, Row, Study
from vicoset.demo.page import AFTER, HEADS, PATCHES, Page

WIDTH = 96
PICTURED = 128


def report(study: Study, seed: int) -> str:
    """Everything the demonstration prints."""
    focus = min(study.rows, key=lambda row: abs(row.keep - PICTURED))
    parts = (
        _header(study, seed),
        _coverage_table(study),
        _message_table(study),
        _picture(study, focus),
        _check_table(study, focus),
        _verdict(study, focus),
    )
    return "\n\n".join("\n".join(part) for part in parts)


def _header(study: Study, seed: int) -> Iterator[str]:
    page = study.page
    low, middle, high = _neighbour_cosines(page)
    attention = page.readings[0].attention
    seen = attention.sum(-1).mean(1)
    top = (attention.topk(8).values.sum(-1) / attention.sum(-1)).mean(1)
    size = f"{page.grid} x {page.grid} visual tokens"
    yield f"A synthetic page: {size}, seed {seed}. No model, no image."
    yield (
        f"  {HEADS} heads, {AFTER} prompt rows, 3 views (current and two before); "
        f"{len(study.clients.row_mass)} clients."
    )
    yield (
        f"  Cosine of neighbouring states: median {middle:.2f}, "
        f"5 % below {low:.2f}, 5 % above {high:.2f}."
    )
    yield f"  By head, attention on the image:              {_numbers(seen.tolist())}"
    yield f"  By head, the eight most read tokens' share:   {_numbers(top.tolist())}"


def _coverage_table(study: Study) -> Iterator[str]:
    yield "Coverage of the support, by bank; for comparison random supports of the same size"
    yield f"(mean of {DRAWS} draws). c_B is the certificate of the rounds, s_x the assignment gate."
    yield ""
    yield (
        "    K    kept | F(S)/F(V) grounded appearance spatial    c_B    s_x "
        "| random: F(S)/F(V) grounded"
    )
    tokens = len(study.page.patch)
    for row in study.rows:
        total = float(row.coverage.covered.sum() / row.coverage.attainable.sum())
        grounded, appearance, spatial = row.coverage.saturation.tolist()
        others = [float(x.covered.sum() / x.attainable.sum()) for x in row.random_coverage]
        their = [float(x.saturation[0]) for x in row.random_coverage]
        yield (
            f"{row.keep:5d} {row.keep / tokens:6.1%} | {total:9.3f} {grounded:8.3f} "
            f"{appearance:10.3f} {spatial:7.3f} {row.certificate:6.3f} "
            f"{float(row.coreset.gate):6.3f} | "
            f"{sum(others) / DRAWS:17.3f} {sum(their) / DRAWS:8.3f}"
        )


def _message_table(study: Study) -> Iterator[str]:
    yield "Relative signed message error of the current block, attention recomputed on carriers."
    yield "Transport moves each carrier to its population; deletion leaves its state as it was."
    yield ""
    yield "          coverage support         random support"
    yield "    K | transport  deletion  |  transport  deletion"
    for row in study.rows:
        yield (
            f"{row.keep:5d} | {row.transport.error:9.3f} {row.deletion.error:9.3f}  | "
            f"{row.random_transport:10.3f} {row.random_deletion:9.3f}"
        )


def _picture(study: Study, row: Row) -> Iterator[str]:
    page, grid = study.page, study.page.grid
    kept = torch.zeros(len(page.patch), dtype=torch.bool)
    kept[row.coreset.indices] = True
    yield f"K = {row.keep}: on evidence '#' kept, '+' dropped; elsewhere 'o' kept, '.' dropped"
    yield ""
    for start in range(0, grid * grid, grid):
        line = slice(start, start + grid)
        marks = zip(kept[line].tolist(), (page.patch[line] >= 0).tolist(), strict=True)
        yield "  " + "".join(("+#" if on else ".o")[keep] for keep, on in marks)
    yield ""
    weight = study.grounding.head_weights[:, None] * study.grounding.query_weights
    mass = (page.readings[0].attention * weight[..., None]).sum((0, 1))
    mass = mass / mass.sum()
    yield "  evidence      tokens  kept   share of the attention on the image"
    for number, patch in enumerate(PATCHES):
        mine = page.patch == number
        yield (
            f"  {patch.name:12s} {int(mine.sum()):7d} {int(kept[mine].sum()):5d}   "
            f"{float(mass[mine].sum()):.3f}{'  meant to be read' if patch.read else ''}"
        )
    rest = page.patch < 0
    yield (
        f"  {'elsewhere':12s} {int(rest.sum()):7d} {int(kept[rest].sum()):5d}   "
        f"{float(mass[rest].sum()):.3f}"
    )


def _check_table(study: Study, row: Row) -> Iterator[str]:
    yield f"Statements of core.bounds on this sample at K = {row.keep}; where a statement has many"
    yield "elements, all are checked and the one with the largest left side is shown."
    yield ""
    for check in checks(study, row):
        sign = " =" if check.identity else "<="
        result = "holds" if check.holds else "FAILS"
        yield f"  {check.name:44s} {check.left:12.5g} {sign} {check.right:12.5g}   {result}"


def _verdict(study: Study, focus: Row) -> Iterator[str]:
    rows = study.rows
    moved, left = focus.transport, focus.deletion
    text = (
        f"{_smaller(rows, 'transport')} At K = {focus.keep} the parts of the error are: "
        f"representation {moved.representation:.3f} with transport and {left.representation:.3f} "
        f"with deletion, attention mass {moved.mass:.3f} and {left.mass:.3f}. "
        f"{_smaller(rows, 'coverage')} "
        "The page shows how the parts of core fit together, and that the statements hold on one "
        "sample. It does not show how well a model answers: the page, its evidence and the "
        "queries are drawn, and nothing here is a claim about a model."
    )
    yield from textwrap.wrap(text, WIDTH)


def _smaller(rows: tuple[Row, ...], side: str) -> str:
    """Which side has the smaller error at which K, in words."""
    if side == "transport":
        pairs = [(row.keep, row.transport.error, row.deletion.error) for row in rows]
        names = ("transport", "deletion")
        where = "On the coverage support"
    else:
        pairs = [(row.keep, row.transport.error, row.random_transport) for row in rows]
        names = ("the coverage support", "the random support")
        where = "With transport"
    found = []
    for name, sign in zip(names, (1, -1), strict=True):
        budgets = [str(keep) for keep, a, b in pairs if sign * (b - a) > 0]
        if budgets:
            found.append(f"{name} has the smaller message error at K = {', '.join(budgets)}")
    return f"{where}, {', and '.join(found) or 'the two message errors are equal'}."


def _neighbour_cosines(page: Page) -> tuple[float, float, float]:
    """The 5 %, 50 % and 95 % points."""
    at = unit(page.population.states).view(page.grid, page.grid, -1)
    across, down = (at[:, 1:] * at[:, :-1]).sum(-1), (at[1:] * at[:-1]).sum(-1)
    cosine = torch.cat([across.flatten(), down.flatten()]).sort().values.tolist()
    low, middle, high = (cosine[int(q * (len(cosine) - 1))] for q in (0.05, 0.5, 0.95))
    return low, middle, high


def _numbers(values: list[float]) -> str:
    return " ".join(f"{value:.2f}" for value in values)
