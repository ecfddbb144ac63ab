"""Compression inside a model: what an attached context costs, and what it saves.

A random Qwen2.5-VL of 24 blocks and width 896 reads one image of N = 1,296 visual tokens. Every
figure stands beside the bare model's from the same process, run in turn.
"""

from __future__ import annotations

import statistics
import sys
import time
from collections.abc import Callable
from typing import Any

import torch

from vicoset import Keep, compress, plan_named
from vicoset.plan import work
from vicoset.runtime.engine import Engine

BLOCKS, WIDTH, SIDE, NEW = 24, 896, 36, 8
IMAGE, START, END = 3, 4, 5


def model() -> Any:
    """Random weights in the exact architecture; a small vision tower, since it is not the point."""
    from transformers import Qwen2_5_VLConfig, Qwen2_5_VLForConditionalGeneration

    torch.manual_seed(0)
    config = Qwen2_5_VLConfig(
        text_config={
            "hidden_size": WIDTH,
            "num_hidden_layers": BLOCKS,
            "num_attention_heads": 14,
            "num_key_value_heads": 2,
            "intermediate_size": 4864,
            "vocab_size": 1000,
            "bos_token_id": 1,
            "eos_token_id": 2,
            "max_position_embeddings": 4096,
            "rope_scaling": {"type": "mrope", "mrope_section": [8, 12, 12]},
        },
        vision_config={
            "depth": 1,
            "hidden_size": 32,
            "intermediate_size": 64,
            "num_heads": 2,
            "out_hidden_size": WIDTH,
            "patch_size": 14,
            "window_size": 112,
            "fullatt_block_indexes": [],
        },
        image_token_id=IMAGE,
        vision_start_token_id=START,
        vision_end_token_id=END,
    )
    found = Qwen2_5_VLForConditionalGeneration._from_config(config, attn_implementation="sdpa")
    found.generation_config.eos_token_id = None
    found.generation_config.pad_token_id = 0
    return found.eval()


def prompt() -> dict[str, Any]:
    """One image of SIDE x SIDE merged patches and a question of 30 tokens."""
    random = torch.Generator().manual_seed(1)
    text = torch.randint(10, 900, (45,), generator=random).tolist()
    ids = [*text[:15], START, *[IMAGE] * (SIDE * SIDE), END, *text[15:]]
    kinds = [int(token == IMAGE) for token in ids]
    patches = (2 * SIDE) ** 2
    return {
        "input_ids": torch.tensor([ids]),
        "attention_mask": torch.ones(1, len(ids), dtype=torch.long),
        "mm_token_type_ids": torch.tensor([kinds]),
        "pixel_values": torch.randn(patches, 3 * 2 * 14 * 14, generator=random),
        "image_grid_thw": torch.tensor([[1, 2 * SIDE, 2 * SIDE]]),
    }


def seconds(task: Callable[[], object]) -> float:
    """How long one call takes."""
    start = time.perf_counter()
    task()
    return time.perf_counter() - start


def compare(repeats: int) -> None:
    """The two tables."""
    found, inputs = model(), prompt()

    def prefill() -> None:
        found(**inputs, use_cache=True, logits_to_keep=1)

    def answer() -> None:
        found.generate(**inputs, max_new_tokens=NEW, do_sample=False)

    def inside(plan: str, keep: int | float, task: Callable[[], object]) -> Callable[[], object]:
        def run() -> None:
            with compress(found, plan, keep=keep):
                task()

        return run

    spent = {"compaction": 0.0}
    original = Engine._at_boundary

    def timed(self: Engine, *args: Any) -> Any:
        start = time.perf_counter()
        try:
            return original(self, *args)
        finally:
            spent["compaction"] += time.perf_counter() - start

    tokens = SIDE * SIDE
    tasks: dict[str, Callable[[], object]] = {
        "bare prefill": prefill,
        "gmc-h2, K = 128": inside("gmc-h2", 128, prefill),
        "gmc-l16, K = 128": inside("gmc-l16", 128, prefill),
        "bare answer": answer,
        "gmc-h2 answer, K = 128": inside("gmc-h2", 128, answer),
    }
    times: dict[str, list[float]] = {name: [] for name in tasks}
    shares: list[float] = []
    with torch.no_grad():
        for turn in range(repeats + 1):
            for name, task in tasks.items():
                Engine._at_boundary = timed  # type: ignore[method-assign]
                spent["compaction"] = 0.0
                took = seconds(task)
                Engine._at_boundary = original  # type: ignore[method-assign]
                if turn:
                    times[name].append(took)
                    if name == "gmc-h2, K = 128":
                        shares.append(spent["compaction"] / times["bare prefill"][-1])
            print(f"\r  turn {turn}/{repeats}", end="", file=sys.stderr, flush=True)
    print("\r" + " " * 30 + "\r", end="", file=sys.stderr)
    print(
        f"\nInside the model: {BLOCKS} blocks, width {WIDTH}, N = {tokens:,}, float32, "
        f"{torch.get_num_threads()} thread(s), medians of {repeats} turns\n"
    )
    print("| run | time | beside bare | ideal by work |\n|---|---:|---:|---:|")
    for name, values in times.items():
        median = statistics.median(values)
        # Of medians taken turn by turn, so that a busy moment hits both sides.
        ratio = statistics.median(
            value / bare
            for value, bare in zip(
                values, times["bare answer" if "answer" in name else "bare prefill"], strict=True
            )
        )
        ideal = ""
        if name.startswith("gmc"):
            boundary = plan_named(name.split(",")[0].split(" ")[0], BLOCKS).boundaries[0]
            rest = len(inputs["input_ids"][0]) - tokens
            full_work = BLOCKS * (tokens + rest)
            share = work([boundary], [Keep(tokens=128).of(tokens)], tokens, BLOCKS) + BLOCKS * rest
            ideal = f"{share / full_work:.3f}"
        print(f"| {name} | {median:.2f} s | {ratio:.3f} | {ideal} |")
    print(
        f"\nCapture, selection and transport take {statistics.median(shares):.1%} of a bare "
        "prefill (gmc-h2, K = 128)."
    )


def overhead(turns: int) -> None:
    """What an attached context costs where it changes nothing, in pairs of alternating order."""
    found, inputs = model(), prompt()

    def bare() -> None:
        found(**inputs, use_cache=True, logits_to_keep=1)

    def attached() -> None:
        with compress(found, "gmc-h2", keep=1.0):
            bare()

    took: dict[Callable[[], None], list[float]] = {bare: [], attached: []}
    with torch.no_grad():
        bare()
        for turn in range(turns):
            for task in (bare, attached) if turn % 2 else (attached, bare):
                took[task].append(seconds(task))
    ratios = [
        with_it / without for with_it, without in zip(took[attached], took[bare], strict=True)
    ]
    print(
        f"An attached context at K = N takes {statistics.median(ratios):.4f} of a bare prefill "
        f"(median of {turns} pairs in alternating order)."
    )


if __name__ == "__main__":
    overhead(3 * int(sys.argv[1]) if len(sys.argv) > 1 else 15)
    compare(int(sys.argv[1]) if len(sys.argv) > 1 else 5)
