"""Scenes whose attention is written down instead of computed."""

import torch

from vicoset.core.settings import Settings
from vicoset.methods.base import Parts, Scene, Text, View


def view_with(weights, visual, queries, block=0):
    """A view whose native causal softmax is the given weights, each row normalised.

    Keys are unit vectors and queries logarithms, so a score is the logarithm of its weight.

    Args:
        weights: [H, L, L], positive; above the diagonal they are never seen.
        visual: sequence indices of the visual tokens.
        queries: sequence indices of the prompt rows.
        block: its number.
    """
    weights = torch.as_tensor(weights, dtype=torch.float32)
    logs = weights.clamp_min(1e-12).log()
    length = weights.shape[-1]
    return View(
        block=block,
        queries=logs[:, queries],
        keys=torch.eye(length).expand(len(weights), -1, -1),
        values=torch.zeros(len(weights), len(visual), length),
        output_probe=lambda probe: probe.new_zeros(len(weights), length, probe.shape[1]),
        scaling=1.0,
        every_query=logs,
    )


def attended(weights, visual, text=None, question=None, states=None, images=1, **parts):
    """A scene at boundary 1 with that view as the block before, the current and the only one.

    Args:
        weights: [H, L, L], see `view_with`.
        visual: sequence indices of the visual tokens.
        text: sequence indices of the text tokens; None for all others.
        question: those of them that are the question; None for those behind the last image.
        states: [N, d]; None for random ones.
        images: the tokens are dealt to them in equal runs.
        parts: further parts of the scene.
    """
    length = len(weights[0])
    visual = torch.tensor(visual)
    others = [i for i in range(length) if i not in visual.tolist()]
    text = torch.tensor(others if text is None else text)
    asked = text > visual[-1] if question is None else torch.isin(text, torch.tensor(question))
    queries = text[text > visual[0]]
    draw = torch.Generator().manual_seed(0)
    tokens = len(visual)
    states = torch.randn(tokens, 8, generator=draw) if states is None else states
    view = view_with(weights, visual, queries)
    embeddings = parts.pop("text_embeddings", torch.randn(len(text), 8, generator=draw))
    return Scene(
        states=states,
        coordinates=torch.rand(tokens, 2, generator=draw),
        image_ids=torch.arange(tokens) * images // tokens,
        images=images,
        visual=visual,
        queries=queries,
        boundary=1,
        views=(view,),
        settings=Settings(),
        seed=0,
        parts=Parts(
            current=view,
            previous=view,
            text=Text(torch.arange(len(text)), embeddings, text, asked),
            **{"embeddings": states, **parts},
        ),
    )


def softmaxed(weights):
    """The causal rows of `view_with`, [H, L, L], in plain Python order of operations."""
    weights = torch.as_tensor(weights, dtype=torch.float64).tril()
    return weights / weights.sum(-1, keepdim=True)
