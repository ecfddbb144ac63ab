"""Which rows of the sequence a method lets speak, beside the prompt rows that every scene lists."""

from __future__ import annotations

import torch
from torch import Tensor

from vicoset.methods.base import Scene


def from_the_image_on(scene: Scene) -> Tensor:
    """[T] every row from the first visual token to the prompt-terminal one.

    Rows before it see no visual token. Prompts are padded on the left, so none of these is padding.

    Args:
        scene: the scene.
    """
    return _between(scene.visual[0], scene.queries[-1])


def behind_the_images(scene: Scene) -> Tensor:
    """[T] every row behind the last visual token, the prompt-terminal one included.

    Where the prompt ends with an image: the scene's prompt rows.

    Args:
        scene: the scene.
    """
    rows = _between(scene.visual[-1] + 1, scene.queries[-1])
    return rows if len(rows) else scene.queries


def _between(first: Tensor, last: Tensor) -> Tensor:
    low, high = torch.stack([first, last]).tolist()  # one device read
    return torch.arange(low, max(low, high + 1), device=first.device)
