"""What commands make of their options before a model is loaded."""

import argparse

import pytest

from vicoset.evaluate.commands import Asking, add_model_arguments


@pytest.mark.parametrize(
    ("model", "more", "drawn"),
    [
        ("tiny", [], {"images": 1}),
        ("tiny-llava", [], {"images": 1, "model": "llava"}),
        ("tiny-llava", ["--choice", "tinybench-chart=model:qwen"], {"images": 1, "model": "qwen"}),
        ("a-directory", [], {"images": 1}),
    ],
)
def test_a_bundled_model_gets_pictures_of_its_size(
    model: str, more: list[str], drawn: dict[str, object]
) -> None:
    parser = argparse.ArgumentParser()
    add_model_arguments(parser)
    asked = ["--model", model, "--tasks", "tinybench-chart", "--out", "runs"]
    choices = ["--choice", "tinybench-chart=images:1", *more]
    found = Asking(parser.parse_args([*asked, *choices])).of("tinybench-chart")
    assert found["choices"] == drawn
    side = found["items"][0].pictures[0].read().size[0]
    assert side == (336 if drawn.get("model") == "llava" else 1008)
