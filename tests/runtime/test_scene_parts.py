"""What scenes hold on request, against the model's own tensors taken another way."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import pytest
import torch

from tests import checkpoints
from tests.core.helpers import refused
from tests.runtime.helpers import ROWS, compressed, decoder_of, generate, logits, model_of, prompt
from tests.zoo_parts import IMAGE
from vicoset.errors import MethodError, PlanError, UnsupportedError
from vicoset.methods import Drop
from vicoset.methods.base import KNOWN_NEEDS, Selection, attention_of, column_sums
from vicoset.models.features import owner_of
from vicoset.plan import Keep, Plan, Stage

EVERYTHING = tuple(sorted(KNOWN_NEEDS - {"question"}))
FAMILIES = ["qwen2_5_vl", "qwen2_vl", "qwen3_vl", "llava", "llava_next"]
RASTER = FAMILIES[:3]


@dataclass(frozen=True)
class Spy:
    """Keeps every second token and remembers its scenes."""

    reads: tuple[str, ...] = EVERYTHING
    name: ClassVar[str] = "spy"
    query_aware: ClassVar[bool] = False
    seen: ClassVar[list[Any]] = []

    @property
    def needs(self) -> frozenset[str]:
        return frozenset(self.reads)

    def select(self, scene: Any, keep: int) -> Selection:
        self.seen.append(scene)
        if "tower" in self.reads:
            parts = scene.tower
            _ = parts.features, parts.keys, parts.received, parts.cls, parts.cls_feature
        first = [int((scene.image_ids == image).nonzero()[0]) for image in range(scene.images)]
        rest = [index for index in range(1, len(scene.states)) if index not in first]
        return Selection(torch.tensor(sorted([*first, *rest][:keep])), {})


def spied(model, inputs, boundaries=(2,), reads=EVERYTHING, generating=False, **options):
    """The scenes of a run; 5 tokens stay at the first boundary, 2 less at each further one."""
    stages = [
        Stage(p, Spy(reads), Drop(), Keep(tokens=5 - 2 * n)) for n, p in enumerate(boundaries)
    ]
    Spy.seen.clear()
    with compressed(model, Plan("spy", tuple(stages)), **options):
        generate(model, inputs, 2) if generating else logits(model, inputs)
    return list(Spy.seen)


def entered(model, inputs):
    """What enters the decoder, [B, L, d]."""
    found = []

    def look(module, args, kwargs):
        found.append(kwargs["inputs_embeds"].clone())

    handle = decoder_of(model).register_forward_pre_hook(look, with_kwargs=True)
    logits(model, inputs)
    handle.remove()
    return found[0]


@pytest.mark.parametrize("family", FAMILIES)
def test_embeddings_and_text_are_what_enters_the_decoder(family):
    model = model_of(family)
    inputs = prompt(model, family, ROWS)
    states = entered(model, inputs)
    for generating in (False, True):
        scenes = spied(model, inputs, generating=generating)
        assert len(scenes) == 2  # the third row has no image
        for row, scene in enumerate(scenes):
            assert torch.equal(scene.embeddings, states[row][scene.visual])
            text = scene.text
            assert torch.equal(text.ids, inputs["input_ids"][row][text.positions])
            assert torch.equal(text.embeddings, states[row][text.positions])
            assert bool(inputs["attention_mask"][row][text.positions].all())
            assert not bool((text.ids == IMAGE).any())
            # These models have no end-of-turn token and no processor: all behind the image.
            assert torch.equal(text.question_mask, text.positions > scene.visual.max())
            assert text.question is None


@pytest.mark.parametrize("family", ["qwen2_5_vl", "llava"])
def test_text_at_the_boundary_and_words_of_ones_own(family):
    model, reader = model_of(family), checkpoints.tokenizer()
    inputs = prompt(model, family, ROWS)
    with torch.no_grad():
        inside = model(**inputs, output_hidden_states=True).hidden_states[2]
    for row, scene in enumerate(spied(model, inputs, processor=reader)):
        torch.testing.assert_close(scene.text.states, inside[row][scene.text.positions])
        table = model.get_input_embeddings().weight
        found = scene.text.embed(["ab", "c"])  # bytes, each word on its own, no special tokens
        ids = [reader.convert_tokens_to_ids(letter) for letter in "abc"]
        assert torch.equal(found, table[ids])
        assert scene.text.embed([]).shape == (0, table.shape[1])
    assert all(scene.text.embed is None for scene in spied(model, inputs))


def window_order(height, width, side):
    """Merge groups of a height x width grid in the order of side x side windows, row by row."""
    return [
        y * width + x
        for top in range(0, height, side)
        for left in range(0, width, side)
        for y in range(top, min(top + side, height))
        for x in range(left, min(left + side, width))
    ]


def raster_oracle(model, pixels, grid):
    """z, keys and received attention of one image, from a run of the tower on it alone."""
    visual, taken = owner_of(model).visual, {}
    full = getattr(visual.config, "fullatt_block_indexes", None)
    block = visual.blocks[max(full) if full else -1]

    def take(module, args, kwargs):
        taken["inputs"], taken["rope"] = args[0], kwargs["position_embeddings"]

    def last(module, args):
        taken["z"] = args[0]

    handles = [
        block.attn.register_forward_pre_hook(take, with_kwargs=True),
        visual.merger.register_forward_pre_hook(last),
    ]
    with torch.no_grad():
        visual(pixels, grid_thw=grid[None])
        for handle in handles:
            handle.remove()
        heads, tokens = block.attn.num_heads, len(pixels)
        q, k, _ = block.attn.qkv(taken["inputs"]).view(tokens, 3, heads, -1).unbind(1)
        turned = []
        for states in (q, k):
            cos, sin = (table[:, None] for table in taken["rope"])
            one, two = states.chunk(2, -1)
            turned.append(states * cos + torch.cat([-two, one], -1) * sin)
    weights = torch.einsum("qhd,khd->hqk", *turned) / q.shape[-1] ** 0.5
    weights = weights.softmax(-1)
    _, height, width = (int(side) for side in grid)
    height, width = height // 2, width // 2
    side = 16 // 4 // 2 if full else max(height, width)
    order = window_order(height, width, side)
    place = sorted(range(len(order)), key=order.__getitem__)
    received = weights.sum((0, 1)) / heads

    def pooled(values):
        return values.view(height * width, 4, -1).mean(1)[place]

    return pooled(taken["z"]), pooled(turned[1].mean(1)), pooled(received[:, None])[:, 0]


@pytest.mark.parametrize("family", RASTER)
@pytest.mark.parametrize("generating", [False, True], ids=["forward", "generate"])
def test_the_tower_of_raster_families(family, generating):
    model = model_of(family)
    inputs = prompt(model, family, ROWS)
    grids = inputs["image_grid_thw"]
    pixels = inputs["pixel_values"].split(grids.prod(1).tolist())
    wanted = [raster_oracle(model, *pair) for pair in zip(pixels, grids, strict=True)]
    scenes = spied(model, inputs, generating=generating)
    images = [wanted[:1], wanted[1:]]
    for scene, parts in zip(scenes, images, strict=True):
        z, keys, received = (torch.cat(part) for part in zip(*parts, strict=True))
        assert scene.tower.features.shape == z.shape
        torch.testing.assert_close(scene.tower.features, z, rtol=1e-4, atol=1e-5)
        torch.testing.assert_close(scene.tower.keys, keys, rtol=1e-4, atol=1e-5)
        torch.testing.assert_close(scene.tower.received, received, rtol=1e-4, atol=1e-5)
        assert scene.tower.cls is None and scene.tower.cls_feature is None
        assert scene.tower.project is None


@pytest.mark.parametrize("generating", [False, True], ids=["forward", "generate"])
def test_the_tower_of_llava(generating):
    model = model_of("llava", "eager")
    inputs = prompt(model, "llava", ROWS)
    with torch.no_grad():
        out = model.model.vision_tower(
            inputs["pixel_values"], output_attentions=True, output_hidden_states=True
        )
    states, weights = out.hidden_states[-2], out.attentions[-2]
    layer = next(m for n, m in model.named_modules() if n.endswith("encoder.layers.0"))
    with torch.no_grad():
        keys = layer.self_attn.k_proj(layer.layer_norm1(out.hidden_states[-3]))
    keys = keys.unflatten(-1, (2, -1)).mean(2)
    scenes = spied(model, inputs, generating=generating)
    for scene, own in zip(scenes, ([0], [1, 2]), strict=True):
        tower = scene.tower
        pairs = [
            (tower.features, states[own, 1:].flatten(0, 1)),
            (tower.keys, keys[own, 1:].flatten(0, 1)),
            (tower.received, weights[own].mean(1).sum(1)[:, 1:].flatten()),
            (tower.cls, weights[own].mean(1)[:, 0, 1:].flatten()),
            (tower.cls_feature, states[own, 0]),
        ]
        for mine, its in pairs:
            torch.testing.assert_close(mine, its, rtol=1e-5, atol=1e-6)
        # The projector makes of z what entered the decoder.
        torch.testing.assert_close(tower.project(tower.features), scene.embeddings)


def test_the_tower_of_llava_next_follows_the_packing():
    model = model_of("llava_next")
    inputs = prompt(model, "llava_next", ROWS)
    for generating in (False, True):
        for scene in spied(model, inputs, generating=generating):
            tower = scene.tower
            torch.testing.assert_close(
                tower.project(tower.features), scene.embeddings, rtol=1e-5, atol=1e-6
            )
            assert tower.cls_feature is None or len(tower.cls_feature) == scene.images
            assert len(tower.received) == len(tower.keys) == len(scene.states)


@pytest.mark.parametrize("family", ["qwen2_5_vl", "llava"])
def test_later_stages_see_the_tokens_still_present(family):
    model = model_of(family)
    inputs = prompt(model, family, 2)
    first, second = spied(model, inputs, boundaries=(1, 3))
    stay = Spy().select(first, 5).indices
    Spy.seen.clear()
    assert torch.equal(second.embeddings, first.embeddings[stay])
    assert torch.equal(second.text.ids, first.text.ids)
    assert torch.equal(second.text.embeddings, first.text.embeddings)
    moved = len(first.states) - 5
    assert torch.equal(second.text.positions[-1:], first.text.positions[-1:] - moved)
    for name in ("features", "keys", "received", "cls"):
        before, after = (getattr(scene.tower, name) for scene in (first, second))
        assert (before is None and after is None) or torch.equal(after, before[stay])
    assert second.previous.block == 2 and second.current.block == 3
    assert second.previous.keys.shape[1] == len(second.visual) + len(inputs["input_ids"][0]) - len(
        first.visual
    )


def test_beams_share_what_the_tower_made():
    model = model_of("llava")
    inputs = prompt(model, "llava", [1, 2])
    alone = spied(model, inputs, generating=True)
    Spy.seen.clear()
    stage = Stage(2, Spy(), Drop(), Keep(tokens=9))
    with compressed(model, Plan("spy", (stage,))):
        generate(model, inputs, 2, num_beams=2)
    for number, scene in enumerate(Spy.seen):
        assert torch.equal(scene.tower.features, alone[number // 2].tower.features)


@pytest.mark.parametrize("family", ["qwen2_5_vl", "llava"])
def test_views_hold_the_rows_that_methods_read(family):
    """Any row's attention, and column sums, against the eager kernel's own weights."""
    model = model_of(family, "eager")
    inputs = prompt(model, family, 1)
    with torch.no_grad():
        dense = model(**inputs, output_attentions=True).attentions
    (scene,) = spied(model, inputs, boundaries=(2,))
    visual = scene.visual
    for view in (scene.current, scene.previous, *scene.views):
        weights = dense[view.block][0]
        close = {"rtol": 1e-4, "atol": 1e-5}
        torch.testing.assert_close(
            attention_of(scene, view), weights[:, scene.queries][..., visual], **close
        )
        torch.testing.assert_close(
            attention_of(scene, view, visual), weights[:, visual][..., visual], **close
        )
        square = weights[:, visual][..., visual]
        for heads, merged in (("mean", square.mean(0)), ("max", square.amax(0))):
            found = column_sums(scene, view, visual, heads)
            torch.testing.assert_close(found, merged.sum(0), **close)
    assert [view.block for view in scene.views] == [2, 0, 1]
    assert (scene.current.block, scene.previous.block) == (2, 1)


def test_nothing_is_filled_that_nobody_asked_for():
    model = model_of("llava")
    inputs = prompt(model, "llava", 1)
    dry = []
    layer = decoder_of(model).layers[2]
    handle = layer.register_forward_pre_hook(lambda *_: dry.append(1))
    (scene,) = spied(model, inputs, reads=("previous",))
    handle.remove()
    assert len(dry) == 1  # block p ran once: no dry run
    assert scene.previous.block == 1 and scene.views == ()
    for name in KNOWN_NEEDS - {"previous", "views", "question"}:
        with refused(MethodError, f"scene.{name}", f"needs = frozenset({{'{name}'}})"):
            getattr(scene, name)


def test_the_decoders_own_maps():
    model = model_of("qwen2_5_vl")
    inputs = prompt(model, "qwen2_5_vl", 1)
    (scene,) = spied(model, inputs)
    decoder, layer = scene.decoder, decoder_of(model).layers[3]
    with torch.no_grad():
        queries, keys = decoder.queries(3, scene.states), decoder.keys(3, scene.states)
        normed = layer.input_layernorm(scene.states)
        assert torch.equal(queries.transpose(0, 1).flatten(1), layer.self_attn.q_proj(normed))
        assert torch.equal(keys.transpose(0, 1).flatten(1), layer.self_attn.k_proj(normed))
        assert torch.equal(decoder.norm(scene.states), decoder_of(model).norm(scene.states))
    assert decoder.depth == 5


@pytest.mark.parametrize("family", ["qwen2_5_vl", "llava"])
def test_the_hooks_go_with_the_context(family):
    model = model_of(family)
    inputs = prompt(model, family, 1)
    before = logits(model, inputs)
    counts = [len(m._forward_hooks) + len(m._forward_pre_hooks) for m in model.modules()]
    spied(model, inputs, generating=True)
    assert [len(m._forward_hooks) + len(m._forward_pre_hooks) for m in model.modules()] == counts
    assert torch.equal(logits(model, inputs), before)
    assert not any("_vicoset_tap" in vars(module) for module in model.modules())


def test_what_cannot_be_served_is_refused_before_anything_runs():
    gemma = model_of("gemma3")
    with (
        refused(UnsupportedError, "'spy' cannot run here", "qwen2_5_vl"),
        compressed(gemma, Plan("spy", (Stage(2, Spy(), Drop()),))),
    ):
        pass
    llava = model_of("llava")
    with (
        refused(PlanError, "reads the block before its boundary", "Write spy@2"),
        compressed(llava, Plan("spy", (Stage(0, Spy(), Drop()),))),
    ):
        pass
    asks = Spy(("question",))
    with (
        refused(UnsupportedError, "reads the question as a string", "processor=processor"),
        compressed(llava, Plan("spy", (Stage(2, asks, Drop()),))),
    ):
        pass
