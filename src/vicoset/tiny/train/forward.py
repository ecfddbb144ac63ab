"""One forward for many questions about a picture, equal to the stock model's for each of them.

A picture is read once, as the prefix of all its questions. Every question stands in a slot of its
own that sees the prefix and itself, at the positions which it would have alone. The weights come
as a dictionary, so that they can be bfloat16 copies of the ones that are being trained.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor
from transformers.utils.constants import OPENAI_CLIP_MEAN, OPENAI_CLIP_STD

from vicoset.tiny import words
from vicoset.tiny.bench.item import RESOLUTIONS
from vicoset.tiny.train.pages import FOOT, HEAD, Batch, cells_at

Weights = Mapping[str, Tensor]
Looks = dict[tuple[str, int], Tensor]
ROWS = 432  # queries per piece of the prefix's causal attention


def answer_logits(
    model: Any,
    family: str,
    weights: Weights,
    batch: Batch,
    visual: Tensor,
    looks: Looks | None = None,
    heads: Mapping[int, int] | None = None,
) -> Tensor:
    """[B, Q, S, vocabulary] what comes after every token of the slots.

    Args:
        model: of the stock class; its configuration and rotary embedding are used.
        family: "qwen" or "llava".
        weights: of the model, by name.
        batch: its tokens and offsets.
        visual: [B, N, d] what the decoder gets for the cells.
        looks: filled with ("states", block) -> [B, N, d] visual states that enter the block,
            ("slots", block) -> [B, Q, S, d] the slots' states that do, and
            ("seen", block) -> [B, Q, S, N] what a head of the block sees of the cells.
        heads: block -> head, for ``looks``.
    """
    table = weights["model.language_model.embed_tokens.weight"]
    head, foot = (torch.tensor([words.number_of(w) for w in t[family]]) for t in (HEAD, FOOT))
    b, q, s = batch.tokens.shape
    parts = [table[head].expand(b, -1, -1), visual, table[foot].expand(b, -1, -1)]
    prefix = sum(part.shape[1] for part in parts)
    x = torch.cat([*parts, table[batch.tokens].flatten(1, 2)], 1)
    rotary = model.model.language_model.rotary_emb
    cos, sin = rotary(x, positions(family, batch, visual.shape[1]))
    cos, sin = cos[:, None].to(x.dtype), sin[:, None].to(x.dtype)
    config = model.config.text_config
    for number in range(config.num_hidden_layers):
        name = f"model.language_model.layers.{number}."
        own = {key[len(name) :]: value for key, value in weights.items() if key.startswith(name)}
        if looks is not None:
            looks["states", number] = x[:, len(head) : len(head) + visual.shape[1]]
            looks["slots", number] = x[:, prefix:].view(b, q, s, -1)
        x, seen = _block(x, own, cos, sin, prefix, q, config)
        if looks is not None and heads and number in heads:
            chosen = seen.flatten(1, 2)[:, heads[number]]
            looks["seen", number] = chosen[..., len(head) : len(head) + visual.shape[1]]
    x = _norm(x[:, prefix:], weights["model.language_model.norm.weight"])
    return F.linear(x, weights["lm_head.weight"]).view(b, q, s, -1)


def positions(family: str, batch: Batch, visual: int) -> Tensor:
    """Positions of prefix and slots: [3, B, P + Q S] of Qwen2.5-VL, [B, P + Q S] of LLaVA.

    Args:
        family: "qwen" or "llava".
        batch: its slots and offsets.
        visual: N.
    """
    side, page = round(visual**0.5), RESOLUTIONS[family].side
    head, foot = len(HEAD[family]), len(FOOT[family])
    b, q, s = batch.tokens.shape
    y, x = cells_at(side, batch.offsets)
    before, room = torch.arange(head), page if family == "qwen" else page * page
    after = torch.arange(foot) + head + room
    slots = (torch.arange(s) + head + room + foot).repeat(q)

    def line(between: Tensor) -> Tensor:
        text = (before, after, slots)
        start, end, asked = (part.expand(b, -1) for part in text)
        return torch.cat([start, between.expand(b, -1) + head, end, asked], 1)

    if family == "llava":
        return line(y * page + x)
    return torch.stack([line(torch.zeros_like(y)), line(y), line(x)])


def tower(model: Any, family: str, weights: Weights, pages: Tensor, offsets: Tensor) -> Tensor:
    """[B, N, d] what the decoder gets for pictures.

    Args:
        model: of the stock class.
        family: "qwen" or "llava".
        weights: of the model, by name.
        pages: [B, side, side, 3] uint8.
        offsets: [B, 2] cells above and before each, which Qwen2.5-VL's tower does not ask for.
    """
    if family == "qwen":
        return tower_of_qwen(model, weights, pages)
    return tower_of_llava(model, weights, pages, offsets)


def tower_of_qwen(model: Any, weights: Weights, pages: Tensor, attend_all: bool = True) -> Tensor:
    """[B, N, d] what the tower and the merger of Qwen2.5-VL make of pictures of whole windows.

    Args:
        model: of the stock class.
        weights: of the model, by name.
        pages: [B, side, side, 3] uint8; the side is a multiple of the window's 112 pixels.
        attend_all: let the last block see the whole picture, as the stock tower does.
    """
    config = model.config.vision_config
    b, side = pages.shape[0], pages.shape[1] // 28
    windows, heads = side // 4, config.num_heads
    flat = patches_of_qwen(pages)  # [B, windows, 64, 3 * 14 * 14]: cells of a window, four patches
    dtype = weights["model.visual.merger.ln_q.weight"].dtype
    kernel = weights["model.visual.patch_embed.proj.weight"]
    x = F.linear(flat.to(dtype), kernel.sum(2).flatten(1))  # both frames of a still are the same
    cos, sin = _tower_rotary(side, config, dtype)
    for number in range(config.depth):
        name = f"model.visual.blocks.{number}."
        own = {key[len(name) :]: value for key, value in weights.items() if key.startswith(name)}
        whole = attend_all and number in config.fullatt_block_indexes
        x = x.view(b, 1 if whole else windows * windows, -1, x.shape[-1])
        h = _norm(x, own["norm1.weight"])
        qkv = F.linear(h, own["attn.qkv.weight"], own["attn.qkv.bias"])
        q, k, v = split(qkv, -1, (3, heads, -1)).permute(3, 0, 1, 4, 2, 5).unbind(0)
        at = [
            part.view(1, x.shape[1] if whole else windows**2, 1, -1, cos.shape[-1])
            for part in (cos, sin)
        ]
        q, k = _turn(q, *at), _turn(k, *at)
        scale = q.shape[-1] ** -0.5
        a = torch.softmax((q * scale) @ k.transpose(-1, -2), -1) @ v
        a = a.transpose(2, 3).flatten(3)
        x = x + F.linear(a, own["attn.proj.weight"], own["attn.proj.bias"])
        x = x + _gated(_norm(x, own["norm2.weight"]), own)
    x = _norm(x, weights["model.visual.merger.ln_q.weight"]).reshape(b, windows, windows, 4, 4, -1)
    x = x.transpose(2, 3).reshape(b, side * side, -1)  # windows back to rows of cells
    merge = "model.visual.merger.mlp."
    x = F.gelu(F.linear(x, weights[merge + "0.weight"], weights[merge + "0.bias"]))
    return F.linear(x, weights[merge + "2.weight"], weights[merge + "2.bias"])


def patches_of_qwen(pages: Tensor) -> Tensor:
    """[B, windows, 64, 588] normalised patches, in the order of windows, cells and patches.

    Args:
        pages: [B, side, side, 3] uint8.
    """
    x = normalised(pages)
    b, _, side, _ = x.shape
    w = side // 112
    x = x.view(b, 3, w, 4, 2, 14, w, 4, 2, 14)
    # window row, window column, cell row, cell column, patch row, patch column, channel, y, x
    return x.permute(0, 2, 6, 3, 7, 4, 8, 1, 5, 9).reshape(b, w * w, 64, 588)


def normalised(pages: Tensor) -> Tensor:
    """[B, 3, side, side] as the stock image processors scale pixels.

    Args:
        pages: [B, side, side, 3] uint8.
    """
    mean, deviation = (
        torch.tensor(v).view(1, 3, 1, 1) for v in (OPENAI_CLIP_MEAN, OPENAI_CLIP_STD)
    )
    return (pages.permute(0, 3, 1, 2).float() / 255 - mean) / deviation


def tower_of_llava(model: Any, weights: Weights, pages: Tensor, offsets: Tensor) -> Tensor:
    """[B, N, d] what the CLIP tower and the projector of LLaVA make of a part of a page.

    Args:
        model: of the stock class.
        weights: of the model, by name.
        pages: [B, side, side, 3] uint8.
        offsets: [B, 2] cells above and before the part.
    """
    config, name = model.config.vision_config, "model.vision_tower."
    b, side = pages.shape[0], pages.shape[1] // 14
    kernel = weights[name + "embeddings.patch_embedding.weight"]
    x = F.conv2d(normalised(pages).to(kernel.dtype), kernel, stride=14).flatten(2).transpose(1, 2)
    first = weights[name + "embeddings.class_embedding"].expand(b, 1, -1)
    place = weights[name + "embeddings.position_embedding.weight"]
    row, column = cells_at(side, offsets)
    at = row * (config.image_size // 14) + column
    x = torch.cat([first + place[:1], x + place[1 + at]], 1)
    x = _layer(x, weights, name + "pre_layrnorm")
    for number in range(config.num_hidden_layers + model.config.vision_feature_layer + 1):
        block = f"{name}encoder.layers.{number}."
        h = _layer(x, weights, block + "layer_norm1")
        q, k, v = (
            split(
                _dense(h, weights, f"{block}self_attn.{part}_proj"),
                -1,
                (config.num_attention_heads, -1),
            ).transpose(1, 2)
            for part in "qkv"
        )
        a = torch.softmax((q * q.shape[-1] ** -0.5) @ k.transpose(-1, -2), -1) @ v
        x = x + _dense(a.transpose(1, 2).flatten(2), weights, block + "self_attn.out_proj")
        h = _dense(_layer(x, weights, block + "layer_norm2"), weights, block + "mlp.fc1")
        x = x + _dense(h * torch.sigmoid(1.702 * h), weights, block + "mlp.fc2")
    x = F.gelu(_dense(x[:, 1:], weights, "model.multi_modal_projector.linear_1"))
    return _dense(x, weights, "model.multi_modal_projector.linear_2")


def split(x: Tensor, axis: int, sizes: tuple[int, ...]) -> Tensor:
    """An axis in several, as ``Tensor.unflatten`` does, with types.

    Args:
        x: any.
        axis: to split.
        sizes: of the new ones; -1 for what is left.
    """
    found: Tensor = x.unflatten(axis, sizes)  # type: ignore[no-untyped-call]
    return found


def _dense(x: Tensor, weights: Weights, name: str) -> Tensor:
    return F.linear(x, weights[name + ".weight"], weights[name + ".bias"])


def _layer(x: Tensor, weights: Weights, name: str) -> Tensor:
    return F.layer_norm(x, x.shape[-1:], weights[name + ".weight"], weights[name + ".bias"], 1e-5)


def _block(
    x: Tensor, own: Weights, cos: Tensor, sin: Tensor, prefix: int, slots: int, config: Any
) -> tuple[Tensor, Tensor]:
    """One block of the decoder, and what its heads see from the slots."""
    heads, groups = config.num_attention_heads, config.num_key_value_heads
    h = _norm(x, own["input_layernorm.weight"])
    parts = []
    for part, count in (("q", heads), ("k", groups), ("v", groups)):
        name = f"self_attn.{part}_proj."
        found = F.linear(h, own[name + "weight"], own.get(name + "bias"))
        parts.append(split(found, -1, (count, -1)).transpose(1, 2))
    q, k, v = parts
    scale = q.shape[-1] ** -0.5
    a, seen = _attend(_turn(q, cos, sin) * scale, _turn(k, cos, sin), v, prefix, slots)
    x = x + F.linear(a, own["self_attn.o_proj.weight"])
    return x + _gated(_norm(x, own["post_attention_layernorm.weight"]), own), seen


def _attend(q: Tensor, k: Tensor, v: Tensor, prefix: int, slots: int) -> tuple[Tensor, Tensor]:
    """[B, P + Q S, H dh]: causal over the prefix; every slot sees the prefix and itself.

    Gives [B, G, H/G, Q, S, P + S] as well: the softmax of the slots' rows.

    Args:
        q: [B, H, P + Q S, dh], scaled.
        k: [B, G, P + Q S, dh].
        v: likewise.
        prefix: P.
        slots: Q.
    """
    b, heads, length, width = q.shape
    groups = k.shape[1]
    q = q.reshape(b, groups, heads // groups, length, width)
    outputs = []
    for start in range(0, prefix, ROWS):
        end = min(start + ROWS, prefix)
        rows = q[:, :, :, start:end].flatten(2, 3)  # [B, G, H/G rows, dh]
        scores = rows @ k[:, :, :end].transpose(-1, -2)
        later = torch.ones(end - start, end, dtype=torch.bool).triu(1 + start)
        scores = split(scores, 2, (-1, end - start)).masked_fill(later, float("-inf"))
        found = torch.softmax(scores, -1).flatten(2, 3) @ v[:, :, :end]
        outputs.append(split(found, 2, (-1, end - start)))
    rows = split(q[:, :, :, prefix:], 3, (slots, -1))  # [B, G, H/G, Q, S, dh]
    own_k, own_v = (split(part[:, :, prefix:], 2, (slots, -1)) for part in (k, v))
    far = rows.flatten(2, 4) @ k[:, :, :prefix].transpose(-1, -2)
    near = torch.einsum("bghqsd,bgqtd->bghqst", rows, own_k)
    size = near.shape[-1]
    near = near.masked_fill(torch.ones(size, size, dtype=torch.bool).triu(1), float("-inf"))
    seen = torch.softmax(torch.cat([far.view(*near.shape[:-1], prefix), near], -1), -1)
    found = (seen[..., :prefix].flatten(2, 4) @ v[:, :, :prefix]).view(rows.shape)
    found = found + torch.einsum("bghqst,bgqtd->bghqsd", seen[..., prefix:], own_v)
    outputs.append(found.flatten(3, 4))
    whole = torch.cat(outputs, 3).reshape(b, heads, length, width)
    return whole.transpose(1, 2).flatten(2), seen


def _gated(h: Tensor, own: Weights) -> Tensor:
    gate, up, down = (
        (own[f"mlp.{n}_proj.weight"], own.get(f"mlp.{n}_proj.bias")) for n in ("gate", "up", "down")
    )
    return F.linear(F.silu(F.linear(h, *gate)) * F.linear(h, *up), *down)


def _norm(x: Tensor, weight: Tensor) -> Tensor:
    return F.rms_norm(x, x.shape[-1:], weight, 1e-6)


def _turn(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    half = x.shape[-1] // 2
    return x * cos + torch.cat([-x[..., half:], x[..., :half]], -1) * sin


def _tower_rotary(side: int, config: Any, dtype: torch.dtype) -> tuple[Tensor, Tensor]:
    """cos and sin [windows ** 2 * 64, dh] of the tower's patches, in the order of the windows."""
    width = config.hidden_size // config.num_heads
    frequency = 1.0 / (10_000.0 ** (torch.arange(0, width // 2, 2).float() / (width // 2)))
    count = side // 4
    place = torch.arange(side * 2)
    grid = torch.stack(torch.meshgrid(place, place, indexing="ij"), -1)
    grid = grid.view(count, 4, 2, count, 4, 2, 2).permute(0, 3, 1, 4, 2, 5, 6).reshape(-1, 2)
    angle = (grid[:, :, None] * frequency).flatten(1)
    angle = torch.cat([angle, angle], -1)
    return angle.cos().to(dtype), angle.sin().to(dtype)
