"""SparseVLM: published counts, raters and clusters by plain loops, plans by hand."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest
import torch

from tests.methods.attended import attended, softmaxed
from vicoset.methods import registry, sparsevlm
from vicoset.methods.dpc_knn import density_peaks
from vicoset.plan import Keep, plan_named, work

# -- counts ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("label", "counts", "authors", "own"),
    [
        (192, [309, 204, 113], 192.0, 206.5),
        (128, [312, 117, 39], 128.6, 145.4),
        (64, [82, 32, 18], 64.8, 82.3),
    ],
)
def test_published_schedules(label, counts, authors, own):
    """The authors count blocks 2, 6 and 15, whose outputs are compressed, with what they leave."""
    plan = plan_named(f"sparsevlm-{label}", 32)
    assert plan.boundaries == (3, 7, 16) and not plan.reads_keep
    assert "layer average" in plan.notes[0] and f"keeps {counts[-1]} of 576" in plan.notes[0]
    assert plan.counts(Keep(tokens=1), 576)[0] == counts
    assert round(work(plan.boundaries, counts, 576, 32) / 32 + 1e-9, 1) == own
    assert round(work((2, 6, 15), counts, 576, 32) / 32, 1) == authors
    free = plan_named("sparsevlm", 32)
    assert free.counts(Keep(tokens=counts[-1]), 576)[0] == counts


def test_other_decoders_and_other_prompts():
    plan = plan_named("sparsevlm", 28)
    assert plan.boundaries == (3, 6, 14)
    assert "3, 7, 16 of 32 blocks; here 3, 6, 14" in plan.notes[1]
    assert plan.counts(Keep(tokens=2 * 39), 2 * 576)[0] == [624, 234, 78]
    for keep in range(1, 100):
        counts = plan.counts(Keep(tokens=keep), 99)[0]
        assert counts == sorted(counts, reverse=True) and counts[-1] == keep


@pytest.mark.parametrize("tokens", [2, 9, 60, 576])
def test_k_is_tokens_and_clusters(tokens):
    for keep in range(1, tokens):
        stay, groups = sparsevlm.split(tokens, keep, 1)
        assert stay + groups == keep and stay >= 1
        wanted = sparsevlm.clusters(tokens - stay)
        # Every count is met; where K is too small for the rule's clusters, fewer are made.
        assert groups == wanted or (stay == 1 and groups < wanted)
    for kept in (300, 110, 30):
        assert sparsevlm.split(576, kept + sparsevlm.clusters(576 - kept), 1)[0] == kept


# -- clusters --------------------------------------------------------------------------------------


def peaks_by_loops(states, groups):
    """Density peaks, one number after another."""
    points = [[float(x) for x in row] for row in states]
    width, count = len(points[0]), len(points)
    far = [[math.dist(a, b) / math.sqrt(width) for b in points] for a in points]
    density = [math.exp(-sum(x * x for x in sorted(row)[:groups]) / groups) for row in far]
    score = []
    for i in range(count):
        denser = [
            far[i][j]
            for j in range(count)
            if density[j] > density[i] or (density[j] == density[i] and j < i)
        ]
        score.append(density[i] * (min(denser) if denser else max(map(max, far))))
    centres = sorted(range(count), key=lambda i: (-score[i], i))[:groups]
    owner = [min(range(groups), key=lambda c: far[i][centres[c]]) for i in range(count)]
    for place, centre in enumerate(centres):
        owner[centre] = place
    return centres, owner


@pytest.mark.parametrize("seed", range(4))
def test_density_peaks_are_those_of_the_loops(seed):
    draw = torch.Generator().manual_seed(seed)
    states = torch.randn(23, 6, generator=draw) + 5 * torch.randn(6, generator=draw)
    for groups in (1, 3, 7, 23):
        centres, owner = density_peaks(states, torch.zeros(23, dtype=torch.long), groups)
        wanted, owners = peaks_by_loops(states.double(), groups)
        assert centres.tolist() == wanted and owner.tolist() == owners


def test_two_heaps_by_hand():
    """Two heaps of equally dense rows: the first of each is its centre."""
    states = torch.tensor([[0.0], [1.0], [2.0], [10.0], [10.5], [11.0]])
    centres, owner = density_peaks(states, torch.zeros(6, dtype=torch.long), 2)
    # The two nearest, itself first: densities exp(-1/2) three times, then exp(-1/8) three times.
    # The first of the denser heap leads by the largest distance, 11, the first of the other by 10;
    # every other row has an equally dense one before it at 1 or 0.5.
    assert centres.tolist() == [3, 0]
    assert owner.tolist() == [1, 1, 1, 0, 0, 0]


def test_images_never_meet():
    states = torch.tensor([[0.0], [9.0], [0.1], [9.1], [0.2]])
    ids = torch.tensor([0, 0, 1, 1, 2])
    centres, owner = density_peaks(states, ids, 2)
    for row, cluster in enumerate(owner.tolist()):
        image = int(ids[row])
        own = [c for c in range(2) if int(ids[centres[c]]) == image]
        assert cluster == -1 if not own else cluster in own


# -- the selector ----------------------------------------------------------------------------------

VISUAL = list(range(2, 14))
LENGTH = 18


def scene_with(images=1, **changes):
    draw = torch.Generator().manual_seed(5)
    weights = torch.rand(3, LENGTH, LENGTH, generator=draw) ** 4 + 1e-3
    states = torch.randn(12, 8, generator=draw)
    words = torch.randn(6, 8, generator=draw)
    scene = attended(weights, VISUAL, states=states, images=images, text_embeddings=words)
    return weights, replace(scene, parts=scene.parts._replace(**changes))


def raters_by_loops(image, words):
    """Indices of the words with more than the average share."""
    mass = [0.0] * len(words)
    for x in image:
        scores = [math.exp(float(x.double() @ e.double())) for e in words]
        for t, score in enumerate(scores):
            mass[t] += score / sum(scores) / len(image)
    return [t for t, m in enumerate(mass) if m > sum(mass) / len(mass)]


def test_raters_and_scores_by_loops():
    weights, scene = scene_with()
    behind = scene.text.embeddings[2:]  # words 14 to 17 stand behind the image
    rows = [14 + t for t in raters_by_loops(scene.embeddings, behind)]
    assert 0 < len(rows) < 4 and sparsevlm.raters(scene).tolist() == rows
    native = softmaxed(weights).mean(0)
    scores = [sum(float(native[t, v]) for t in rows) for v in VISUAL]
    order = sorted(range(12), key=lambda v: -scores[v])
    for keep in range(1, 12):
        plain = registry.selector("sparsevlm[-merging]").select(scene, keep)
        assert plain.indices.tolist() == sorted(order[:keep]) and plain.merge is None
        found = registry.selector("sparsevlm").select(scene, keep)
        stay, groups = sparsevlm.split(12, keep, 1)
        assert set(order[:stay]) <= set(found.indices.tolist())
        if groups:
            pool = sorted(order[stay : stay + sparsevlm.pooled(12 - stay)])
            centres, owner = peaks_by_loops(scene.states[pool].double(), groups)
            assert {pool[c] for c in centres} <= set(found.indices.tolist())
            states = registry.realiser("merge").realise(scene, found).states
            for slot, index in enumerate(found.indices.tolist()):
                names = [index]
                if index not in order[:stay]:
                    mine = owner[pool.index(index)]
                    names = [pool[i] for i, cluster in enumerate(owner) if cluster == mine]
                torch.testing.assert_close(states[slot], scene.states[names].mean(0))


def test_raters_read_the_whole_image_at_every_stage():
    _, scene = scene_with()
    whole = torch.randn(40, 8, generator=torch.Generator().manual_seed(8))
    _, later = scene_with(every_embedding=whole)
    wanted = raters_by_loops(whole, scene.text.embeddings[2:])
    assert sparsevlm.raters(later).tolist() == [14 + t for t in wanted]


@pytest.mark.parametrize("images", [1, 3])
def test_appended_clusters_stand_behind_their_images_tokens(images):
    _, scene = scene_with(images)
    realiser = registry.realiser("merge")
    for keep in range(images + 2, 12):
        places = registry.selector("sparsevlm").select(scene, keep)
        behind = registry.selector("sparsevlm[appended=true]").select(scene, keep)
        assert torch.equal(places.indices, behind.indices)
        here = realiser.realise(scene, places).states
        there = realiser.realise(scene, behind).states
        merged = set(places.merge.target.tolist())
        wanted = []
        for image in range(images):
            own = [j for j, i in enumerate(places.indices) if scene.image_ids[i] == image]
            wanted += [j for j in own if j not in merged]
            clusters = [j for j in own if j in merged]
            wanted += clusters
            assert {*clusters} == merged & {*own}
        rows = [tuple(row.tolist()) for row in here[wanted]]
        found = [tuple(row.tolist()) for row in there]
        kept = [j for j, slot in enumerate(wanted) if slot not in merged]
        assert [rows[j] for j in kept] == [found[j] for j in kept]
        assert sorted(rows) == sorted(found)
