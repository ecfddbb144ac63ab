"""The engine and the plain layer loop compute the same bits."""

import pytest
import torch

from tests.runtime.helpers import (
    BOUNDARIES,
    SOME,
    compressed,
    decoder_of,
    generate,
    logits,
    model_of,
    prompt,
)
from vicoset.runtime import prompt as running
from vicoset.runtime import reference
from vicoset.runtime.reference import Intervention

STEPS = 8
KEEP = 4
REALISERS = pytest.mark.parametrize("realiser", ["drop", "transport"])
PLACES = pytest.mark.parametrize(
    ("boundary", "dtype"),
    [*((p, torch.float32) for p in BOUNDARIES), *((p, torch.bfloat16) for p in (0, 2))],
    ids=str,
)


@pytest.fixture
def compactions(monkeypatch):
    """What every compaction of the test decided, in order."""
    found = []
    real = running.compact

    def spy(*args, **kwargs):
        found.append(real(*args, **kwargs))
        return found[-1]

    monkeypatch.setattr(running, "compact", spy)
    return found


class Dense:
    """Embeddings and positions that the untouched model feeds to its decoder."""

    def __init__(self, model, inputs):
        self.model, self.decoder = model, decoder_of(model)
        handle = self.decoder.register_forward_pre_hook(self._look, with_kwargs=True)
        generate(model, inputs, 1)
        handle.remove()
        self.visual = (inputs["input_ids"][0] == model.config.image_token_id).nonzero()[:, 0]

    def _look(self, module, args, kwargs):
        self.embeddings, positions = kwargs["inputs_embeds"], kwargs["position_ids"]
        self.positions = positions if positions.ndim == 2 else positions[-3:]

    def head(self, states):
        return self.model.lm_head(states[:, -1:])

    def behind(self, token, step):
        """Embedding and position of a token that was generated."""
        position = self.positions[..., -1:] + 1 + step
        return self.decoder.embed_tokens(torch.tensor([[token]])), position

    def intervention(self, boundary, stage, carriers):
        dropped = torch.ones(len(self.visual), dtype=torch.bool)
        dropped[stage.indices] = False
        stays = torch.ones(self.embeddings.shape[1], dtype=torch.bool)
        stays[self.visual[dropped]] = False
        kept = stays.nonzero()[:, 0]
        slots = torch.isin(kept, self.visual[stage.indices]).nonzero()[:, 0]
        return Intervention(boundary, kept, slots, carriers)


def decided(dense, engine, compactions, boundary, realiser):
    """The intervention that the engine's record and compaction describe."""
    (stage,) = engine.records[0].stages
    carriers = compactions[0].carriers[0] if realiser == "transport" else None
    assert carriers is None or carriers.shape == (KEEP, dense.embeddings.shape[-1])
    return dense.intervention(boundary, stage, carriers)


@pytest.mark.parametrize(("family", "attn"), SOME)
@PLACES
@REALISERS
@torch.no_grad()
def test_cached_generation_is_the_plain_loop(family, attn, boundary, dtype, realiser, compactions):
    from transformers import DynamicCache

    model = model_of(family, attn, dtype)
    inputs = prompt(model, family, 1)
    dense = Dense(model, inputs)
    with compressed(model, f"gmc+{realiser}@{boundary}", KEEP) as engine:
        out = generate(model, inputs, 1 + STEPS)
    change = decided(dense, engine, compactions, boundary, realiser)
    cache = DynamicCache()
    found = reference.prefill(
        dense.decoder, dense.head, dense.embeddings, dense.positions, change, cache
    )
    tokens = out.sequences[0, inputs["input_ids"].shape[1] :].tolist()
    for step, native in enumerate(out.logits):
        assert torch.equal(found[:, -1].float(), native), step
        if step < STEPS:
            embedding, place = dense.behind(tokens[step], step)
            found = reference.step(dense.decoder, dense.head, embedding, place, cache)
    for mine, its in zip(cache.layers, out.past_key_values.layers, strict=True):
        assert torch.equal(mine.keys, its.keys) and torch.equal(mine.values, its.values)


@pytest.mark.parametrize(("family", "attn"), SOME)
@PLACES
@REALISERS
@torch.no_grad()
def test_replay_is_the_plain_loop(family, attn, boundary, dtype, realiser, compactions):
    model = model_of(family, attn, dtype)
    inputs = prompt(model, family, 1)
    dense = Dense(model, inputs)
    with compressed(model, f"gmc+{realiser}@{boundary}", KEEP, prefix="replay") as engine:
        out = generate(model, inputs, 1 + STEPS)
    assert len(compactions) == 1  # the support is chosen once
    change = decided(dense, engine, compactions, boundary, realiser)
    embeddings, places = dense.embeddings, dense.positions
    tokens = out.sequences[0, inputs["input_ids"].shape[1] :].tolist()
    for step, native in enumerate(out.logits):
        found = reference.replay(dense.decoder, dense.head, embeddings, places, change)
        assert torch.equal(found[:, -1].float(), native), step
        embedding, place = dense.behind(tokens[step], step)
        embeddings, places = torch.cat([embeddings, embedding], 1), torch.cat([places, place], -1)


@pytest.mark.parametrize(("family", "attn"), SOME)
@PLACES
@REALISERS
@torch.no_grad()
def test_a_plain_forward_is_the_plain_loop(family, attn, boundary, dtype, realiser, compactions):
    model = model_of(family, attn, dtype)
    inputs = prompt(model, family, 2)
    dense = Dense(model, inputs)
    for use_cache in (True, False):
        compactions.clear()
        with compressed(model, f"gmc+{realiser}@{boundary}", KEEP) as engine:
            found = logits(model, inputs, use_cache=use_cache)
        change = decided(dense, engine, compactions, boundary, realiser)
        expected = reference.prefill(
            dense.decoder, model.lm_head, dense.embeddings, dense.positions, change
        )
        assert torch.equal(found, expected)
