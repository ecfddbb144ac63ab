"""Where training starts: random weights, a few of them arranged so that looking around is easy."""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor

from vicoset.tiny import configs
from vicoset.tiny.bench.item import RESOLUTIONS
from vicoset.tiny.train.pages import SIGNS

SPREAD = 0.3  # standard deviation of an embedding's entries
REACH = 2.5  # size of the biases that look at a neighbour
MATCHING, SLOW = (3, 4, 5, 6), 20  # blocks; the first pair of slow angles
# Per block and head of Qwen2.5-VL: (rows, columns) to look at, None for any.
LOOKS = (
    ((0, -1), (0, None)),
    ((0, -2), (None, 0)),
    ((0, -3), (0, None)),
    ((0, -1), (None, 0)),
)


def new_model(family: str, seed: int) -> Any:
    """A model of a family before its first step, float32.

    Args:
        family: one of ``configs.FAMILIES``.
        seed: of all its weights.
    """
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        model = configs.empty(family)
        for name, value in model.named_parameters():
            if value.dim() >= 2:
                value.data.normal_(0, fan_in(value) ** -0.5)
            if name.endswith(("o_proj.weight", "down_proj.weight", "attn.proj.weight")):
                value.data.mul_(0.5)
        model.model.language_model.embed_tokens.weight.data.normal_(0, SPREAD)
        model.lm_head.weight.data.normal_(0, 0.02)
        _match(model)
        if family == "qwen":
            _look_around(model)
    return model


def fan_in(value: Tensor) -> int:
    """Inputs of a weight's every output."""
    return value[0].numel()


def sign_table(model: Any, family: str) -> Tensor:
    """[SIGNS + 1, d] what the decoder is given for a sign: a word's embedding, or a vector.

    The last row, for nothing more, is zero.

    Args:
        model: fresh.
        family: of the model.
    """
    table = model.model.language_model.embed_tokens.weight.data
    more = torch.Generator().manual_seed(9_001)
    extra = torch.randn(SIGNS - len(table), table.shape[1], generator=more) * SPREAD
    return torch.cat([table, extra, torch.zeros(1, table.shape[1])])


def place_table(family: str) -> Tensor:
    """[N, d] what the decoder is given for a cell's place.

    Nothing for Qwen2.5-VL, whose rotary angles know rows and columns. A LLaVA decoder counts tokens
    in one row, so rows and columns come as waves of many lengths.

    Args:
        family: one of ``configs.FAMILIES``.
    """
    side = RESOLUTIONS[family].side
    if family == "qwen":
        return torch.zeros(side * side, configs.WIDTH)
    quarter = configs.WIDTH // 4
    rate = 0.05 * (40.0 ** (torch.arange(quarter // 2) / (quarter // 2 - 1)))
    wave = torch.arange(side)[:, None] * rate
    line = torch.cat([wave.sin(), wave.cos()], -1) * SPREAD  # [side, quarter]
    nothing = torch.zeros(side, quarter)
    down = torch.cat([line, nothing], -1)[:, None].expand(-1, side, -1)
    across = torch.cat([nothing, line], -1)[None].expand(side, -1, -1)
    mixed = torch.cat([down + across, torch.zeros(side, side, 2 * quarter)], -1)
    turn = torch.linalg.qr(
        torch.randn(configs.WIDTH, configs.WIDTH, generator=torch.Generator().manual_seed(9_002))
    )[0]
    found: Tensor = (mixed @ turn * math.sqrt(2)).view(side * side, -1)
    return found


def _match(model: Any) -> None:
    """Queries and keys of some heads begin alike, where rotary angles hardly turn.

    So a state first looks at those that resemble it, near or far.
    """
    text = model.config.text_config
    width = text.hidden_size // text.num_attention_heads
    slow = torch.arange(width) % (width // 2) >= SLOW
    for number in MATCHING:
        attention = model.model.language_model.layers[number].self_attn
        square = torch.randn(text.hidden_size, text.hidden_size)
        rows = torch.linalg.qr(square)[0][: int(slow.sum())]
        key = attention.k_proj.weight.data.view(-1, width, text.hidden_size)
        query = attention.q_proj.weight.data.view(len(key), -1, width, text.hidden_size)
        key[-1, slow] = rows
        query[-1, :, slow] = rows


def _look_around(model: Any) -> None:
    """Biases with which heads of the first blocks see a neighbour, a row or a column.

    A query's bias is the key's turned by the offset, so their product peaks there. It is only where
    training starts: it may move them as it likes.
    """
    text = model.config.text_config
    width = text.hidden_size // text.num_attention_heads
    half = width // 2
    rate = configs.THETA ** (-torch.arange(half) / half)
    _, rows, _ = configs.SECTIONS
    is_row = torch.arange(half) < 1 + rows
    per_group = text.num_attention_heads // text.num_key_value_heads
    for number, looks in enumerate(LOOKS):
        attention = model.model.language_model.layers[number].self_attn
        for head, (down, across) in enumerate(looks):
            group = attention.k_proj.bias.data.view(-1, width)[head]
            group[:half], group[half:] = REACH, 0.0
            group[0] = 0.0  # the pair of the temporal axis
            offset = torch.where(is_row, float(down or 0), float(across or 0))
            seen = torch.where(is_row, float(down is not None), float(across is not None))
            seen[0] = 0.0
            query = attention.q_proj.bias.data.view(-1, width)[head * per_group]
            # (R(q) query) . (R(k) key) peaks where k - q is the offset
            query[:half] = REACH * seen * torch.cos(rate * offset)
            query[half:] = REACH * seen * torch.sin(rate * offset)
