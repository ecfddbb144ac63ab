"""What two runs of a tiny model really computed, captured by hooks of our own, as NumPy float64."""

import functools
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from tests import oracle
from tests.runtime.helpers import decoder_of, layers_of, model_of, prompt
from tests.zoo_parts import END, IMAGE, START
from vicoset.api import compress
from vicoset.plan import plan_named
from vicoset.runtime.observe import Observer
from vicoset.runtime.prompt import attention_of_block

BLOCKS = range(5)


@dataclass
class Call:
    """One block's attention inputs of a single row."""

    q: np.ndarray  # [H, L, dh]
    k: np.ndarray  # [Hkv, L, dh]
    v: np.ndarray  # [Hkv, L, dh]
    mask: np.ndarray | None
    scaling: float

    def scores(self, head, row):
        """One query's native scores [L], -inf where it sees nothing."""
        shared = len(self.q) // len(self.k)
        found = self.scaling * (self.k[head // shared] @ self.q[head, row])
        length = len(found)
        for j in range(length):
            if self.mask is None:
                visible, extra = j <= row, 0.0
            else:
                entry = self.mask[0 if len(self.mask) == 1 else head, row, j]
                boolean = self.mask.dtype == np.bool_
                visible = bool(entry) if boolean else entry > -1e30
                extra = 0.0 if boolean else entry
            found[j] = found[j] + extra if visible else -np.inf
        return found

    def attention(self, head, row):
        """One query's softmax over all keys, [L]."""
        scores = self.scores(head, row)
        weights = np.exp(scores - scores.max())
        return weights / weights.sum()

    def value(self, head, position):
        return self.v[head // (len(self.q) // len(self.v)), position]


@dataclass
class Raw:
    """Everything a recomputation starts from."""

    model: Any
    inputs: dict
    full: dict[int, Call]
    compact: dict[int, Call]
    states: dict[int, np.ndarray]  # input [L, d] of every block in Full
    full_logits: np.ndarray  # [V] at the end of the prompt
    compact_logits: np.ndarray
    visual: np.ndarray
    queries: np.ndarray
    support: list[int]  # behind the last stage, among the prompt's visual tokens
    compactions: list
    coordinates: np.ndarray
    image_ids: np.ndarray
    images: int

    @property
    def stays(self):
        """Prompt positions of the compact sequence, ascending."""
        kept = {int(self.visual[i]) for i in self.support}
        gone = {int(i) for i in self.visual} - kept
        return [j for j in range(self.inputs["input_ids"].shape[1]) if j not in gone]

    def place(self, position):
        """Where a prompt position lies in the compact sequence."""
        return self.stays.index(int(position))


def _call(seen):
    mask = None if seen.mask is None else seen.mask[0].numpy()
    if mask is not None and mask.dtype != np.bool_:
        mask = mask.astype(np.float64)
    q, k, v = (x[0].double().numpy() for x in (seen.queries, seen.keys, seen.values))
    return Call(q, k, v, mask, seen.scaling)


@functools.cache
def raw(family, attn, plan, keep, images=1, seed=3):
    """Both runs of a prompt."""
    model = model_of(family, attn)
    inputs = prompt(model, family, images, seed=seed)
    states, handles = {}, []
    for number, block in enumerate(layers_of(model)):

        def hook(module, args, kwargs, number=number):
            given = args[0] if args else kwargs["hidden_states"]
            states[number] = given[0].double().numpy()

        handles.append(block.register_forward_pre_hook(hook, with_kwargs=True))
    with torch.no_grad():
        with Observer(model, BLOCKS) as full:
            whole = model(**inputs).logits[0, -1].double().numpy()
        for handle in handles:
            handle.remove()
        done = []
        made = plan if not isinstance(plan, str) else plan_named(plan, 5)
        with (
            Observer(model, BLOCKS) as compact,
            compress(model, made, keep, watch=done.append) as run,
        ):
            small = model(**inputs).logits[0, -1].double().numpy()
    ids = inputs["input_ids"][0].numpy()
    visual = np.flatnonzero(ids == IMAGE)
    text = np.flatnonzero(~np.isin(ids, [IMAGE, START, END]))
    scene = done[0].scene
    return Raw(
        model=model,
        inputs=inputs,
        full={block: _call(seen) for block, seen in full.seen.items()},
        compact={block: _call(seen) for block, seen in compact.seen.items()},
        states=states,
        full_logits=whole,
        compact_logits=small,
        visual=visual,
        queries=oracle.query_positions(text, visual)[0],
        support=run.last.stages[-1].indices.tolist(),
        compactions=done,
        coordinates=scene.coordinates.double().numpy(),
        image_ids=scene.image_ids.numpy(),
        images=scene.images,
    )


def grounding(found, boundary, rank=4, seed=0):
    """omega, nu and per view (A, atom norms), the current view first, from Full's raw calls."""
    width = found.states[0].shape[1]
    drawn = torch.randn(width, rank, generator=torch.Generator().manual_seed(seed))
    probe = torch.linalg.qr(drawn).Q.double().numpy()
    views, grams = [], []
    for block in (boundary, *range(max(boundary - 2, 0), boundary)):
        call = found.full[block]
        heads = len(call.q)
        weight = attention_of_block(layers_of(found.model)[block]).o_proj.weight
        A = np.zeros((heads, len(found.queries), len(found.visual)))
        for h in range(heads):
            for t, row in enumerate(found.queries):
                A[h, t] = call.attention(h, row)[found.visual]
        columns = oracle.output_probe(weight.detach().double().numpy(), probe, heads)
        Z = oracle.message_coordinates(call.v[:, found.visual], columns)
        sigma = oracle.mass_coordinate(Z)
        views.append((A, oracle.atom_norms(Z, sigma)))
        grams.append(oracle.view_gram(A, Z, sigma))
    gram = oracle.head_gram(grams, oracle.view_masses(len(views) - 1))
    omega = oracle.head_weights(gram, oracle.head_clusters(gram))
    return omega, oracle.query_weights(len(found.queries)), views


def banks(found, boundary, **probe):
    """The three banks of the deployed objective, by the oracle."""
    omega, nu, views = grounding(found, boundary, **probe)
    return [
        oracle.grounded_bank(views, omega, nu, oracle.view_masses(len(views) - 1)),
        oracle.appearance_bank(found.states[boundary][found.visual], found.image_ids),
        oracle.spatial_bank(found.coordinates, found.image_ids, found.images),
    ]


__all__ = ["Call", "Raw", "banks", "decoder_of", "grounding", "raw"]
