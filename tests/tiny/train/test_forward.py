"""The training forward gives every question what the stock model gives it alone."""

from typing import Any

import pytest
import torch

from vicoset.tiny import configs, parts, words
from vicoset.tiny.bench.item import RESOLUTIONS
from vicoset.tiny.draw.canvas import draw
from vicoset.tiny.scenes.compose import KINDS
from vicoset.tiny.train import forward, pages, start

IMAGE = {"qwen": words.VISION[2], "llava": "<image>"}


def stirred(family: str) -> Any:
    """A model none of whose weights is zero or one, so that none could be forgotten."""
    model = start.new_model(family, 3)
    torch.manual_seed(0)
    for value in model.parameters():
        value.data += torch.randn_like(value) * (0.08 if value.dim() > 1 else 0.2)
    return model


def stock_logits(model: Any, family: str, picture: Any, tokens: list[int]) -> torch.Tensor:
    """What the stock model says after every token of one question."""
    side = RESOLUTIONS[family].side
    image = words.number_of(IMAGE[family])
    ids = [words.number_of(word) for word in pages.HEAD[family]] + [image] * side * side
    ids += [words.number_of(word) for word in pages.FOOT[family]] + tokens
    prompt = torch.tensor([ids])
    processor = parts.processor_of(family)
    inputs = processor.image_processor(images=[picture], return_tensors="pt")
    more = {"mm_token_type_ids": (prompt == image).int()} if family == "qwen" else {}
    with torch.no_grad():
        logits: torch.Tensor = model(input_ids=prompt, **inputs, **more).logits
    return logits[0, -len(tokens) :]


@pytest.mark.parametrize("family", configs.FAMILIES)
def test_equal_to_the_stock_model(family: str) -> None:
    model = stirred(family)
    sheet = pages.Sheet(RESOLUTIONS[family].side, 1, 3)
    batch = pages.make_batch("forward", family, sheet)
    weights = dict(model.named_parameters())
    with torch.no_grad():
        visual = forward.tower(model, family, weights, batch.pages, batch.offsets)
        found = forward.answer_logits(model, family, weights, batch, visual)
    picture = batch.pages[0].numpy()
    for slot in range(2):
        tokens = [int(t) for t in batch.tokens[0, slot] if t != words.number_of(words.PAD)]
        wanted = stock_logits(model, family, picture, tokens)
        assert wanted.std() > 0.3
        assert torch.allclose(found[0, slot, : len(tokens)], wanted, atol=5e-4, rtol=0)


def test_positions_of_a_part_are_those_of_the_whole() -> None:
    """A picture of 12 x 12 cells stands where its offset says, and the questions stay behind 36."""
    sheet = pages.Sheet(12, 2, 2, pixels=False)
    batch = pages.make_batch("part", "qwen", sheet)
    found = forward.positions("qwen", batch, 144)
    head = len(pages.HEAD["qwen"])
    for row in range(2):
        down, across = batch.offsets[row].tolist()
        assert found[:, row, head].tolist() == [head, head + down, head + across]
        assert found[:, row, head + 143].tolist() == [head, head + down + 11, head + across + 11]
        first = found[:, row, head + 144 + 1]
        assert first.tolist() == [head + 36 + 1] * 3
        assert found[0, row, -1] == head + 36 + pages.SLOT["qwen"]


def test_signs_say_what_is_drawn() -> None:
    """A cell with ink in it is no blank, and a blank has no ink but the paper's."""
    for kind in KINDS:
        scene = pages.make_scene(f"signs/{kind}", kind, 12, "train", {})
        signs = pages.signs_of(scene).reshape(12, 12, 2)
        whole = draw(scene, 28).astype(int)
        scene.marks = [m for m in scene.marks if isinstance(m, pages.Panel) and not pages.is_bar(m)]
        apart = abs(whole - draw(scene, 28).astype(int)).max(-1)
        inked = apart.reshape(12, 28, 12, 28).max((1, 3))
        shown = (signs[..., 0] != pages.BLANK) & (signs[..., 0] != pages.BAR)
        assert (inked[shown] > 40).mean() > 0.95, kind
        assert shown.any()


@pytest.mark.parametrize("family", configs.FAMILIES)
def test_batches_are_made_by_name(family: str) -> None:
    sheet = pages.Sheet(12, 4, 3)
    one, again = (pages.make_batch("7/parts/3", family, sheet) for _ in range(2))
    other = pages.make_batch("7/parts/4", family, sheet)
    assert all(torch.equal(a, b) for a, b in zip(one, again, strict=True))
    assert not torch.equal(one.pages, other.pages)
    given = one.labels != pages.NOTHING
    assert given.any(-1).all() and one.labels[given].lt(len(words.VOCABULARY)).all()
    last = one.labels.gather(2, (given * torch.arange(given.shape[2])).argmax(-1)[..., None])
    assert (last == words.number_of(pages.STOP[family])).all()
