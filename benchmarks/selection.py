"""`make bench-selection`: how long every selector takes, beside what its mathematics demands.

Scenes have the sizes of a 7B decoder (width 3,584, 28 query and 4 key heads) and of its vision
tower, with smooth synthetic states. *Arithmetic* is measured in the same process: the matrix
products of the method's definition at their own sizes, softmax entries at the speed of a softmax,
other passes at the speed of a running maximum. What a method needs beyond that is sorting,
gathering and calls. Memory is the rise of the peak resident size during a selection. All times
are processor seconds of one thread; medians of some turns at the small size, one turn at the
large one.

The vision tower's received attention is timed apart: it is read by several methods, and once.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import Tensor

sys.path.insert(0, str(Path(__file__).parent))

from population import HEAD_WIDTH, HEADS, KEY_HEADS, TEXT_BEFORE, WIDTH, field

from vicoset.core.banks import grid_coordinates
from vicoset.core.settings import Settings
from vicoset.methods import registry
from vicoset.methods.base import Decoder, Parts, Scene, Text, Tower, View
from vicoset.runtime.tower import received

TOWER, KEY, WORDS = 1280, 80, 30  # widths of Qwen2.5-VL's tower; tokens of the question
SIZES = {36: 128, 126: 4096}  # side of the grid -> K
CHANNELS = 256  # that VLM-Pruner compares
MIB = 1 << 20


class Demand(NamedTuple):
    """What a definition demands.

    Attributes:
        products: (rows, width, columns) of each matrix product.
        alone: the same for products whose rows come one after another, each a pass of its own.
        exps: entries of softmaxes.
        passes: entries that other passes read.
    """

    products: tuple[tuple[float, int, int], ...] = ()
    exps: float = 0.0
    passes: float = 0.0
    alone: tuple[tuple[float, int, int], ...] = ()


def demand(name: str, n: int, k: int) -> tuple[Demand, ...]:
    """What a selector's definition demands of N tokens and K kept: the cheapest of these ways."""
    length = n + TEXT_BEFORE + WORDS
    row = (HEADS, HEAD_WIDTH, length)
    every = Demand(((HEADS * length / 2, HEAD_WIDTH, length),), HEADS * length * length / 2)
    gram = lambda width: (n / 2, width, n)  # noqa: E731  (symmetric: half of the rows)
    greedy = (Demand((gram(WIDTH),), 0, k * n), Demand((), 0, k * n, ((k, WIDTH, n),)))
    important, dropped = k // 2, n - k
    left = n - important
    rounds = range(important, left, 8)
    pool = 3 * dropped // 10 + 1
    clusters = pool // 10 + 1
    dominant = k - round(10 / 64 * k)
    known = {
        "fastv": Demand((row,), HEADS * length),
        "pyramiddrop": Demand((row,), HEADS * length),
        "uniform-head": Demand(((HEADS * WORDS, *row[1:]),), HEADS * WORDS * length),
        "uniform-head-question": Demand(((HEADS * WORDS, *row[1:]),), HEADS * WORDS * length),
        "fastv-mean": every,
        "fitprune": every,
        "divprune": Demand((gram(WIDTH),), 0, k * n),
        "divprune-vit": Demand((gram(TOWER),), 0, k * n),
        "k-center": greedy,
        "norm-diversity": greedy,
        "cdpruner-style": [one._replace(passes=k * k * n / 2 + k * n) for one in greedy],
        "mmtok": Demand((gram(TOWER), (WORDS, WIDTH, n)), n * n + WORDS * n, n * n),
        "hawk": Demand(((n, WIDTH, KEY_HEADS * HEAD_WIDTH), (HEADS, HEAD_WIDTH, n))),
        "hawk-style": Demand(((n, WIDTH, KEY_HEADS * HEAD_WIDTH), (HEADS, HEAD_WIDTH, n))),
        "visionzip": Demand(((n - dominant, KEY, k - dominant),), 0, (n - dominant) * KEY),
        "visionzip-mean": Demand(((n - dominant, KEY, k - dominant),), 0, (n - dominant) * KEY),
        "visionzip-dominant": Demand((), 0, n),
        "vispruner": Demand(((left / 2, TOWER, left),), 0, 2.0 * left * len(rounds)),
        "apet": Demand(((2 * n, WIDTH, 10), (dropped, WIDTH, k - 10)), 0, 12 * n * WIDTH),
        "apet-states": Demand(((2 * n, WIDTH, 10), (dropped, WIDTH, k - 10)), 0, 12 * n * WIDTH),
        "tome": tome(n, k),
        "dart": Demand(((8, WIDTH, n),), 0, 2 * n * WIDTH + length * KEY_HEADS * HEAD_WIDTH),
        "holov": Demand(((n, WIDTH, max(1, round(n / max(1, int(1024 / 576 * n / k))))),), 0, n),
        "sparsevlm": Demand(
            ((n, WIDTH, WORDS), (HEADS * WORDS, *row[1:]), (pool / 2, WIDTH, pool)),
            n * WORDS + HEADS * WORDS * length,
            2.0 * pool * pool + pool * clusters,
        ),
        "vlm-pruner": Demand(
            ((n, CHANNELS, k), (dropped, CHANNELS, k)), 0, 3 * n * WIDTH + 4 * n * 512 + 3.0 * n * k
        ),
        "topk-norm": Demand((), 0, n * WIDTH),
        "random": Demand((), 0, n),
        "grid": Demand((), 0, n),
    }
    found = known.get(name, ())
    return (found,) if isinstance(found, Demand) else tuple(found)


def tome(n: int, k: int, rounds: int = 24) -> Demand:
    """Half the tokens against the other half, in every round."""
    sizes = [n - (n - k) * done // rounds for done in range(rounds)]
    return Demand(
        tuple((s / 2, WIDTH, s // 2) for s in sizes), 0, sum(3 * s * WIDTH for s in sizes)
    )


class Speeds:
    """Seconds of products, softmax entries and passes, measured here."""

    def __init__(self) -> None:
        scores = torch.randn(256, 2048)
        self.exp = seconds(lambda: scores.softmax(-1), 9) / scores.numel()
        first, second = torch.randn(2, 1 << 18)
        self.entry = seconds(lambda: torch.maximum(first, second, out=first), 9) / len(first)

    def of(self, wanted: Demand) -> float:
        """Seconds of all of it."""
        found = wanted.exps * self.exp + wanted.passes * self.entry
        found += sum(self.product(*sizes, most=512) for sizes in wanted.products)
        return found + sum(self.product(*sizes, most=1) for sizes in wanted.alone)

    def product(self, rows: float, width: int, columns: int, most: int) -> float:
        """Seconds of a product, so many rows at a time."""
        piece = max(1, min(int(rows), most))
        left, right = torch.randn(piece, width), torch.randn(width, columns)
        out = torch.empty(piece, columns)
        return seconds(lambda: torch.mm(left, right, out=out), 3) * rows / piece


def seconds(task: Callable[[], object], repeats: int) -> float:
    """Median processor seconds, after one turn that warms up."""
    times = []
    for turn in range(repeats + 1):
        start = time.process_time()
        task()
        if turn:
            times.append(time.process_time() - start)
    return statistics.median(times)


def risen(task: Callable[[], object]) -> float:
    """MiB by which the peak resident size rises over what is resident before."""
    Path("/proc/self/clear_refs").write_text("5")
    before = status("VmRSS")
    task()
    return max(0, status("VmHWM") - before) / 1024


def status(name: str) -> int:
    """KiB of a line of the process's status."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return int(next(line for line in lines if line.startswith(name)).split()[1])


def scene(side: int, seed: int = 0) -> Scene:
    """A scene with every part, on a square grid."""
    draw = torch.Generator().manual_seed(seed)
    tokens = side * side
    length = tokens + TEXT_BEFORE + WORDS
    states = field(side, WIDTH, 6, draw) + 0.7 * field(side, WIDTH, 12, draw)
    states += 0.5 * torch.randn(tokens, WIDTH, generator=draw)
    features = field(side, TOWER, 8, draw) + 0.5 * torch.randn(tokens, TOWER, generator=draw)
    visual = torch.arange(TEXT_BEFORE, TEXT_BEFORE + tokens)
    rows = torch.arange(length - WORDS, length)
    words = torch.randn(WORDS, WIDTH, generator=draw)
    asked = torch.ones(WORDS, dtype=torch.bool)
    view = viewed(length, rows, draw)
    maps = [
        torch.randn(WIDTH, h * HEAD_WIDTH, generator=draw) / WIDTH**0.5 for h in (HEADS, KEY_HEADS)
    ]

    def projected(weight: Tensor) -> Callable[[int, Tensor], Tensor]:
        return lambda _, x: (x @ weight).unflatten(-1, (-1, HEAD_WIDTH)).transpose(0, 1)

    tower = Tower(
        features, features[:, :KEY].contiguous(), torch.rand(tokens, generator=draw), None, None
    )
    parts = Parts(
        embeddings=states,
        text=Text(
            ids=torch.arange(WORDS),
            embeddings=words,
            positions=rows,
            question_mask=asked,
            question="what is written on the sign beside the door",
            states=words,
            embed=lambda given: words[: len(given)],
        ),
        tower=tower,
        current=view,
        previous=view,
        decoder=Decoder(28, projected(maps[0]), projected(maps[1]), lambda x: x),
    )
    return Scene(
        states=states,
        coordinates=grid_coordinates(side, side),
        image_ids=torch.zeros(tokens, dtype=torch.long),
        images=1,
        visual=visual,
        queries=rows,
        boundary=2,
        views=(view, view, view),
        settings=Settings(),
        seed=0,
        parts=parts,
    )


def viewed(length: int, rows: Tensor, draw: torch.Generator) -> View:
    """A view of a causal block."""
    every = torch.randn(HEADS, length, HEAD_WIDTH, generator=draw)
    probed = torch.randn(HEADS, HEAD_WIDTH, 4, generator=draw)
    return View(
        block=1,
        queries=every.index_select(1, rows),
        keys=torch.randn(KEY_HEADS, length, HEAD_WIDTH, generator=draw),
        values=torch.randn(KEY_HEADS, length - TEXT_BEFORE - WORDS, HEAD_WIDTH, generator=draw),
        output_probe=lambda probe: probed,
        scaling=HEAD_WIDTH**-0.5,
        every_query=every,
    )


def table(side: int, names: list[str], repeats: int) -> None:
    """Print the selectors of one size."""
    found, keep = scene(side), SIZES[side]
    speeds = Speeds()
    print(f"\nN = {side * side:,}, K = {keep:,}, {torch.get_num_threads()} thread")
    print("| selector | time | its arithmetic | ratio | peak rise |")
    print("| --- | ---: | ---: | ---: | ---: |")
    for name in names:
        method = registry.selector(name)
        times: list[float] = []

        def select(method: Any = method, times: list[float] = times) -> None:
            start = time.process_time()
            method.select(found, keep)
            times.append(time.process_time() - start)

        rise = risen(select)
        for _ in range(repeats - 1):
            select()
        taken = statistics.median(times)
        floor = min(map(speeds.of, demand(name, side * side, keep)), default=None)
        said = ("", "") if floor is None else (shown(floor), f"{taken / floor:.1f}")
        print(f"| `{name}` | {shown(taken)} | {said[0]} | {said[1]} | {rise:.0f} MiB |", flush=True)


def tower(patches: int, heads: int = 16) -> None:
    """Print what received attention of one full block takes, streamed."""
    queries, keys = torch.randn(2, heads, patches, KEY)
    rise = risen(lambda: received(queries, keys, KEY**-0.5))
    taken = seconds(lambda: received(queries, keys, KEY**-0.5), 3)
    floor = Speeds().of(Demand(((heads * patches, KEY, patches),), heads * patches**2))
    print(f"\nReceived attention of {patches:,} patches, {heads} heads (Qwen2.5-VL's last block):")
    print(f"{shown(taken)}, its arithmetic {shown(floor)}, peak rise {rise:.0f} MiB")


def shown(value: float) -> str:
    """Seconds for people."""
    return f"{value:.2f} s" if value >= 1 else f"{value * 1e3:.2f} ms"


def main() -> None:
    """Print everything."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--sides", type=int, nargs="*", default=list(SIZES), choices=list(SIZES))
    parser.add_argument("--methods", nargs="*", help="selectors; all by default")
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--no-tower", action="store_true")
    options = parser.parse_args()
    torch.set_num_threads(1)
    without = {"cdpruner"}  # its relevance is a CLIP forward; the rest is cdpruner-style's
    names = options.methods or [n for n in registry.names().selectors if n not in without]
    with torch.inference_mode():
        if not options.no_tower:
            tower(4 * 36 * 36)
        for side in options.sides:
            table(side, names, options.repeats if side == min(SIZES) else 1)


if __name__ == "__main__":
    main()
