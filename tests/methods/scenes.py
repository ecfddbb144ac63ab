"""Scenes that torch draws: q, k, v of a grouped-query attention around interleaved images."""

import torch

from vicoset.core import messages
from vicoset.core.coreset import Population, Reading
from vicoset.core.settings import Settings
from vicoset.methods.base import Scene, View


def normal(draw, *shape, dtype=torch.float32):
    return torch.randn(*shape, generator=draw, dtype=torch.float64).to(dtype)


def random_view(draw, block, heads, key_heads, width, head_width, scene_parts, dtype, **options):
    """A view, and the weight of its output projection."""
    queries, length, tokens = scene_parts
    weight = normal(draw, width, heads * head_width, dtype=dtype)
    view = View(
        block=block,
        queries=3 * normal(draw, heads, queries, head_width, dtype=dtype),
        keys=normal(draw, key_heads, length, head_width, dtype=dtype),
        values=normal(draw, key_heads, tokens, head_width, dtype=dtype),
        output_probe=lambda probe: messages.output_probe(weight, probe, heads),
        scaling=head_width**-0.5,
        **options,
    )
    return view, weight


def random_scene(
    tokens=40,
    images=1,
    width=24,
    heads=4,
    key_heads=2,
    head_width=8,
    queries=3,
    history=2,
    axes=2,
    seed=0,
    dtype=torch.float32,
    settings=None,
    sample=0,
    **options,
):
    """A scene with 1 + history views, images separated by a text token each."""
    draw = torch.Generator().manual_seed(seed)
    ids = torch.arange(tokens) * images // tokens
    visual = torch.arange(tokens) + ids + 2  # two text tokens, then one before each next image
    rows = visual[-1] + 1 + torch.arange(queries)
    length = int(rows[-1]) + 1
    sizes = (heads, key_heads, width, head_width, (queries, length, tokens), dtype)
    boundary = history
    blocks = [boundary, *range(boundary)]
    return Scene(
        states=normal(draw, tokens, width, dtype=dtype),
        coordinates=torch.rand(tokens, axes, generator=draw),
        image_ids=ids,
        images=images,
        visual=visual,
        queries=rows,
        boundary=boundary,
        views=tuple(random_view(draw, block, *sizes, **options)[0] for block in blocks),
        settings=settings or Settings(),
        seed=sample,
    )


def as_core(scene):
    """The population and readings that core takes, made here step by step from q, k and v."""
    people = Population(scene.states, scene.coordinates, scene.image_ids, scene.images)
    numbers = scene.settings
    probe = messages.probe(scene.states.shape[1], numbers.probe_rank, numbers.probe_seed)
    reads = []
    for view in scene.views:
        group = view.queries.shape[0] // view.keys.shape[0]
        keys = view.keys.float().repeat_interleave(group, 0)
        scores = view.queries.float() @ keys.mT * view.scaling
        length = keys.shape[1]
        seen = torch.arange(length) <= scene.queries[:, None]
        attention = scores.masked_fill(~seen, float("-inf")).softmax(-1)[..., scene.visual]
        values = view.values.float().repeat_interleave(group, 0)
        reads.append(Reading(attention, values @ view.output_probe(probe)))
    return people, reads
