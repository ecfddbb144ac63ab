"""Where the vision towers of the families keep what selection methods read of them.

Two shapes of tower are known: a raster tower (Qwen) runs over patches of all images in one
sequence, merges groups of patches, and may order them by windows; a square tower (LLaVA) runs over
equal pieces, usually with a class token in front. Methods get one row a visual token.
"""

from __future__ import annotations

import inspect
import sys
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from vicoset.errors import UnsupportedError
from vicoset.models import anyres
from vicoset.models.features import argument, owner_of
from vicoset.models.layout import PromptInputs

RASTER = ("qwen2_vl", "qwen2_5_vl", "qwen3_vl", "qwen3_vl_moe")
SQUARE = ("llava", "llava_next")


@dataclass(frozen=True)
class TowerFacts:
    """The modules of a tower that are read.

    Attributes:
        tower: called once for all images of a batch.
        attention: the attention module whose queries and keys count.
        outlet: the module whose first input (raster) or output (square) is z.
        unit: patches of a merge group; 1 where nothing is merged.
        raster: which of the two shapes.
        project: z [M, dz] -> [M, d]; None for raster towers, whose merger takes whole groups.
    """

    tower: nn.Module
    attention: nn.Module
    outlet: nn.Module
    unit: int
    raster: bool
    project: Callable[[Tensor], Tensor] | None


def facts_of(model: Any) -> TowerFacts:
    """The tower of a model, or an error that names the families whose towers are known."""
    kind = str(getattr(model.config, "model_type", ""))
    owner = owner_of(model)
    if kind in RASTER:
        return _raster(owner.visual)
    vision = getattr(getattr(model.config, "vision_config", None), "model_type", None)
    if kind in SQUARE and vision != "pixtral":
        return _square(model, owner)
    tower = f" with a {vision} tower" if vision else ""
    raise UnsupportedError(
        f"{type(model).__name__}{tower} has a vision tower that nobody has mapped; methods that "
        f"read it run on {', '.join((*RASTER, *SQUARE))} (CLIP or SigLIP towers). Choose a method "
        "that reads the decoder only."
    )


def _raster(visual: Any) -> TowerFacts:
    config = visual.config
    full = getattr(config, "fullatt_block_indexes", None)
    last = max(full) if full else len(visual.blocks) - 1
    unit = int(config.spatial_merge_size) ** 2
    return TowerFacts(visual, visual.blocks[last].attn, visual.merger, unit, True, None)


def _square(model: Any, owner: Any) -> TowerFacts:
    tower = owner.vision_tower
    layers = getattr(tower, "vision_model", tower).encoder.layers
    selected = model.config.vision_feature_layer
    if not isinstance(selected, int):
        raise UnsupportedError(
            f"{type(model).__name__} reads the vision layers {selected} together; methods that "
            "read the tower know models with one selected layer. Choose a decoder-side method."
        )
    layer = layers[len(layers) + selected if selected < 0 else selected - 1]
    projector: Callable[[Tensor], Tensor] = owner.multi_modal_projector
    return TowerFacts(tower, layer.self_attn, layer, 1, False, projector)


def window_order(visual: Any, grids: Tensor) -> Tensor | None:
    """[G] place of every merge group (raster order) in the tower's own order; None if the same.

    Args:
        visual: a raster tower.
        grids: [images, 3] frames, height and width in patches.
    """
    config = visual.config
    if getattr(config, "fullatt_block_indexes", None) is None:
        return None
    own = getattr(visual, "get_window_index", None)
    if callable(own):
        index: Any = own(grids)[0]
    else:
        function = getattr(sys.modules[type(visual).__module__], "get_vision_window_index", None)
        if function is None:
            raise UnsupportedError(
                f"{type(visual).__name__} orders its patches by windows and this transformers does "
                "not say how; known are get_window_index and get_vision_window_index. Use a "
                "supported version (docs/models.md)."
            )
        known = inspect.signature(function).parameters
        options = {
            "spatial_merge_size": config.spatial_merge_size,
            "window_size": config.window_size,
            "patch_size": config.patch_size,
        }
        index = function(grids, **{name: options[name] for name in options if name in known})[0]
    return torch.argsort(torch.as_tensor(index))


def has_class_token(model: Any, kwargs: dict[str, Any]) -> bool:
    """Whether a square tower's first state is a class token that the projector never sees."""
    name = "vision_feature_select_strategy"
    given = argument(model, kwargs, name)
    return bool((given or getattr(model.config, name)) == "default")


def class_width(model: Any) -> int | None:
    """Width of a tower's states where a class token stands in front of them; None elsewhere.

    Args:
        model: of any family.
    """
    if str(getattr(model.config, "model_type", "")) not in SQUARE or not has_class_token(model, {}):
        return None
    width = getattr(model.config.vision_config, "hidden_size", None)
    return None if width is None else int(width)


def token_index(inputs: PromptInputs, patches: int, pieces: int) -> Tensor:
    """[tokens of the batch] which patch of all pieces, laid end to end, each visual token is.

    Args:
        inputs: the prompt of a model with a square tower.
        patches: of one piece.
        pieces: of the batch.
    """
    if inputs.model.config.model_type != "llava_next":
        return torch.arange(pieces * patches)
    return torch.cat([image[~image.isnan()] for image in anyres.sources(inputs)]).long()
