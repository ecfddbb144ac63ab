"""What training minimises: answers; and, before pictures come in, help over a plateau."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor

from vicoset.tiny.train.forward import Looks
from vicoset.tiny.train.pages import NOTHING, SIGNS, TASKS, Batch, cells_at

NEAR = 12.0  # places are compared in twelfths of a page


def answer_loss(logits: Tensor, batch: Batch) -> tuple[Tensor, Tensor]:
    """Cross-entropy, every question with the same weight; and [B, Q] which answers are right.

    Args:
        logits: [B, Q, S, vocabulary].
        batch: its labels.
    """
    given = batch.labels != NOTHING
    chosen, wanted = logits[given].float(), batch.labels[given]
    weight = (1 / given.sum(-1, keepdim=True)).expand_as(given)[given]
    loss = (F.cross_entropy(chosen, wanted, reduction="none") * weight).sum()
    right = torch.ones_like(given)
    right[given] = chosen.argmax(-1) == wanted
    return loss / given.shape[0] / given.shape[1], right.all(-1)


def context_loss(states: Tensor, probe: Tensor, batch: Batch) -> Tensor:
    """Cross-entropy of the words that belong to a cell, read off its state by linear probes.

    Args:
        states: [B, N, d] that enter a block.
        probe: [2, vocabulary, d].
        batch: its context.
    """
    total = states.new_zeros((), dtype=torch.float32)
    for number in range(2):
        wanted = batch.context[..., number]
        known = wanted != NOTHING
        if known.any():
            total = total + F.cross_entropy(_probed(states[known], probe[number]), wanted[known])
    return total


def place_loss(states: Tensor, probe: Tensor, batch: Batch, page: int) -> Tensor:
    """How far off the rows and columns of objects are, read off their states by linear probes.

    Args:
        states: [B, N, d] that enter a block.
        probe: [2, d].
        batch: its signs and offsets.
        page: cells per side of the page that the model knows.
    """
    side = round(states.shape[1] ** 0.5)
    objects = batch.signs[..., 1] != SIGNS
    if not objects.any():
        return states.new_zeros((), dtype=torch.float32)
    there = torch.stack(cells_at(side, batch.offsets), -1)
    wanted = there[objects] / page - 0.5
    return F.smooth_l1_loss(NEAR * _probed(states[objects], probe), NEAR * wanted)


def relation_loss(
    mentioned: Tensor, deciding: Tensor, probe: Tensor, batch: Batch, page: int
) -> Tensor:
    """How far off the places of two objects are where a question names them, and their difference.

    Args:
        mentioned: [B, Q, S, d] states that enter a block; the places are read off the mentions.
        deciding: likewise of a later block; the difference is read off the answer's position.
        probe: [4, d].
        batch: its evidence.
        page: cells per side of the page that the model knows.
    """
    asked = batch.tasks == TASKS.index("relation")
    if not asked.any():
        return mentioned.new_zeros((), dtype=torch.float32)
    about = batch.evidence[..., 0][asked]  # [R, S], two of each row known
    cells = about[about != NOTHING].view(-1, 2)
    side = round(batch.signs.shape[1] ** 0.5)
    places = torch.stack([cells // side, cells % side], -1)  # [R, 2, 2], within the picture
    offsets = batch.offsets[:, None].expand(-1, batch.tasks.shape[1], -1)[asked]
    wanted = (places + offsets[:, None]) / page - 0.5
    found = _probed(mentioned[asked][about != NOTHING], probe[:2]).view_as(wanted)
    first = (batch.labels[asked] != NOTHING).int().argmax(-1)
    at = deciding[asked][torch.arange(len(first)), first]
    apart = _probed(at, probe[2:])
    return F.smooth_l1_loss(NEAR * found, NEAR * wanted) + F.smooth_l1_loss(
        NEAR * apart, NEAR * (wanted[:, 0] - wanted[:, 1])
    )


def _probed(states: Tensor, probe: Tensor) -> Tensor:
    return F.linear(F.rms_norm(states, states.shape[-1:]), probe.to(states.dtype)).float()


def pointer_loss(looks: Looks, batch: Batch) -> Tensor:
    """How little the chosen heads see of the cells that a token is about.

    Args:
        looks: with what they see.
        batch: its evidence.
    """
    known = batch.evidence != NOTHING  # [B, Q, S, 5]
    cells, some = batch.evidence.clamp(min=0), known.any(-1)
    total = torch.zeros(())
    for (kind, _), seen in looks.items():
        if kind == "seen":
            share = (seen.gather(3, cells).float() + 1e-4).log() * known
            total = total - (share.sum(-1) / known.sum(-1).clamp(min=1))[some].mean()
    return total
