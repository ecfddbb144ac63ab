"""A synthetic page: visual states with evidence on them, and three blocks that read it.

The states imitate what is known of boundary states: a common direction, smooth regions, small
patches that differ from their surroundings, exact repetitions. Keys and values are linear maps of
the RMS-normalised states, as in a decoder block. Queries are drawn, not computed from text: each
points to the patch that its head and row are meant to read. There is no position encoding.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor

from vicoset.core.banks import grid_coordinates
from vicoset.core.coreset import Population, Reading
from vicoset.core.messages import (
    message_coordinates,
    output_probe,
    probe,
    query_positions,
    visual_attention,
)

WIDTH, HEADS, KEY_HEADS, HEAD_WIDTH = 128, 8, 4, 32
BEFORE, AFTER = 8, 6  # text tokens before and after the image
GRIDS = (12, 48)  # smallest and largest side of the page
DTYPE = torch.float64


class Patch(NamedTuple):
    """A rectangle of evidence in thirty-sixths of the page, and whether the prompt reads it."""

    name: str
    top: int
    left: int
    height: int
    width: int
    read: bool


PATCHES = (
    Patch("title", 3, 6, 2, 12, False),
    Patch("number", 4, 26, 2, 5, True),
    Patch("name", 9, 4, 2, 7, True),
    Patch("date", 9, 22, 2, 6, True),
    Patch("stamp", 16, 3, 4, 4, False),
    Patch("total", 27, 24, 2, 7, True),
    Patch("note", 22, 10, 2, 9, False),
    Patch("stamp again", 29, 5, 4, 4, False),  # exact copies of the states of "stamp"
)
_READ = [number for number, patch in enumerate(PATCHES) if patch.read]
_STAMP, _COPY = 4, 7
# What the eight heads do: five read patches sharply, two look broadly, one rests on the first token
_GAIN = torch.tensor([11.0, 10.0, 12.0, 9.5, 10.5, 2.0, 1.0, 0.5], dtype=DTYPE)
_REST = torch.tensor([6.0, 5.0, 7.0, 5.0, 6.0, 3.0, 3.0, 12.0], dtype=DTYPE)


class Block(NamedTuple):
    """One decoder block's view of the sequence: its input, queries and projections.

    Attributes:
        states: [L, d] input states, text and image.
        queries: q [H, T, dh].
        key: [Hkv, dh, d].
        value: [Hkv, dh, d].
        output: [d, H*dh].
    """

    states: Tensor
    queries: Tensor
    key: Tensor
    value: Tensor
    output: Tensor


@dataclass(frozen=True)
class Page:
    """The page and its three blocks.

    Attributes:
        grid: tokens per side.
        population: the visual tokens at the boundary.
        patch: [N] number of the patch a token lies in, -1 for none.
        visual: [N] sequence indices of the visual tokens.
        positions: [T] sequence indices of the prompt rows that read.
        blocks: the current block first, then the two before it in ascending order.
        readings: how each of them reads the page.
    """

    grid: int
    population: Population
    patch: Tensor
    visual: Tensor
    positions: Tensor
    blocks: tuple[Block, ...]
    readings: tuple[Reading, ...]


def rms_norm(states: Tensor) -> Tensor:
    """N(h) = h / rms(h), row by row; the blocks here have no gain."""
    return states / states.square().mean(-1, keepdim=True).sqrt()


def draw_page(grid: int = 36, seed: int = 0) -> Page:
    """Draw a page of ``grid`` x ``grid`` visual tokens; everything follows from the seed."""
    random = torch.Generator(device="cpu").manual_seed(seed)
    patch = _layout(grid)
    coordinates = grid_coordinates(grid, grid, dtype=DTYPE)
    visual_states = _states(grid, patch, coordinates, random)
    tokens = grid * grid
    text = _normal(random, BEFORE + AFTER, WIDTH)
    text *= visual_states.norm(dim=1).mean() / math.sqrt(WIDTH)
    boundary = torch.cat([text[:BEFORE], visual_states, text[BEFORE:]])
    visual = torch.arange(BEFORE, BEFORE + tokens)
    after = torch.arange(BEFORE + tokens, BEFORE + tokens + AFTER)
    positions = query_positions(torch.cat([torch.arange(BEFORE), after]), visual).positions

    # The boundary is the sum of what earlier blocks wrote: going back takes those updates away.
    inputs = [boundary]
    for _ in range(2):
        update = _normal(random, *boundary.shape) @ _normal(random, WIDTH, WIDTH) / WIDTH
        inputs.append(inputs[-1] - 0.2 * inputs[-1].std() * update * math.sqrt(WIDTH))
    order = [inputs[0], inputs[2], inputs[1]]
    blocks = tuple(
        _block(states, patch, visual, shift, random) for shift, states in enumerate(order)
    )
    basis = probe(WIDTH)
    return Page(
        grid=grid,
        population=Population(visual_states, coordinates, torch.zeros(tokens, dtype=torch.long)),
        patch=patch,
        visual=visual,
        positions=positions,
        blocks=blocks,
        readings=tuple(_reading(block, positions, visual, basis) for block in blocks),
    )


def keys(block: Block, states: Tensor) -> Tensor:
    """Keys [Hkv, L, dh] of states [L, d] in this block."""
    return rms_norm(states) @ block.key.mT


def attention(block: Block, states: Tensor, positions: Tensor, visual: Tensor) -> Tensor:
    """A [H, T, N]: how the block's queries read the visual tokens of a sequence of states."""
    return visual_attention(
        block.queries, keys(block, states), positions, visual, scaling=HEAD_WIDTH**-0.5
    )


def _normal(random: torch.Generator, *shape: int) -> Tensor:
    return torch.randn(*shape, generator=random, dtype=DTYPE)


def _layout(grid: int) -> Tensor:
    """[N] patch numbers."""
    place = torch.full((grid, grid), -1)
    for number, patch in enumerate(PATCHES):
        top, left = patch.top * grid // 36, patch.left * grid // 36
        height, width = (max(1, round(n * grid / 36)) for n in (patch.height, patch.width))
        place[top : top + height, left : left + width] = number
    return place.flatten()


def _states(grid: int, patch: Tensor, coordinates: Tensor, random: torch.Generator) -> Tensor:
    """Boundary states [N, d]: common direction + smooth field + patch + the token's own part."""
    directions = _normal(random, 1 + 6 + len(PATCHES), WIDTH) / math.sqrt(WIDTH)
    common, waves, marks = directions[0], directions[1:7], directions[7:]
    own = _normal(random, grid * grid, WIDTH) / math.sqrt(WIDTH)
    frequency, phase = _normal(random, 2, 6) * 2.5, _normal(random, 6) * math.pi
    field = torch.sin(coordinates @ frequency + phase) @ waves * 0.45
    marked = patch >= 0
    states = common + torch.where(
        marked[:, None], 0.3 * field + marks[patch] + 0.55 * own, field + 0.45 * own
    )
    radius = torch.exp(0.15 * _normal(random, grid * grid, 1))
    states = states * radius * math.sqrt(WIDTH)
    edge = torch.zeros(grid, grid, dtype=torch.bool)
    edge[-max(1, grid // 18) :] = True  # a blank strip: one state, many times
    blank = edge.flatten() & ~marked
    states[blank] = states[blank][0]
    source, copy = (patch == _STAMP).nonzero()[:, 0], (patch == _COPY).nonzero()[:, 0]
    shared = min(len(source), len(copy))
    states[copy[:shared]] = states[source[:shared]]
    return states


def _block(
    states: Tensor, patch: Tensor, visual: Tensor, shift: int, random: torch.Generator
) -> Block:
    """Random projections, and queries that point to the patches they are meant to read."""
    key, value = (_normal(random, KEY_HEADS, HEAD_WIDTH, WIDTH) / math.sqrt(WIDTH) for _ in "kv")
    output = _normal(random, WIDTH, HEADS * HEAD_WIDTH) / math.sqrt(HEADS * HEAD_WIDTH)
    seen = rms_norm(states) @ key.mT
    on_page = seen[:, visual]
    middle = on_page.mean(1)
    noise = _normal(random, HEADS, AFTER, HEAD_WIDTH) * 0.6
    queries = torch.empty_like(noise)
    for head in range(HEADS):
        kv = head // (HEADS // KEY_HEADS)
        rest = _unit(seen[kv, 0] - middle[kv])
        for row in range(AFTER):
            number = _READ[(head + row // 2 + shift) % len(_READ)]
            wanted = _unit(on_page[kv, patch == number].mean(0) - middle[kv])
            queries[head, row] = _GAIN[head] * wanted + _REST[head] * rest
    return Block(states, queries + noise, key, value, output)


def _unit(vector: Tensor) -> Tensor:
    length: Tensor = torch.linalg.vector_norm(vector)
    return vector / length


def _reading(block: Block, positions: Tensor, visual: Tensor, basis: Tensor) -> Reading:
    values = rms_norm(block.states[visual]) @ block.value.mT
    return Reading(
        attention=attention(block, block.states, positions, visual),
        messages=message_coordinates(values, output_probe(block.output, basis, HEADS)),
    )
