"""HoloV: every chunk of the image has its share of K, by attention and variety."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from vicoset.core import checks
from vicoset.errors import SettingError
from vicoset.methods.base import EMBEDDINGS, TOWER, About, Scene, Selection
from vicoset.methods.choose import quotas
from vicoset.methods.greedy import steady, unit
from vicoset.methods.registry import register_selector

CHUNKS = 16  # where the tower has a class token, as released for LLaVA
PER_KEPT = 1024 / 576  # chunks times K over N elsewhere, as released for Qwen2.5-VL
SMALL = 1e-6


@register_selector
@dataclass(frozen=True)
class HoloV:
    """Chunks of the raster share K by their scores; inside a chunk the most attended tokens stay.

    A token's score is its attention in the tower plus ``variety`` times the variance of its cosines
    inside the chunk, brought to the size of the chunk's attention. A chunk has the mean of its
    tokens.

    Attributes:
        variety: weight of the variance.
        chunks: of each image; None for what was released: 16 where the tower has a class token,
            otherwise ``floor(1024 / 576 * N / K)``, at least 1.
    """

    variety: float = 0.09
    chunks: int | None = None
    name: ClassVar[str] = "holov"
    query_aware: ClassVar[bool] = False
    needs: ClassVar[frozenset[str]] = frozenset({EMBEDDINGS, TOWER})
    about: ClassVar[About] = About(
        title="HoloV",
        source="Zou et al., Don't Just Chase Highlighted Tokens in MLLMs: Revisiting Visual "
        "Holistic Context Retention (HoloV), NeurIPS 2025",
        acts="at the decoder's input",
        reads="attention in the vision tower (class token, or received), embeddings",
        code="obananas/HoloV",
        licence="Apache-2.0",
        budget="tokens kept",
        notes=(
            "the variance counts a zero for the token itself and divides by the number of others, "
            "as released",
            "the variance moves no share: it is scaled by its own mean in the chunk, so a chunk of "
            "several tokens scores 1.09 times its mean attention, up to the guard of 1e-6",
            "exactly K: what a full chunk cannot take goes to the best chunks with room; the "
            "released code fills up with zero vectors",
            "a chunk of one token is scored by attention on the same scale as all others; the "
            "released code leaves out its factor of 1,000",
            "kept tokens are in raster order; the released code leaves them in order of attention",
            "images: K by their numbers of tokens, chunks of each",
        ),
        checked=(
            "by hand: shares of chunks, attention inside them",
            "scores of chunks as released, and that the variance moves no share",
        ),
    )

    def __post_init__(self) -> None:
        """Refuse numbers that are none."""
        if not 0.0 <= self.variety < float("inf"):
            raise SettingError(
                f"variety={self.variety!r}; allowed are numbers from 0 on, such as 0.09."
            )
        chunks: object = self.chunks
        whole = isinstance(chunks, int) and not isinstance(chunks, bool) and chunks > 0
        if chunks is not None and not whole:
            raise SettingError(f"chunks={chunks!r}; allowed are whole numbers from 1 on, or None.")

    def select(self, scene: Scene, keep: int) -> Selection:
        """Share K between images, then between chunks, then by attention."""
        tower = scene.tower
        attention = checks.lift(tower.received if tower.cls is None else tower.cls, "attention")
        kept, shares = [], []
        for image, budget in enumerate(quotas(scene, keep)):
            mine = (scene.image_ids == image).nonzero()[:, 0]
            sizes = chunk_sizes(len(mine), self._chunks(len(mine), budget, tower.cls is not None))
            scores = chunk_scores(scene.embeddings[mine], attention[mine], sizes, self.variety)
            given = shared(scores.tolist(), sizes, budget)
            shares.append(given)
            kept.append(mine[best_of_chunks(attention[mine], sizes, given)])
        return Selection(torch.cat(kept).sort().values, {"quotas": shares})

    def _chunks(self, tokens: int, budget: int, class_token: bool) -> int:
        usual = CHUNKS if class_token else max(1, int(PER_KEPT * tokens / budget))
        return min(tokens, self.chunks or usual)


def chunk_sizes(tokens: int, chunks: int) -> list[int]:
    """Sizes of contiguous chunks, the first ones a token longer where it does not come out even."""
    size, rest = divmod(tokens, chunks)
    return [size + (chunk < rest) for chunk in range(chunks)]


@checks.full_precision
def chunk_scores(features: Tensor, attention: Tensor, sizes: list[int], variety: float) -> Tensor:
    """[P]: mean attention of each chunk plus its scaled variety.

    The mean over a chunk of ``variety * variance * mean|attention| / mean(variance)`` is taken as
    released: token by token, then averaged.

    Args:
        features: [N, d].
        attention: [N].
        sizes: of the chunks.
        variety: weight of the variance.
    """
    rows = unit(features)
    scores = []
    for part, given in zip(torch.split(rows, sizes), torch.split(attention, sizes), strict=True):
        others = max(len(part) - 1, 1)
        cosines = steady(part @ part.mT).fill_diagonal_(0.0)
        mean = cosines.sum(1, keepdim=True) / others
        variance = (cosines - mean).square().sum(1) / others
        scale = given.abs().mean() / (variance.abs().mean() + SMALL)
        scores.append((given + variety * scale * variance).mean())
    return torch.stack(scores)


def shared(scores: list[float], sizes: list[int], keep: int) -> list[int]:
    """How many of ``keep`` each chunk gives: by its score, and never more than it has.

    Shares are rounded down; what is left goes one by one to the best chunks with room, ties to the
    first.

    Args:
        scores: of the chunks.
        sizes: of the chunks, at least ``keep`` together.
        keep: K of the image.
    """
    total = sum(scores)
    weights = [score / total if total > 0.0 else 1.0 / len(scores) for score in scores]
    given = [min(size, int(weight * keep)) for weight, size in zip(weights, sizes, strict=True)]
    order = sorted(range(len(sizes)), key=lambda chunk: (-weights[chunk], chunk))
    while sum(given) < keep:
        for chunk in [c for c in order if given[c] < sizes[c]][: keep - sum(given)]:
            given[chunk] += 1
    return given


def best_of_chunks(attention: Tensor, sizes: list[int], given: list[int]) -> Tensor:
    """[K]: the most attended tokens of each chunk, ties to the lower index.

    Args:
        attention: [N].
        sizes: of the chunks.
        given: how many each chunk keeps.
    """
    found, before = [], 0
    for size, count in zip(sizes, given, strict=True):
        order = attention[before : before + size].argsort(descending=True, stable=True)
        found.append(order[:count] + before)
        before += size
    return torch.cat(found)
