"""DART: a few pivots, and the tokens that duplicate them least."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from vicoset.core import checks
from vicoset.errors import SettingError
from vicoset.methods.base import DECODER, PREVIOUS, TEXT, About, Scene, Selection
from vicoset.methods.greedy import Picks, steady, unit
from vicoset.methods.registry import register_selector


@register_selector
@dataclass(frozen=True)
class Dart:
    """Pivots: tokens with the longest keys (L1) in block p - 1, of the image and of the text.

    Each pivot in turn adds its share of K: the tokens still free whose states, behind the final
    norm, are least similar to its own.

    Attributes:
        image_pivots: visual pivots; they stay.
        text_pivots: pivots behind the last image.
    """

    image_pivots: int = 4
    text_pivots: int = 4
    name: ClassVar[str] = "dart"
    query_aware: ClassVar[bool] = True
    needs: ClassVar[frozenset[str]] = frozenset({DECODER, PREVIOUS, TEXT})
    about: ClassVar[About] = About(
        title="DART",
        source="Wen et al., Stop Looking for Important Tokens in Multimodal Language Models: "
        "Duplication Matters More (DART), EMNLP 2025",
        acts="before block 2",
        reads="keys of block p - 1, states of visual and text tokens through the final norm",
        code="ZichenWen1/DART",
        licence="Apache-2.0",
        budget="tokens behind block 2, about",
        notes=(
            "exactly K tokens: pivots share what is left of K evenly, the first ones get the rest. "
            "The released code floors each share and adds the pivots on top: for 128 of 576 it "
            "keeps 124, for 128 of 1,296 132",
            "pivots take turns by the length of their keys, those of the image first; the released "
            "order is that of a Python set",
            "text pivots are text tokens behind the last image, without the markers around it",
            "written from the description and from ports; the authors' tree was not read",
            "images: pivots and shares over all, the last picks go to images without a carrier",
        ),
        checked=(
            "by hand: shares of the pivots",
            "loops over the model's own cache",
            "exactly K where the released shares give 124 and 132 of 128",
        ),
    )

    def __post_init__(self) -> None:
        """Refuse numbers of pivots that are none."""
        for name, least in (("image_pivots", 1), ("text_pivots", 0)):
            value: object = getattr(self, name)
            if isinstance(value, bool) or not isinstance(value, int) or value < least:
                raise SettingError(
                    f"{name}={value!r}; allowed are whole numbers from {least} on, such as 4."
                )

    def select(self, scene: Scene, keep: int) -> Selection:
        """Take pivots, then what is least like each of them."""
        lengths = key_lengths(scene.previous.keys)
        picks = Picks(scene, keep)
        picks.take_best(lengths[scene.visual], min(self.image_pivots, keep))
        chosen = picks.order()
        pivots = torch.cat([scene.states[chosen], self._text_pivots(scene, lengths)])
        likeness = similarity(scene, pivots)
        share, rest = divmod(picks.left, len(pivots))
        for turn in range(len(pivots)):
            picks.take_best(-likeness[turn], share + (turn < rest))
        return Selection(picks.indices(), {"pivots": chosen})

    def _text_pivots(self, scene: Scene, lengths: Tensor) -> Tensor:
        """[T, d] states of the text pivots, longest keys first."""
        text = scene.text
        assert text.states is not None
        behind = (text.positions > scene.visual[-1]).nonzero()[:, 0]
        order = lengths[text.positions[behind]].argsort(descending=True, stable=True)
        return text.states.index_select(0, behind[order[: self.text_pivots]])


def key_lengths(keys: Tensor) -> Tensor:
    """[L]: L1 norm of each position's keys, all heads together.

    Args:
        keys: [Hkv, L, dh].
    """
    return checks.lift(keys, "keys").abs().sum((0, 2))


@checks.full_precision
def similarity(scene: Scene, pivots: Tensor) -> Tensor:
    """[P, N]: cosines of some states to the visual ones, all behind the decoder's final norm.

    Args:
        scene: the scene.
        pivots: [P, d].
    """
    with torch.no_grad():
        near, far = scene.decoder.norm(pivots), scene.decoder.norm(scene.states)
    return steady(unit(near) @ unit(far).mT)
