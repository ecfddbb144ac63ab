"""Streamed sums against the native attention of all rows at once."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch

from tests.methods.scenes import random_scene
from vicoset.methods import streamed
from vicoset.methods.base import Scene, View, attention_of, column_sums
from vicoset.methods.rows import behind_the_images, from_the_image_on


def whole(padding: int = 0) -> tuple[Scene, View]:
    """A scene whose block has every query."""
    scene = random_scene(tokens=40, images=2, history=1, seed=3)
    view = scene.views[0]
    length = view.keys.shape[1]
    every = torch.randn(4, length, 8, generator=torch.Generator().manual_seed(1))
    valid = torch.arange(length) >= padding if padding else None
    return scene, view._replace(every_query=3 * every, key_valid=valid)


@pytest.mark.parametrize("heads", ["mean", "max"])
@pytest.mark.parametrize("padding", [0, 2])
@pytest.mark.parametrize("piece", [1, 300, 1 << 18])
def test_pieces_add_up(
    heads: str, padding: int, piece: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(streamed, "PIECE", piece)
    scene, view = whole(padding)
    for rows in (
        scene.visual,
        from_the_image_on(scene),
        behind_the_images(scene),
        scene.visual[3:9],
    ):
        assert streamed.is_plain(view, rows)
        attention = attention_of(scene, view, rows)
        merged = attention.mean(0) if heads == "mean" else attention.amax(0)
        found = column_sums(scene, view, rows, heads)
        torch.testing.assert_close(found, merged.sum(0), atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize("what", ["mask", "sliding_window", "softcap", "sinks", "order", "gap"])
def test_what_is_not_plain_takes_the_other_way(what: str) -> None:
    scene, view = whole()
    length, rows = view.keys.shape[1], scene.visual
    causal = torch.ones(length, length, dtype=torch.bool).tril()
    valid = torch.ones(length, dtype=torch.bool)
    valid[5] = False
    options = {
        "mask": {"mask": causal[None]},
        "sliding_window": {"sliding_window": 7},
        "softcap": {"softcap": 2.0},
        "sinks": {"sinks": torch.zeros(4)},
        "gap": {"key_valid": valid},
    }
    changed = view._replace(**options.get(what, {}))
    if what == "order":
        rows = rows.flip(0)
    assert not streamed.is_plain(changed, rows)
    wanted = attention_of(scene, changed, rows).mean(0).sum(0)
    found = column_sums(replace(scene, views=(changed,)), changed, rows)
    torch.testing.assert_close(found, wanted, atol=1e-5, rtol=1e-5)
