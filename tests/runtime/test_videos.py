"""A video beside an image, through a whole compressed generate."""

import pytest
import torch

from tests import zoo
from vicoset import compress


@pytest.mark.parametrize("family", ["qwen2_vl", "qwen2_5_vl", "qwen3_vl"])
@torch.no_grad()
def test_a_video_is_compressed_like_an_image(family):
    model = zoo.tiny(family)
    inputs = zoo.prompt(model, family, [1], films=[1])
    options = {"max_new_tokens": 6, "do_sample": False}
    untouched = model.generate(**inputs, **options)
    with compress(model, "gmc-h2", keep=1.0):
        assert torch.equal(model.generate(**inputs, **options), untouched)
    answers = {}
    for prefix in ("dense", "replay"):
        with compress(model, "gmc-h2", keep=6, prefix=prefix) as run:
            answers[prefix] = model.generate(**inputs, **options)
        assert run.last.kept == 6 and run.last.images == 2
    assert torch.equal(answers["dense"], answers["replay"])
