"""Answers are the model's own, and what is said about them is what happened."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from tests import checkpoints
from vicoset import compress
from vicoset.ask import Request, Source, source_of
from vicoset.ask.page import comparison_page, request_page
from vicoset.errors import UnsupportedError
from vicoset.evaluate.method import Method, methods_of
from vicoset.view.overlay import EVIDENCE, LOST
from vicoset.view.sheet import MARGIN

SOURCE = source_of("tinybench:document/0000")
LIMIT = 3


@pytest.fixture(scope="module")
def parts() -> tuple[Any, Any]:
    return checkpoints.model("qwen2_5_vl"), checkpoints.qwen_processor()


@pytest.fixture(scope="module")
def request_(parts: tuple[Any, Any]) -> Request:
    return Request(*parts, SOURCE, limit=LIMIT)


def method(plan: str, keep: int = 16) -> Method:
    return methods_of([plan], [keep], 5)[0]


@pytest.mark.parametrize("plan", ["full", "gmc@2", "gmc@4", "random+drop@2"])
def test_the_answer_is_that_of_the_two_lines(
    plan: str, request_: Request, parts: tuple[Any, Any]
) -> None:
    model, processor = parts
    asked = request_.ask(method(plan))
    chat = checkpoints.question(SOURCE.question, SOURCE.image)
    inputs = checkpoints.inputs(processor, chat)
    options = {"max_new_tokens": LIMIT, "do_sample": False}
    with compress(model, "gmc@2" if plan == "full" else plan, 1.0 if plan == "full" else 16) as run:
        out = model.generate(**inputs, **options)
    text = processor.tokenizer.decode(out[0, inputs["input_ids"].shape[1] :])
    assert asked.text == text.strip()
    assert asked.record.kept == run.last.kept and asked.record.work == run.last.work
    assert asked.correct is False and asked.seconds > 0


def test_evidence_is_what_the_kept_tokens_stand_on(request_: Request) -> None:
    asked = request_.ask(method("gmc@2"))
    side = 8  # 64 x 64 pixels in cells of 8
    kept = set(asked.record.stages[0].indices.tolist())
    expected = []
    for left, top, right, bottom in SOURCE.boxes:
        column, row = (int((a + b) / 2 / 1008 * side) for a, b in ((left, right), (top, bottom)))
        expected.append(row * side + column in kept)
    assert list(asked.evidence) == expected
    assert request_.ask(method("full")).evidence == (True,) * len(SOURCE.boxes)


def test_a_smaller_picture_has_no_tokens_to_draw(request_: Request) -> None:
    asked = request_.ask(method("downsample"))
    assert asked.support is None and asked.evidence == () and asked.record.kept < 64
    assert asked.coverage is None


def test_warming_leaves_no_trace(request_: Request, parts: tuple[Any, Any]) -> None:
    before = request_.ask(method("gmc@2")).text
    request_.warm(method("gmc@2"))
    assert request_.ask(method("gmc@2")).text == before
    assert "_vicoset_engine" not in parts[0].__dict__


def test_records_hold_the_question_and_the_answer(request_: Request, tmp_path: Path) -> None:
    asked = [request_.ask(method(plan)) for plan in ("full", "gmc@2")]
    path = str(tmp_path / "records.jsonl")
    for _ in range(2):  # the second time they are appended
        request_.write(path, asked)
    lines = [json.loads(line) for line in Path(path).read_text().splitlines()]
    assert len(lines) == 4
    for line, one in zip(lines, [*asked, *asked], strict=True):
        assert line["about"]["raw"] == one.answer.text
        assert line["about"]["question"] == SOURCE.question
        assert line["about"]["method"] == one.method.label
        assert line["about"]["reference"] == SOURCE.item.answer
        assert line["kept"] == one.record.kept


def test_the_page_shows_the_picture_and_two_maps(request_: Request) -> None:
    full, asked = request_.ask(method("full")), request_.ask(method("gmc@2"))
    page = np.asarray(request_page(request_, asked, full))
    assert page.shape[1] == 3 * 504 + 4 * MARGIN
    marks = [(page == ink).all(-1) for ink in (EVIDENCE, LOST)]
    found, lost = (mask[:, 504 + 2 * MARGIN :].any() for mask in marks)
    assert (found, lost) == (any(asked.evidence), not all(asked.evidence))
    assert marks[0][:, : 504 + MARGIN].any()  # on the picture itself nothing is lost
    assert not marks[1][:, : 504 + MARGIN].any()


def test_the_comparison_has_a_column_for_each_method(request_: Request) -> None:
    full = request_.ask(method("full"))
    asked = [request_.ask(method(plan)) for plan in ("gmc@2", "gmc@4", "random@2")]
    page = comparison_page(request_, asked, full)
    assert page.width == 4 * 504 + 5 * MARGIN and page.height > 2 * 504


@pytest.mark.parametrize("plan", ["full", "downsample", "random+drop@2"])
def test_methods_without_carriers_have_a_page_too(plan: str, request_: Request) -> None:
    asked = request_.ask(method(plan))
    assert request_page(request_, asked).width >= 504
    assert comparison_page(request_, [asked], asked).width >= 504


def test_pictures_of_any_shape_are_drawn(parts: tuple[Any, Any]) -> None:
    for size in ((90, 30), (30, 90)):
        source = Source("a.png", checkpoints.picture(*size), "what?")
        request = Request(*parts, source, limit=1)
        asked = request.ask(method("gmc@2", 4))
        assert asked.evidence == () and asked.correct is None
        assert request_page(request, asked).height > 0


def test_a_processor_without_a_template_is_refused(parts: tuple[Any, Any]) -> None:
    processor = checkpoints.qwen_processor()
    processor.chat_template = None
    with pytest.raises(UnsupportedError, match="does not have a chat template"):
        Request(parts[0], processor, SOURCE)


def test_a_template_that_shows_no_image_is_refused(parts: tuple[Any, Any]) -> None:
    processor = checkpoints.qwen_processor()
    shown = "<|vision_start|><|image_pad|><|vision_end|>"
    processor.chat_template = checkpoints.TEMPLATE.replace(shown, "")
    with pytest.raises(UnsupportedError, match="Found total 0"):
        Request(parts[0], processor, SOURCE, limit=1)


def test_options_reach_the_context(parts: tuple[Any, Any]) -> None:
    request = Request(*parts, SOURCE, limit=1, prefix="dense")
    assert request.ask(method("gmc@2")).record.prefix == "dense"
    assert torch.is_inference_mode_enabled() is False
