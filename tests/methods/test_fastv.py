"""FastV and uniform-head attention: by hand, and against the eager kernel's own weights."""

from __future__ import annotations

import pytest
import torch

from tests.methods.attended import attended, softmaxed
from tests.runtime.helpers import ROWS, compressed, logits, model_of, prompt
from vicoset.methods import registry

VISUAL = [1, 2, 3]  # text 0, three visual tokens, text 4 and 5


def square(**rows):
    """Two heads that attend everywhere alike but for the named rows: row -> weights of a head."""
    weights = torch.ones(2, 6, 6)
    for name, (first, second) in rows.items():
        row = int(name.removeprefix("row"))
        weights[0, row], weights[1, row] = torch.tensor(first), torch.tensor(second)
    return weights


# The last row reads token 3 (weights 1 1 8 and 1 1 2), the row before it token 1 alone.
DISAGREE = square(
    row4=([1.0, 95, 1, 1, 2, 0], [1.0, 95, 1, 1, 2, 0]),
    row5=([1.0, 1, 1, 8, 4, 5], [1.0, 1, 1, 2, 4, 1]),
)


def kept(name, scene, keep):
    return registry.selector(name).select(scene, keep).indices.tolist()


def test_the_last_row_and_the_column_mean_disagree_as_predicted():
    scene = attended(DISAGREE, VISUAL)
    # Last row, mean of the heads: token 3 has (8/20 + 2/10) / 2 = 0.3, the others 0.075.
    assert kept("fastv", scene, 1) == [2]
    # Columns: token 1 gets 1/2 + 1/3 + 1/4 of rows 1 to 3, 0.95 of row 4 and 0.075 of row 5.
    assert kept("fastv-mean", scene, 1) == [0]
    assert kept("uniform-head", scene, 1) == [0]  # rows 4 and 5: 1.025 against 0.085 and 0.31
    assert kept("fastv", scene, 2) == [0, 2]  # a tie of tokens 1 and 2 goes to the lower index


def test_native_softmax_counts_the_text_keys():
    # Head 1 gives the image one thousandth; were visual columns renormalised, it would decide.
    weights = square(row5=([1.0, 3, 2, 1, 1, 1], [9970.0, 1, 1, 8, 10, 10]))
    assert kept("fastv", attended(weights, VISUAL), 1) == [0]


def test_the_question_alone_decides_for_its_control():
    scene = attended(DISAGREE, VISUAL, question=[5])
    assert kept("uniform-head-question", scene, 1) == [2]
    assert kept("uniform-head", scene, 1) == [0]


@pytest.mark.parametrize("name", ["fastv", "fastv-mean", "uniform-head", "uniform-head-question"])
@pytest.mark.parametrize("images", [1, 2])
def test_heads_permute_freely_and_a_plain_loop_agrees(name, images):
    draw = torch.Generator().manual_seed(3)
    length, visual = 17, [*range(2, 7), *range(8, 13)]
    weights = torch.rand(4, length, length, generator=draw) ** 4 + 1e-3
    scene = attended(weights, visual, images=images)
    rows = {"fastv": [16], "fastv-mean": range(17)}.get(name, range(13, 17))
    native = softmaxed(weights)
    scores = [sum(float(native[h, t, v]) for h in range(4) for t in rows) for v in visual]
    order = sorted(range(10), key=lambda v: -scores[v])
    leads = [next(v for v in order if v * images // 10 == image) for image in range(images)]
    for keep in range(images, 11):
        wanted = sorted([*leads, *(v for v in order if v not in leads)][:keep])
        assert kept(name, scene, keep) == wanted
        turned = attended(weights[[2, 0, 3, 1]], visual, images=images)
        assert kept(name, turned, keep) == wanted


@pytest.mark.parametrize("family", ["qwen2_5_vl", "llava"])
@pytest.mark.parametrize("name", ["fastv", "fastv-mean", "uniform-head"])
def test_in_a_padded_batch_the_scores_are_the_models_own(family, name):
    model = model_of(family, "eager")
    inputs = prompt(model, family, ROWS)
    with torch.no_grad():
        dense = model(**inputs, output_attentions=True).attentions
    seen = []
    with compressed(model, f"{name}+drop@2", 4, watch=seen.append):
        logits(model, inputs)
    for found in seen:
        visual = found.scene.visual
        native = dense[2 if name == "uniform-head" else 1][found.row].mean(0).double()
        rows = {"fastv": native[-1:], "uniform-head": native[int(visual[-1]) + 1 :]}
        real = inputs["attention_mask"][found.row].bool()
        scores = rows.get(name, native[real]).sum(0)[visual]
        images = found.scene.image_ids.tolist()
        order = sorted(range(len(visual)), key=lambda v: -float(scores[v]))
        leads = [next(v for v in order if images[v] == i) for i in range(found.scene.images)]
        wanted = sorted([*leads, *(v for v in order if v not in leads)][:4])
        assert found.selection.indices.tolist() == wanted
    assert len(seen) == 2
