"""HAWK: how the question's queries score visual keys in block 0, heads weighted by importance."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor
from torch.nn.functional import normalize

from vicoset.core import checks
from vicoset.errors import MethodError
from vicoset.methods.base import DECODER, EMBEDDINGS, TEXT, About, Scene, Selection
from vicoset.methods.choose import top
from vicoset.methods.demands import Offer
from vicoset.methods.greedy import steady
from vicoset.methods.registry import register_selector

# Importance of the 28 heads of Qwen2.5-VL-7B, measured by the authors of HAWK (Zhu et al.); their
# repository peppery77/HAWK (Apache-2.0) publishes them. The scale does not matter.
PUBLISHED = (
    *(0.0875, 0.3000, 0.0480, 0.0321, 0.0104, 0.0102, 0.0336),
    *(0.0460, 0.0540, 0.0472, 0.0234, 0.0537, 0.0109, 0.0573),
    *(0.0276, 0.0403, 0.0429, 0.0352, 0.0162, 0.0519, 0.0553),
    *(0.0266, 0.0222, 0.0480, 0.0337, 0.0250, 0.0000, 0.0224),
)
_SOURCE = (
    "Zhu et al., HAWK: Head Importance-Aware Visual Token Pruning in Multimodal Models, CVPR 2026"
)
_CODE = "peppery77/HAWK"
_LICENCE = "Apache-2.0"
_NOTES = (
    "signed scores without softmax and without rotation, each head scaled to length 1 over the "
    "tokens, in FP32; the mean over queries is taken before the product, which changes nothing",
    "queries: what stands between the last image and the end of its turn, answer format included; "
    "where nothing stands there, what stands before the image (the released code then takes the "
    "marker behind the image, and in a talk of several turns it runs to the last end of a turn)",
    "K is a count here; the released code keeps ceil(ratio * N)",
    "images: one ranking over all, each image's best first",
)


@register_selector
@dataclass(frozen=True)
class Hawk:
    """``s_v = sum_i w_i a_iv / ||a_i||``, a the mean pre-softmax score of block 0, w published."""

    name: ClassVar[str] = "hawk"
    query_aware: ClassVar[bool] = True
    needs: ClassVar[frozenset[str]] = frozenset({DECODER, EMBEDDINGS, TEXT})
    about: ClassVar[About] = About(
        title="HAWK",
        source=_SOURCE,
        acts="at the decoder's input",
        reads="block 0's norm and projections of embeddings, 28 published head weights",
        code=_CODE,
        licence=_LICENCE,
        budget="a share of N, rounded up",
        notes=(
            "weights are published for Qwen2.5-VL-7B alone; decoders with another number of heads "
            "are refused, and hawk-style is there for them. Other models of 28 heads get weights "
            "that were not measured on them",
            *_NOTES,
        ),
        checked=(
            "loops over the model's own weights of block 0, in float64",
            "scale of the weights, signs, and where the queries stand",
            "the published weights, whole",
        ),
    )

    def check_offer(self, offer: Offer) -> None:
        """Raise where the published weights are of other heads."""
        check_heads(offer.heads)

    def select(self, scene: Scene, keep: int) -> Selection:
        """Rank by the weighted scores of block 0."""
        scores = head_scores(scene, 0, asked(scene, scene.text.embeddings), scene.embeddings)
        check_heads(len(scores))
        weights = scores.new_tensor(PUBLISHED)
        return Selection(top(scene, weighted(scores, weights), keep), {})


@register_selector
@dataclass(frozen=True)
class HawkStyle:
    """HAWK without its calibration: every head counts alike.

    Attributes:
        here: read the boundary's own block and states; otherwise block 0 and what entered the
            decoder, wherever the boundary is. At the input both are the same.
    """

    here: bool = True
    name: ClassVar[str] = "hawk-style"
    query_aware: ClassVar[bool] = True
    needs: ClassVar[frozenset[str]] = frozenset({DECODER, EMBEDDINGS, TEXT})
    about: ClassVar[About] = About(
        title="HAWK-style",
        source=_SOURCE + "; without its head weights",
        acts="at the decoder's input, or where the plan compresses",
        reads="the boundary block's norm and projections of states",
        code=_CODE,
        licence=_LICENCE,
        budget="a share of N, rounded up",
        notes=(
            "uniform head weights: a reconstruction where none are published",
            "@p reads block p and the states at p; hawk-style[-here]@p chooses by block 0 and "
            "drops at p, and so does hawk@p with the published weights",
            *_NOTES,
        ),
        checked=("loops over the model's own weights, at block 0 and at the boundary",),
    )

    def select(self, scene: Scene, keep: int) -> Selection:
        """Rank by the mean of the heads."""
        text, visual, block = scene.text.embeddings, scene.embeddings, 0
        if self.here and scene.boundary:
            assert scene.text.states is not None
            text, visual, block = scene.text.states, scene.states, scene.boundary
        scores = head_scores(scene, block, asked(scene, text), visual)
        return Selection(top(scene, weighted(scores, scores.new_ones(len(scores))), keep), {})


def check_heads(heads: int) -> None:
    """Raise unless there is a published weight for each head.

    Args:
        heads: H of the decoder.
    """
    if heads != len(PUBLISHED):
        raise MethodError(
            f"selector 'hawk' has the published weights of the {len(PUBLISHED)} heads of "
            f"Qwen2.5-VL-7B, and this decoder has {heads}; allowed are decoders with "
            f"{len(PUBLISHED)}. Choose 'hawk-style', which weights all heads alike."
        )


def asked(scene: Scene, text: Tensor) -> Tensor:
    """[T, d]: the rows of the question.

    Args:
        scene: the scene.
        text: [M, d] of all text tokens.
    """
    return text[scene.text.question_mask]


@checks.full_precision
def head_scores(scene: Scene, block: int, text: Tensor, visual: Tensor) -> Tensor:
    """a [H, N]: per head the mean score of some queries on each visual key, no rotation.

    Args:
        scene: the scene.
        block: whose norm and projections are used.
        text: [T, d].
        visual: [N, d].
    """
    with torch.no_grad():
        queries = checks.lift(scene.decoder.queries(block, text), "queries").mean(1)
        keys = checks.lift(scene.decoder.keys(block, visual), "keys")
    grouped: Tensor = queries.reshape(len(keys), -1, queries.shape[1])  # [Hkv, H / Hkv, dh]
    scores = (grouped @ keys.mT).flatten(0, 1) * queries.shape[1] ** -0.5
    found: Tensor = scores.nan_to_num(nan=0.0, posinf=0.0, neginf=0.0)
    return found


def weighted(scores: Tensor, weights: Tensor) -> Tensor:
    """s [N]: the heads' scores, each of length 1 over the tokens, summed by weight.

    Args:
        scores: [H, N].
        weights: [H]; their scale does not matter.
    """
    found = weights @ normalize(scores, dim=1)
    return steady(found / found.abs().amax().clamp_min(torch.finfo(found.dtype).tiny))
