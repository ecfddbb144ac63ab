"""The model families and their facts, and which family a model belongs to."""

from __future__ import annotations

import difflib
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from torch import nn

from vicoset.errors import UncertifiedModelError, UnsupportedError
from vicoset.models import anyres, blocks, llava, pixtral, qwen, tiles
from vicoset.models.layout import Layout, PromptInputs

_CROSS = "its images enter through cross-attention, so its sequence holds no visual tokens"
_QUERIES = "its Q-Former already turns every image into a fixed set of learned queries"

REFUSED: dict[str, str] = {
    "mllama": _CROSS,
    "idefics": _CROSS,
    "blip-2": _QUERIES,
    "instructblip": _QUERIES,
    "instructblipvideo": _QUERIES,
    "florence2": "it is an encoder-decoder whose images are read by the encoder",
    "fuyu": "its image patches are embedded without a vision tower that returns their features",
    "emu3": "its images are discrete tokens of the text vocabulary",
    "chameleon": "its images are discrete tokens of the text vocabulary",
}


@dataclass(frozen=True)
class Family:
    """What one kind of model decides about its prompts.

    Attributes:
        name: how the family is called.
        model_types: the ``config.model_type`` of its models.
        certified: whether the contract tests run on it.
        visual_ids: configuration -> token ids that stand for visual features.
        layouts: prompt -> one layout a row, None for a row without visual tokens.
        notes: what the layout decides, for the documentation.
    """

    name: str
    model_types: tuple[str, ...]
    certified: bool
    visual_ids: Callable[[Any], tuple[int, ...]]
    layouts: Callable[[PromptInputs], list[Layout | None]]
    notes: str = ""

    def refusals(self, config: Any, boundary: int | None = None) -> list[str]:
        """Why nothing may be compacted before block `boundary` (None: before any block)."""
        return blocks.refusals(config, boundary)

    def windows(self, config: Any) -> dict[int, int]:
        """Block -> positions it can see, for blocks with a sliding or chunked window."""
        return blocks.windows(config)


_RASTER = "grid from the position axes; a video is one identity with time as third coordinate"
_SQUARE = "one square grid an image, images told apart by the vision tower's lengths"

_ANYRES = (
    "base view and fine grid of an image share its frame, placed by the model's own packing; "
    "newlines are structural"
)
_MARKED = "tile grid read from the tile markers, which are structural; the global tile covers all"
_PIXELS = (
    "tile grid recognised by putting the tiles together and comparing with the thumbnail, which "
    "covers all; if that is unclear each tile is its own square; markers are structural"
)

FAMILIES: tuple[Family, ...] = (
    *(
        Family(name, types, certified, qwen.visual_ids, qwen.layouts, _RASTER)
        for name, types, certified in (
            ("Qwen2-VL", ("qwen2_vl",), True),
            ("Qwen2.5-VL", ("qwen2_5_vl",), True),
            ("Qwen3-VL", ("qwen3_vl", "qwen3_vl_moe"), True),
            ("GLM-4.1V", ("glm4v",), True),
            ("GLM-4.5V", ("glm4v_moe",), False),
            ("Qwen3.5", ("qwen3_5", "qwen3_5_moe"), False),
        )
    ),
    Family("LLaVA", ("llava",), True, llava.visual_ids, llava.layouts, _SQUARE),
    Family("VipLLaVA", ("vipllava",), True, llava.visual_ids, llava.layouts, _SQUARE),
    Family(
        "Mistral3",
        ("mistral3",),
        True,
        pixtral.visual_ids,
        pixtral.layouts,
        "one run of tokens a grid row; row breaks and the image end are structural",
    ),
    *(
        Family(name, (kind,), True, anyres.visual_ids, anyres.layouts, _ANYRES)
        for name, kind in (("LLaVA-NeXT", "llava_next"), ("LLaVA-OneVision", "llava_onevision"))
    ),
    Family("InternVL", ("internvl",), True, tiles.visual_ids, tiles.internvl, _PIXELS),
    Family("Aya-Vision", ("aya_vision",), True, tiles.visual_ids, tiles.aya, _PIXELS),
    Family("Idefics3", ("idefics3",), True, tiles.visual_ids, tiles.idefics, _MARKED),
    Family("SmolVLM", ("smolvlm",), True, tiles.visual_ids, tiles.idefics, _MARKED),
    Family("Llama4", ("llama4",), True, tiles.visual_ids, tiles.llama4, _MARKED),
    Family(
        "Gemma3",
        ("gemma3",),
        True,
        tiles.visual_ids,
        tiles.marked,
        "one square grid an image or crop, each its own identity; begin and end are structural",
    ),
    Family("PaliGemma", ("paligemma",), True, tiles.visual_ids, tiles.marked, _SQUARE),
)

GENERIC = Family(
    "uncertified",
    (),
    False,
    llava.visual_ids,
    llava.fallback,
    "images by the vision tower's lengths, else by runs; square grid if the length is a square, "
    "else a line",
)


def family_of(model: Any, allow_uncertified: bool = False) -> Family:
    """The family of a model.

    Args:
        model: the top-level model, with its ``config``.
        allow_uncertified: return the generic family for a model that nobody certified. Models
            that are known to be impossible stay refused.
    """
    kind = str(getattr(model.config, "model_type", ""))
    if kind in REFUSED:
        raise UnsupportedError(
            f"{type(model).__name__} cannot be compressed: {REFUSED[kind]}. Allowed are models "
            f"whose decoder reads visual tokens in its own sequence: {_names()}."
        )
    for family in FAMILIES:
        if kind in family.model_types and (family.certified or allow_uncertified):
            return family
    if not GENERIC.visual_ids(model.config):
        raise UncertifiedModelError(
            f"the configuration of {type(model).__name__} names no image or video token id, so it "
            "reads text only, or its visual tokens cannot be found; allowed are models that name "
            f"one. Certified are {_names()}."
        )
    if allow_uncertified:
        return GENERIC
    raise UncertifiedModelError(
        f"nobody certified model type {kind!r}; the closest certified family is "
        f"{closest(kind).name}. Certified are {_names()}; allow_uncertified=True runs it at your "
        "own risk, with images and grids guessed from lengths."
    )


def closest(kind: str) -> Family:
    """The certified family whose model type looks most like `kind`."""

    def likeness(family: Family) -> float:
        return max(
            difflib.SequenceMatcher(None, kind, known).ratio() for known in family.model_types
        )

    return max((family for family in FAMILIES if family.certified), key=likeness)


def decoder_of(model: Any) -> nn.Module:
    """The text decoder: the module that holds the blocks as ``layers``."""
    start = model
    if callable(getattr(model, "get_decoder", None)):
        start = model.get_decoder() or model
    seen: list[Any] = [start, model]
    for module in seen:
        if isinstance(getattr(module, "layers", None), nn.ModuleList):
            found: nn.Module = module
            return found
        names = ("language_model", "text_model", "decoder", "model")
        nested = [getattr(module, name, None) for name in names]
        seen += [part for part in nested if part is not None and all(part is not s for s in seen)]
        if len(seen) > 32:
            break
    raise UnsupportedError(
        f"{type(model).__name__} has no text decoder with a list of layers; allowed are decoders "
        "found through get_decoder(), language_model, text_model or model."
    )


def layers_of(model: Any) -> nn.ModuleList:
    """The blocks of the text decoder."""
    layers = decoder_of(model).layers
    assert isinstance(layers, nn.ModuleList)
    return layers


def _names() -> str:
    return ", ".join(family.name for family in FAMILIES if family.certified)
