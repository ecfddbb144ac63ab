"""A synthetic population of the size and shape that a 7B decoder has at its boundary.

States are smooth fields plus patch noise. Attention is peaked: all heads and queries share a few
salient tokens, so that grounded clients saturate early, as the paper measured on real models
(tab:cond-mechanism: grounded coverage .999 and more at K/N = 128/1,296).
"""

from __future__ import annotations

import math

import torch
from torch import Tensor
from torch.nn import functional as F

from vicoset.core.banks import grid_coordinates
from vicoset.core.coreset import Population, Reading
from vicoset.core.messages import message_coordinates, output_probe, probe, visual_attention

HEADS, KEY_HEADS, WIDTH, HEAD_WIDTH, QUERIES = 28, 4, 3584, 128, 30
TEXT_BEFORE = 15


def field(side: int, channels: int, coarse: int, random: torch.Generator) -> Tensor:
    """A smooth random field on a side x side grid, [side * side, channels]."""
    knots = torch.randn(1, channels, coarse, coarse, generator=random)
    grid = F.interpolate(knots, (side, side), mode="bicubic", align_corners=False)
    return grid[0].flatten(1).t().contiguous()


class Block:
    """Queries, keys, values and the output projection of one block."""

    def __init__(self, side: int, random: torch.Generator) -> None:
        tokens = side * side
        self.visual = torch.arange(TEXT_BEFORE, TEXT_BEFORE + tokens)
        length = TEXT_BEFORE + tokens + QUERIES
        self.rows = torch.arange(length - QUERIES, length)
        direction = F.normalize(torch.randn(KEY_HEADS, 1, HEAD_WIDTH, generator=random), dim=-1)
        keys = torch.randn(KEY_HEADS, length, HEAD_WIDTH, generator=random)
        salience = 3.0 * torch.randn(1, length, 1, generator=random)
        self.keys = keys + math.sqrt(HEAD_WIDTH) * salience * direction
        own = torch.randn(HEADS, QUERIES, HEAD_WIDTH, generator=random)
        shared = math.sqrt(HEAD_WIDTH) * direction.repeat_interleave(HEADS // KEY_HEADS, 0)
        self.queries = own + 0.12 * shared
        self.values = torch.randn(KEY_HEADS, tokens, HEAD_WIDTH, generator=random)
        weight = torch.randn(WIDTH, HEADS * HEAD_WIDTH, generator=random) / math.sqrt(WIDTH)
        self.output = output_probe(weight, probe(WIDTH), HEADS)

    def read(self) -> Reading:
        """The timed part: the attention slice and the probed values."""
        attention = visual_attention(
            self.queries, self.keys, self.rows, self.visual, scaling=HEAD_WIDTH**-0.5
        )
        return Reading(attention, message_coordinates(self.values, self.output))


def population(side: int, dtype: torch.dtype = torch.bfloat16, seed: int = 0) -> Population:
    """States and coordinates of side * side tokens of one image."""
    random = torch.Generator().manual_seed(seed)
    states = field(side, WIDTH, 6, random)
    states += 0.7 * field(side, WIDTH, 12, random)
    states += 0.5 * field(side, WIDTH, side, random)
    ids = torch.zeros(side * side, dtype=torch.long)
    return Population(states.to(dtype), grid_coordinates(side, side), ids)


def blocks(side: int, count: int = 3, seed: int = 1) -> list[Block]:
    """The current block and its history."""
    random = torch.Generator().manual_seed(seed)
    return [Block(side, random) for _ in range(count)]
