"""Smaller images as a row of an evaluation, beside Full and a plan."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from PIL import Image

from tests import checkpoints
from tests.core.helpers import refused
from vicoset.errors import BudgetError
from vicoset.evaluate.answering import Model, chat_of
from vicoset.evaluate.blocks import Block
from vicoset.evaluate.entry import Entry
from vicoset.evaluate.folder import complete
from vicoset.evaluate.identity import of_method
from vicoset.evaluate.method import Downsampled, Method, methods_of
from vicoset.evaluate.progress import Silent
from vicoset.evaluate.runner import evaluate
from vicoset.evaluate.task import Item, Picture, Scored
from vicoset.plan import Keep

PROCESSORS = {"qwen2_5_vl": checkpoints.qwen_processor, "llava": checkpoints.llava_processor}


class Asked:
    """Questions about drawn pictures of 6 x 4 cells (Qwen); every answer is right."""

    name, version, maximum, higher_is_better, metrics = "asked", "1", 1.0, True, {}

    def load(self, path: Any, **choices: Any) -> Sequence[Item]:
        def read(seed: int) -> Image.Image:
            return checkpoints.picture(48, 32, seed)

        return [
            Item(f"q{n}", f"u{n}", "", "what?", [], 3, (Picture(f"{n}", lambda n=n: read(n)),))
            for n in range(3)
        ]

    def score(self, item: Item, raw: str) -> Scored:
        return Scored(raw, {"right": 1.0}, 1.0)


def entries(outcome: Any) -> dict[str, list[Entry]]:
    assert outcome.failures == ()
    return {Path(folder.path).name: complete(folder) for folder in outcome.folders}


@pytest.mark.parametrize("family", list(PROCESSORS))
def test_a_row_beside_full_and_a_plan(family: str, tmp_path: Path) -> None:
    model, processor = checkpoints.model(family), PROCESSORS[family]()
    plans = ["downsample", "random+drop@0"]
    options = {"out": tmp_path, "batch": 2, "progress": Silent()}
    found = entries(evaluate(model, processor, Asked(), plans, [8, 1000], **options))
    by_label = {name.rsplit("-", 1)[0]: rows for name, rows in found.items()}
    small, large = by_label["downsample-k8"], by_label["downsample-k1000"]
    full, plan = by_label["full"], by_label["random+drop@0-k8"]
    tokens, kept = {"qwen2_5_vl": (24, 6), "llava": (36, 4)}[family]
    for row, other, whole in zip(small, plan, full, strict=True):
        assert (row.tokens, row.kept, row.requested) == (tokens, kept, "8")
        assert (row.tokens, row.length, row.full_kv_bytes) == (
            *(whole.tokens, whole.length, whole.full_kv_bytes),
        )
        assert (row.boundaries, row.kept_by_stage) == ((0,), (kept,))
        # What it costs is what a stage at the input costs that keeps as many.
        assert row.work_share == kept / tokens and other.work_share == 8 / tokens
        assert (row.length - row.compact_length) == tokens - kept
        assert any(f"realised K = {kept} of the 8" in note for note in row.notes)
        assert {"prepare", "prompt", "decode", "request"} <= row.seconds.keys()
    assert [row.raw for row in large] == [row.raw for row in full]
    assert all(row.kept == row.tokens and not row.boundaries for row in large)


def test_answers_are_those_of_pictures_made_smaller_by_hand() -> None:
    model, processor = checkpoints.model("qwen2_5_vl"), checkpoints.qwen_processor()
    asked, items = Model(model, processor), Asked().load(None)
    block = Block(0, tuple(items[:1]))
    inputs, _ = asked.prepare(block)
    (row,) = Downsampled(keep=Keep(tokens=6)).answers(asked, lambda: [chat_of(items[0])], inputs, 3)
    by_hand = checkpoints.picture(48, 32, 0).resize((24, 16), Image.Resampling.BICUBIC)
    processor.image_processor.size = {"shortest_edge": 64, "longest_edge": 64 * 64}
    small = asked.encode([checkpoints.question("what?", by_hand)])
    assert small["image_grid_thw"].tolist() == [[1, 4, 6]]
    (wanted,) = asked.generate(Method(), small, 3)
    assert row.text == wanted.text
    assert row.record.notes == ()  # 2 x 3 cells are the 6 that were asked for


def test_it_is_named_like_any_other() -> None:
    full, one, two = methods_of(["full", "downsample"], [64, 0.1], 28)
    assert full == Method()
    assert [one.label, two.label] == ["downsample-k64", "downsample-k10%"]
    assert (one.name, one.asked, one.requested, one.query_aware) == (
        *("downsample", "downsample", "64", False),
    )
    ids = [of_method(method, "gathered", None) for method in (full, one, two)]
    assert ids[1]["plan"] == "downsample" and ids[1]["code"] and ids[1] != ids[2]
    assert "code" not in ids[0]
    with refused(BudgetError, "coverage", "downsample"):
        methods_of(["downsample"], [Keep(coverage=0.9)], 28)


def timeless(entry: Entry) -> Entry:
    return replace(entry, seconds={}, peak_bytes=0, process="")


@pytest.mark.parametrize("family", list(PROCESSORS))
def test_sharing_changes_times_and_nothing_else(family: str, tmp_path: Path) -> None:
    model, processor = checkpoints.model(family), PROCESSORS[family]()
    plans = ["visionzip", "fastv-h2", "gmc@1", "downsample"]
    options = {"batch": 2, "progress": Silent(), "support": True, "evidence": True}
    both = [
        entries(
            evaluate(
                model, processor, Asked(), plans, [4], out=tmp_path / str(n), share=n, **options
            )
        )
        for n in (False, True)
    ]
    assert both[0].keys() == both[1].keys()  # one identity: the runs may be mixed
    for name, alone in both[0].items():
        for left, right in zip(alone, both[1][name], strict=True):
            assert timeless(left) == timeless(right)
            times = {"prepare", "request", "prompt", "decode"}
            own = name.startswith("downsample")  # its images are its own
            assert left.seconds.keys() >= times
            assert own or right.seconds.keys() == {"prepare", "shared"}
