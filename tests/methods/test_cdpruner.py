"""CDPruner: against all candidates' determinants, relevance in a real CLIP, the sign by hand."""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np
import pytest
import torch
from torch import nn

from tests.core.helpers import refused
from tests.methods import lent
from tests.methods.parts import at_input, greedy, normal, tower_of
from tests.runtime.helpers import compressed, logits, model_of, prompt
from vicoset.errors import MethodError, SettingError
from vicoset.methods import registry
from vicoset.methods.cdpruner import CDPruner, CDPrunerStyle, clip_text, dpp, within

ANSWER = "\nAnswer the question using a single word or phrase."


def unit(rows):
    rows = np.asarray(rows, dtype=np.float64)
    return rows / np.linalg.norm(rows, axis=1, keepdims=True)


def determinants(kernel):
    """The score of a greedy that looks at every candidate's determinant."""

    def score(v, picked):
        chosen = [*picked, v]
        return round(np.linalg.slogdet(kernel[np.ix_(chosen, chosen)])[1], 9)

    return score


@pytest.mark.parametrize("images", [1, 3])
@pytest.mark.parametrize("theta", [0.0, 0.5, 0.9, 1.0])
def test_the_greedy_is_that_of_the_determinant(images, theta):
    embeddings, words = normal(1, 40, 12), normal(2, 5, 12)
    scene = at_input(embeddings, words, images)
    cosines = unit(embeddings) @ unit(embeddings).T
    mean = (unit(embeddings) @ unit(words).T).mean(1)
    ids = scene.image_ids.numpy()
    low, high = (np.array([f(mean[ids == i]) for i in range(images)]) for f in (np.min, np.max))
    relevance = np.maximum((mean - low[ids]) / (high - low)[ids], 1e-9)
    weight = relevance if theta == 1.0 else np.exp(theta / (2 * (1 - theta)) * relevance)
    kernel = weight[:, None] * cosines * weight
    for keep in (images, 4, 8):
        wanted = greedy(ids.tolist(), keep, determinants(kernel))
        assert CDPrunerStyle(theta).select(scene, keep).indices.tolist() == wanted


def test_relevance_is_scaled_within_each_image():
    scene = at_input(normal(0, 6, 4), images=2)
    values = torch.tensor([1.0, 3.0, 2.0, 7.0, 7.0, 7.0])
    assert within(scene, values).tolist() == [0.0, 1.0, 0.5, 1.0, 1.0, 1.0]


def test_a_kernel_of_low_rank_is_filled_by_relevance():
    scene = at_input(normal(3, 30, 4) @ normal(4, 4, 12))
    weights = torch.rand(30, generator=torch.Generator().manual_seed(5)) + 0.1
    kernel = weights.numpy()[:, None] * (unit(scene.embeddings) @ unit(scene.embeddings).T)
    kernel = kernel * weights.numpy()
    spanning = greedy([0] * 30, 4, determinants(kernel))
    rest = [v for v in weights.argsort(descending=True).tolist() if v not in spanning]
    for keep in (3, 4, 5, 12, 30):
        found = dpp(scene, keep, weights)
        wanted = sorted([*spanning, *rest][:keep]) if keep >= 4 else found.indices.tolist()
        assert found.indices.tolist() == wanted and len(set(wanted)) == keep
        assert bool(torch.as_tensor(found.evidence["left"]).isfinite())


def test_theta_is_a_share():
    with refused(SettingError, "theta=1.5", "[0, 1]"):
        CDPrunerStyle(1.5)


def flat(width, text):
    """A CLIP that leaves patches as they are, and reads every text as the same vector."""
    projection = nn.Linear(width, width, bias=False)
    nn.init.eye_(projection.weight)
    told = SimpleNamespace(pooler_output=text[None])

    class Reader(nn.Module):
        config = SimpleNamespace(max_position_embeddings=8)

        def forward(self, **_):
            return told

    return SimpleNamespace(
        visual_projection=projection,
        text_projection=projection,
        vision_model=SimpleNamespace(post_layernorm=nn.Identity()),
        text_model=Reader(),
    )


def with_clip(features, text, embeddings, **given):
    tower = tower_of(features, cls_feature=features[:1])
    companions = {"clip": flat(features.shape[1], text), "clip_tokenizer": lent.Captions()}
    return at_input(embeddings, question="what?", tower=tower, companions=companions, **given)


def test_the_sign_by_hand():
    # Cosines to the text: 1, 0.8, 0, -1. The embeddings are orthogonal, so relevance decides alone.
    features = torch.tensor([[1.0, 0.0], [0.8, 0.6], [0.0, 2.0], [-3.0, 0.0]])
    scene = with_clip(features, torch.tensor([5.0, 0.0]), torch.eye(4))
    for keep, negated, wanted in (
        (1, True, [3]),
        (2, True, [2, 3]),
        (3, True, [1, 2, 3]),
        (1, False, [0]),
        (2, False, [0, 1]),
    ):
        assert CDPruner(negated).select(scene, keep).indices.tolist() == wanted
    # Of two alike the second adds nothing, however relevant it is.
    twins = with_clip(features, torch.tensor([5.0, 0.0]), torch.eye(4)[[0, 1, 3, 3]])
    assert CDPruner().select(twins, 2).indices.tolist() == [1, 3]


def test_relevance_is_the_cosine_in_the_joint_space_of_a_real_clip():
    clip, reader = lent.clip(), lent.Captions()
    model = model_of("llava")
    seen = []
    with compressed(
        model,
        "cdpruner+drop@0",
        4,
        processor=lent.Words(),
        companions=lent.companions(),
        watch=seen.append,
    ):
        logits(model, prompt(model, "llava", 1))
    scene = seen[0].scene
    question = scene.question
    ids = reader(text=[question])["input_ids"][0].tolist()
    with torch.no_grad():
        told = []  # pieces of CLIP's text length, the last one filled up with zeros
        for start in range(0, len(ids), lent.TEXT_LENGTH):
            piece = ids[start : start + lent.TEXT_LENGTH]
            filled = piece + [0] * (lent.TEXT_LENGTH - len(piece))
            mask = [1] * len(piece) + [0] * (lent.TEXT_LENGTH - len(piece))
            pooled = clip.text_model(
                input_ids=torch.tensor([filled]), attention_mask=torch.tensor([mask])
            ).pooler_output
            told.append(clip.text_projection(pooled)[0])
        assert len(told) > 1
        torch.testing.assert_close(clip_text(clip, reader, question), torch.stack(told))
        image = clip.vision_model.post_layernorm(scene.tower.features)
        image = clip.visual_projection(image)
    mean = (unit(image) @ unit(torch.stack(told)).T).mean(1)
    weight = (mean.max() - mean + 1e-6) / (mean.max() - mean.min())
    kernel = weight[:, None] * (unit(scene.embeddings) @ unit(scene.embeddings).T) * weight
    wanted = greedy([0] * len(mean), 4, determinants(kernel))
    assert seen[0].selection.indices.tolist() == wanted


def test_the_answer_format_is_no_part_of_the_question():
    heard = []

    class Listening(lent.Captions):
        def __call__(self, text, **options):
            heard.extend(text)
            return super().__call__(text, **options)

    scene = with_clip(normal(0, 4, 2), torch.ones(2), torch.eye(4))
    text = scene.parts.text._replace(question="what?" + ANSWER)
    companions = {**scene.companions, "clip_tokenizer": Listening()}
    changed = at_input(
        torch.eye(4), question="what?" + ANSWER, tower=scene.tower, companions=companions
    )
    assert changed.question == text.question
    registry.selector("cdpruner").select(changed, 2)
    assert heard == ["what?"]


def test_what_has_no_clip_is_refused():
    features = normal(0, 4, 2)
    scene = with_clip(features, torch.ones(2), torch.eye(4))
    narrow = tower_of(normal(0, 4, 3), cls_feature=normal(0, 1, 3))
    for tower, companions, why in (
        (scene.tower, {}, "companions given: none"),
        (narrow, scene.companions, "3 wide, the companion's features are 2"),
        (tower_of(features), scene.companions, "cdpruner-style"),
        (scene.tower, {"clip": scene.companions["clip"]}, "companions given: clip."),
    ):
        lacking = at_input(torch.eye(4), question="what?", tower=tower, companions=companions)
        with refused(MethodError, "'cdpruner'", why):
            registry.selector("cdpruner").select(lacking, 2)
