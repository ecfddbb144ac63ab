"""CDPruner: tokens that matter for the question and differ from each other, a DPP's greedy mode."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

import torch
from torch import Tensor
from torch.nn.functional import normalize

from vicoset.core import checks
from vicoset.errors import MethodError, SettingError
from vicoset.methods.base import EMBEDDINGS, QUESTION, TEXT, TOWER, About, Scene, Selection
from vicoset.methods.cosines import Cosines
from vicoset.methods.demands import Offer
from vicoset.methods.greedy import Picks, steady, unit
from vicoset.methods.registry import register_selector

_SOURCE = (
    "Zhang et al., Beyond Attention or Similarity: Maximizing Conditional Diversity for Token "
    "Pruning in MLLMs (CDPruner), NeurIPS 2025"
)
_CODE = "Theia-4869/CDPruner"
_LICENCE = "Apache-2.0"
_NOTES = (
    "greedy by the incremental Cholesky factor in FP32, of the cosines alone: relevance scales a "
    "pivot and cancels everywhere else",
    "tokens that the picks span (a squared sine of at most 2^-17) come last, by relevance; the "
    "released code divides by zero there and repeats indices",
    "images: one greedy over all, the last picks go to images without a carrier",
)
SUFFIX = "\nAnswer the question using a single word or phrase."
SMALL = 1e-6
SPANNED = 2.0**-17  # squared sine to the span of the picks: below it FP32 sees rounding


@register_selector
@dataclass(frozen=True)
class CDPruner:
    """Greedy mode of the DPP with kernel ``r_u cos(x_u, x_v) r_v``, r the relevance in CLIP.

    Needs ``companions={"clip": CLIPModel, "clip_tokenizer": its tokenizer}``, of the model's tower.

    Attributes:
        negated: relevance is minus the mean cosine, as released: patch states of CLIP's last but
            one layer are the less similar to a text the more they show of it.
    """

    negated: bool = True
    name: ClassVar[str] = "cdpruner"
    query_aware: ClassVar[bool] = True
    needs: ClassVar[frozenset[str]] = frozenset({EMBEDDINGS, QUESTION, TOWER})
    about: ClassVar[About] = About(
        title="CDPruner",
        source=_SOURCE,
        acts="at the decoder's input",
        reads="embeddings of visual tokens, tower features and the question in CLIP's joint space",
        positions="packed",
        code=_CODE,
        licence=_LICENCE,
        budget="tokens kept",
        notes=(
            "for LLaVA with the CLIP model of its tower as a companion; other towers have no such "
            "text side, and cdpruner-style is there for them",
            "the question without the answer-format sentence; longer texts are cut into pieces of "
            "CLIP's text length, as released",
            "relevance is scaled to [0, 1] over all images of a prompt together, as released",
            *_NOTES,
        ),
        checked=(
            "by hand: the sign of the relevance",
            "the greedy of the determinant by brute force",
            "relevance against a real (random) CLIP, piece by piece",
        ),
    )

    def check_offer(self, offer: Offer) -> None:
        """Raise where the tower's CLIP model is missing."""
        check_clip(offer.class_width, offer.companions)

    def select(self, scene: Scene, keep: int) -> Selection:
        """Rank by relevance in CLIP, spread by the projector's outputs."""
        cosine = clip_cosine(scene, scene.tower.features)
        relevance = -cosine if self.negated else cosine
        low, high = relevance.aminmax()
        relevance = (relevance - low + SMALL) / (high - low).clamp_min(SMALL)
        return dpp(scene, keep, relevance)


@register_selector
@dataclass(frozen=True)
class CDPrunerStyle:
    """CDPruner where there is no CLIP: relevance is the mean cosine to the question's embeddings.

    Attributes:
        theta: 1 takes the relevance itself as the paper does, 0 diversity alone; between them
            weights are ``exp(theta / (2 (1 - theta)) r)``.
    """

    theta: float = 0.5
    name: ClassVar[str] = "cdpruner-style"
    query_aware: ClassVar[bool] = True
    needs: ClassVar[frozenset[str]] = frozenset({EMBEDDINGS, TEXT})
    about: ClassVar[About] = About(
        title="CDPruner-style",
        source=_SOURCE + "; its definition for Qwen in openvinotoolkit/openvino.genai",
        acts="at the decoder's input",
        reads="embeddings of visual tokens and of the question",
        code=_CODE,
        licence=_LICENCE,
        budget="tokens kept",
        notes=(
            "the authors have released no code for Qwen; this is the public definition of OpenVINO "
            "GenAI (Apache-2.0), with its theta of 0.5",
            "relevance is positive and scaled to [0, 1] within each image",
            *_NOTES,
        ),
        checked=(
            "the greedy of the determinant by brute force, with every theta",
            "kernels of low rank: no NaN, no index twice",
        ),
    )

    def __post_init__(self) -> None:
        """Refuse what is no share."""
        if not 0.0 <= self.theta <= 1.0:
            raise SettingError(
                f"theta={self.theta!r}; allowed are numbers in [0, 1]. Pass theta=0.5."
            )

    def select(self, scene: Scene, keep: int) -> Selection:
        """Rank by likeness to the question's tokens, spread by the embeddings."""
        words = unit(scene.text.embeddings[scene.text.question_mask]).mean(0)
        relevance = within(scene, steady(unit(scene.embeddings) @ words))
        if self.theta < 1.0:
            relevance = (self.theta / (2.0 * (1.0 - self.theta)) * relevance).exp()
        return dpp(scene, keep, relevance)


def within(scene: Scene, values: Tensor) -> Tensor:
    """[N]: values scaled to [0, 1] in each image; 1 where an image's are all alike.

    Args:
        scene: the scene.
        values: [N].
    """
    ids = scene.image_ids
    low, high = (
        values.new_zeros(scene.images).scatter_reduce(0, ids, values, how, include_self=False)
        for how in ("amin", "amax")
    )
    width = (high - low)[ids]
    return torch.where(width < SMALL, 1.0, (values - low[ids]) / width.clamp_min(SMALL))


def check_clip(width: int | None, companions: Mapping[str, Any]) -> None:
    """Raise unless a CLIP model of the tower's kind came along with its tokenizer.

    Args:
        width: of the tower's features; None where it has no class token, as CLIP's has.
        companions: of the run.
    """
    theirs = getattr(
        getattr(companions.get("clip"), "visual_projection", None), "in_features", None
    )
    if width is None or "clip_tokenizer" not in companions or theirs != width:
        given = ", ".join(sorted(companions)) or "none"
        tower = (
            "this tower has no class token" if width is None else f"its features are {width} wide"
        )
        raise MethodError(
            "selector 'cdpruner' compares patches with the question in the space of the tower's "
            f"own CLIP model; {tower}, the companion's features are "
            f"{'unknown' if theirs is None else f'{theirs} wide'}, companions given: {given}. "
            "Allowed are LLaVA models with a CLIP tower and companions={'clip': CLIPModel, "
            "'clip_tokenizer': tokenizer} of that tower. Give them, or choose 'cdpruner-style'."
        )


@checks.full_precision
def clip_cosine(scene: Scene, features: Tensor) -> Tensor:
    """[N]: mean cosine of each visual token to the pieces of the question, in CLIP's space.

    Args:
        scene: the scene.
        features: z [N, dz].
    """
    tower = None if scene.tower.cls_feature is None else features.shape[1]
    check_clip(tower, scene.companions)
    clip, reader = scene.companions["clip"], scene.companions["clip_tokenizer"]
    with torch.no_grad():
        image = clip_image(clip, features)
        text = clip_text(clip, reader, scene.question.replace(SUFFIX, ""))
    cosines = unit(image) @ unit(text).to(image).mT
    return steady(cosines.mean(1)).to(scene.states.device)


def clip_image(clip: Any, features: Tensor) -> Tensor:
    """[N, dc]: patch states in the joint space."""
    weight = clip.visual_projection.weight
    normed = clip.vision_model.post_layernorm(features.to(weight))
    found: Tensor = clip.visual_projection(normed).float()
    return found


def clip_text(clip: Any, reader: Any, question: str) -> Tensor:
    """[M, dc]: the question's pieces in the joint space, padded to CLIP's text length."""
    length = int(clip.text_model.config.max_position_embeddings)
    device = clip.text_projection.weight.device
    given = reader(text=[question], return_tensors="pt")
    pieces = {}
    for name in ("input_ids", "attention_mask"):
        row = given[name][0]
        padded = row.new_zeros(math.ceil(len(row) / length) * length)
        padded[: len(row)] = row
        pieces[name] = padded.reshape(-1, length).to(device)
    found: Tensor = clip.text_projection(clip.text_model(**pieces).pooler_output).float()
    return found


def dpp(scene: Scene, keep: int, weights: Tensor) -> Selection:
    """The greedy mode of the DPP with kernel ``w_u cos(x_u, x_v) w_v``.

    With ``cos = C^T C`` each pick adds a row to C; what is left of a token outside the span of the
    picks is ``1 - sum c^2``, and its gain in the determinant that times the squared weight.

    Args:
        scene: the scene.
        keep: K.
        weights: [N], positive.
    """
    cosines = Cosines(scene.embeddings, keep, rounded=False)
    picks = Picks(scene, keep)
    tokens = len(scene.states)
    factor = weights.new_empty(keep, tokens)
    left = weights.new_ones(tokens)
    squares, last = normalize(weights, dim=0, p=torch.inf).square(), weights - weights.amax() - 1.0
    for done in range(keep):
        # Tokens that the picks span rank behind all others, by their weight.
        token = picks.take(torch.where(left > SPANNED, squares * steady(left), last))
        row, before = factor[done], factor[:done]
        torch.sub(cosines.row(token), before.index_select(1, token)[:, 0] @ before, out=row)
        row /= left[token].clamp_min(SPANNED).sqrt()
        left = torch.addcmul(left, row, row, value=-1.0)
    return Selection(picks.indices(), {"left": left.clamp_min(0.0).mean()})
