"""What it costs to look: records that keep nothing, light or full evidence, and whole audits.

Every figure is a share of Full's prefill on the same prompt, from the same process, run in turn.

    python benchmarks/auditing.py                # a random Qwen2.5-VL, N = 1,296
    python benchmarks/auditing.py --model tiny   # the bundled model on pictures of its benchmark
    python benchmarks/auditing.py --model DIR --image page.png --question "what is the total?"
"""

from __future__ import annotations

import argparse
import statistics
import sys
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import torch

sys.path.insert(0, str(Path(__file__).parent))

import inside

from vicoset import compress
from vicoset.audit import audit_inputs
from vicoset.audit.verify import verify_line
from vicoset.runtime.record_lines import seal

LEVELS = ("none", "light", "full")
MORE = ("line", "verify")


def prompts(options: argparse.Namespace) -> tuple[Any, Iterator[dict[str, Any]]]:
    """A model, and a prompt for every turn."""
    if options.model == "random":
        return inside.model(), iter([inside.prompt()] * (options.repeats + 1))
    from PIL import Image

    from vicoset.ask.source import resolution_of
    from vicoset.evaluate.loading import load_named
    from vicoset.evaluate.tasks import task
    from vicoset.runtime.downsample import templated

    model, processor = load_named(options.model)

    def asked(image: Any, question: str) -> dict[str, Any]:
        parts = [{"type": "image", "image": image}, {"type": "text", "text": question}]
        inputs = templated(processor, [[{"role": "user", "content": parts}]])
        return dict(inputs.to(model.device, dtype=model.dtype))

    if options.image:
        with Image.open(options.image) as image:
            same = asked(image.convert("RGB"), options.question)
        return model, iter([same] * (options.repeats + 1))
    items = task("tinybench").load(
        None, model=resolution_of(options.model), images=options.repeats // 24 + 1
    )
    chosen = [items[n % len(items)] for n in range(options.repeats + 1)]
    return model, (asked(one.pictures[0].read(), one.prompt) for one in chosen)


class Turn:
    """The tasks of one turn, on one prompt.

    Attributes:
        lines: level -> the sealed line of the latest record.
        tokens: N.
    """

    def __init__(self, model: Any, inputs: dict[str, Any], options: argparse.Namespace) -> None:
        self.model, self.inputs, self.options = model, inputs, options
        self.record: Any = None
        self.lines: dict[str, bytes] = {}
        self.tokens = 0

    def prefill(self) -> None:
        self.model(**self.inputs, use_cache=True, logits_to_keep=1)

    def compressed(self, level: str) -> None:
        with compress(self.model, self.options.plan, keep=self.options.keep, audit=level) as run:
            self.prefill()
        self.record, self.tokens = run.records[-1], run.records[-1].tokens

    def write(self, level: str) -> None:
        self.lines[level] = seal(self.record.to_json())[:-1]

    def verify(self, level: str) -> None:
        assert verify_line(self.lines[level]).stands

    def audit(self, level: str) -> None:
        plan, keep = self.options.plan, self.options.keep
        found = audit_inputs(
            self.model, self.inputs, plan, keep, level=level, limit=self.options.limit
        )
        assert not found.violations

    def tasks(self) -> dict[str, Callable[[], None]]:
        """In the order in which they run."""
        found: dict[str, Callable[[], None]] = {"Full": self.prefill}
        for level in LEVELS:
            found[f"audit={level}"] = partial(self.compressed, level)
            found[f"line {level}"] = partial(self.write, level)
            found[f"verify {level}"] = partial(self.verify, level)
        for level in LEVELS[1:]:
            found[f"whole audit, {level}"] = partial(self.audit, level)
        return found


@torch.no_grad()
def measure(options: argparse.Namespace) -> tuple[dict[str, list[float]], int]:
    """Seconds of every task in every turn, the first of which warms up; and N."""
    model, given = prompts(options)
    times: dict[str, list[float]] = {}
    tokens = 0
    for number, inputs in enumerate(given):
        turn = Turn(model, inputs, options)
        for name, task in turn.tasks().items():
            start = time.perf_counter()
            task()
            if number:
                times.setdefault(name, []).append(time.perf_counter() - start)
        tokens = turn.tokens
        print(f"\r  turn {number}/{options.repeats}", end="", file=sys.stderr, flush=True)
    print("\r" + " " * 30 + "\r", end="", file=sys.stderr)
    return times, tokens


def tell(times: dict[str, list[float]], tokens: int, options: argparse.Namespace) -> None:
    """The table."""
    full = times["Full"]

    def share(values: list[float], less: list[float] | None = None) -> str:
        """Median over turns of a time, or of what it adds to another one, over Full's."""
        others = less or [0.0] * len(values)
        shares = [(a - b) / c for a, b, c in zip(values, others, full, strict=True)]
        return f"{statistics.median(shares):.2%}"

    print(
        f"\nCost of auditing: {options.model} model, {options.plan}, K = {options.keep} of N = "
        f"{tokens}, {torch.get_num_threads()} thread(s), medians of {len(full)} turns; Full's "
        f"prefill takes {1e3 * statistics.median(full):.0f} ms\n"
    )
    print("| what is kept | prefill | beside none | sealed line | verified |")
    print("|---|---:|---:|---:|---:|")
    none = times["audit=none"]
    for level in LEVELS:
        own = times[f"audit={level}"]
        cells = [share(own), share(own, none), *(share(times[f"{n} {level}"]) for n in MORE)]
        print(f"| {level} | {' | '.join(cells)} |")
    print("\n| whole audit | of Full's prefill |\n|---|---:|")
    print(f"| light: coverage | {share(times['whole audit, light'])} |")
    what = f"full: states, messages, decisions at up to {options.limit} tokens"
    print(f"| {what} | {share(times['whole audit, full'])} |")


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("--model", default="random", help="random, tiny or a directory")
    parser.add_argument("--image", help="for a model of your own; else pictures of tinybench")
    parser.add_argument("--question", default="what is shown?")
    parser.add_argument("--plan", default="gmc-h2")
    parser.add_argument("--keep", type=int, default=128)
    parser.add_argument("--limit", type=int, default=8, help="tokens of a full audit's answer")
    parser.add_argument("--repeats", type=int, default=5)
    options = parser.parse_args()
    times, tokens = measure(options)
    tell(times, tokens, options)


if __name__ == "__main__":
    main()
