"""MMTok: tokens that cover the question's words and the image's own features, both at once."""

from __future__ import annotations

import math
import re
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from vicoset.core import checks
from vicoset.errors import MethodError, SettingError
from vicoset.methods.base import EMBEDDINGS, QUESTION, TOWER, About, Scene, Selection
from vicoset.methods.cover import MOST, PEAK, Covering, Similar, Table, cover
from vicoset.methods.greedy import Picks, steady, unit
from vicoset.methods.registry import register_selector

SUFFIXES = (
    "Answer the question using a single word or phrase.",
    "Answer with the option's letter from the given choices directly.",
)
# English words that name nothing visible, by kind.
FUNCTION_WORDS = frozenset(
    " ".join(
        (
            "a an the",
            "am is are was were be been being have has had having do does did",
            "i you he she it we they",
            "what where when why how who which",
            "and or but so if then",
            "to for with by from at into onto upon",
            "question answer",
        )
    ).split()
)
WARM, COLD = 0.02, 0.01  # temperatures of the text rows, as released for LLaVA and for Qwen


@register_selector
@dataclass(frozen=True)
class MMTok:
    """Greedy facility location over text rows and visual rows.

    Text: ``softmax_v(cos(e_t, x_v) / text_temperature) / m`` for the question's m tokens. Visual:
    ``alpha * softmax_v(cos(z_u, z_v) / vision_temperature) / N``, z before the projector.

    Attributes:
        alpha: weight of the visual rows; 0 covers the text alone.
        text_temperature: None for what was released: 0.02 for LLaVA, 0.01 for Qwen.
        vision_temperature: of the visual rows.
    """

    alpha: float = 0.5
    text_temperature: float | None = None
    vision_temperature: float = 0.2
    name: ClassVar[str] = "mmtok"
    query_aware: ClassVar[bool] = True
    needs: ClassVar[frozenset[str]] = frozenset({EMBEDDINGS, QUESTION, TOWER})
    about: ClassVar[About] = About(
        title="MMTok",
        source="Dong et al., MMTok: Multimodal Coverage Maximization for Efficient Inference of "
        "VLMs, ICLR 2026",
        acts="at the decoder's input",
        reads="features of the vision tower, embeddings of visual tokens, the question as a string",
        positions="packed",
        code="Ironieser/MMTok",
        licence="Apache-2.0",
        budget="tokens kept",
        notes=(
            "text as released. LLaVA: the question without its two answer-format sentences and "
            "without function words (an English list of ours); Qwen: 'Question: ' and all of it. "
            "Both split at blanks, each word tokenised on its own",
            "text temperature 0.02 for LLaVA, 0.01 for Qwen; alpha 0.5; vision temperature 0.2",
            "the greedy corrects gains of the rows that a pick raises, exactly (offers are whole "
            "numbers); the released code sums the whole matrix at every pick. Same picks",
            "patches of a padded border are not excluded: the released code does so for its own "
            "LLaVA-1.5 checkpoints; processors of the Hugging Face ones crop instead of padding",
            "released positions are packed for LLaVA, the original ones for Qwen",
            "images: one coverage over all, the last picks go to images without a carrier",
        ),
        checked=(
            "the incremental greedy against the full one, index by index",
            "by hand: two kinds of tokens; alpha = 0 covers the text alone",
            "words of both releases",
        ),
    )

    def __post_init__(self) -> None:
        """Refuse temperatures that are none, and a weight that is no weight."""
        if not (math.isfinite(self.alpha) and self.alpha >= 0.0):
            raise SettingError(f"alpha={self.alpha!r}; allowed are numbers from 0 on, such as 0.5.")
        for name in ("text_temperature", "vision_temperature"):
            value: object = getattr(self, name)
            if value is None and name == "text_temperature":
                continue
            number = isinstance(value, int | float) and not isinstance(value, bool)
            if not (number and math.isfinite(float(str(value))) and float(str(value)) > 0.0):
                raise SettingError(f"{name}={value!r}; allowed are numbers above 0, such as 0.2.")

    def select(self, scene: Scene, keep: int) -> Selection:
        """Cover words and features with ``keep`` tokens."""
        tokens = len(scene.states)
        llava = scene.tower.project is not None  # projectors of Qwen merge, they see no single z
        words = spoken(scene.question) if llava else f"Question: {scene.question}".split()
        if scene.text.embed is None:
            raise MethodError(
                "selector 'mmtok' tokenises words of the question and this scene cannot; give "
                "compress(..., processor=processor), whose tokenizer does it."
            )
        temperature = self.text_temperature or (WARM if llava else COLD)
        text = text_shares(scene.text.embed(words), scene.embeddings, temperature)
        picks = Picks(scene, keep)
        families = []
        device, alpha = scene.states.device, self.alpha
        unit_of_share = min(float(PEAK), MOST * alpha / tokens)
        if len(text):
            whole = unit_of_share * tokens / alpha if alpha else float(MOST)
            offers = (text * (whole / len(text))).round_().to(torch.int64)
            families.append(Covering(Table(offers), len(text), tokens, device))
        if alpha or not families:
            similar = Similar(scene.tower.features, self.vision_temperature, unit_of_share)
            families.append(Covering(similar, tokens, tokens, device))
        cover(picks, families)
        return Selection(picks.indices(), {"words": len(text)})


def spoken(question: str) -> list[str]:
    """The words that LLaVA's text rows cover; all of the question where none would be left.

    Args:
        question: as it was asked, with or without the benchmarks' answer-format sentences.
    """
    for suffix in SUFFIXES:
        question = question.replace(suffix, "")
    words = [w for w in re.findall(r"\b\w+\b", question) if w.lower() not in FUNCTION_WORDS]
    return words or question.split()


@checks.full_precision
def text_shares(words: Tensor, embeddings: Tensor, temperature: float) -> Tensor:
    """[M, N] how the words share themselves among the visual tokens.

    Args:
        words: [M, d].
        embeddings: [N, d].
        temperature: tau.
    """
    cosines = steady(unit(words.to(embeddings.device)) @ unit(embeddings).mT)
    return (cosines / temperature).softmax(1)
