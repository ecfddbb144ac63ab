"""What every registered selector owes: exactly K ascending tokens, the same twice, on every model.

Scenes are caught in tiny random models while they run; the harder cases (duplicates, all tokens
equal, K = N, K = images) are asked of the same scenes afterwards.
"""

from __future__ import annotations

import functools
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import pytest
import torch

from tests.methods.lent import Words, companions, model_for
from tests.runtime.helpers import compressed, logits, prompt
from vicoset.errors import VicosetError
from vicoset.methods import registry
from vicoset.methods.base import CURRENT, PREVIOUS, VIEWS, Tower
from vicoset.methods.choose import top
from vicoset.plan import Plan, Stage

FAMILIES = ("qwen2_5_vl", "llava")
PROMPTS = ([1], [2], [1, 2])  # one image, two, and a batch of two padded on the left
KEEP = 7
SEED = 2  # of the zoo: images of 9 and more tokens
SELECTORS = registry.names().selectors
# Methods that spread over the image, or deal the budget out to images, by definition: equal tokens
# are no reason to take the first.
SPREADING = {
    *(
        "gmc",
        "grid",
        "holov",
        "random",
        "visionzip",
        "visionzip-mean",
        "visionzip-dominant",
        "vispruner",
    ),
    *("tome", "apet", "apet-states", "vlm-pruner"),
}
# (method, family) -> what the refusal names instead.
REFUSED: dict[tuple[str, str], str] = {("cdpruner", "qwen2_5_vl"): "cdpruner-style"}
RUNS = [
    (name, family) for name in SELECTORS for family in FAMILIES if (name, family) not in REFUSED
]


@dataclass(frozen=True)
class Caught:
    """A registered selector that remembers what it saw and answered."""

    inner: str
    name: ClassVar[str] = "caught"
    query_aware: ClassVar[bool] = True
    seen: ClassVar[list[Any]] = []

    @property
    def needs(self) -> frozenset[str]:
        return registry.selector(self.inner).needs

    def select(self, scene: Any, keep: int) -> Any:
        answer = registry.selector(self.inner).select(scene, keep)
        self.seen.append((scene, keep, answer))
        return answer


def run(name: str, family: str, rows: list[int], boundary: int) -> list[Any]:
    """(scene, K, answer) of every row, each realised as the method's released form does."""
    model = model_for(name, family)
    about = getattr(registry.selector(name), "about", None)
    realiser = registry.realiser("merge" if about and about.merges else "drop")
    Caught.seen.clear()
    plan = Plan("caught", (Stage(boundary, Caught(name), realiser),))
    with compressed(model, plan, KEEP, processor=Words(), companions=companions()):
        found = logits(model, prompt(model, family, rows, SEED))
    assert bool(found.isfinite().all())
    return list(Caught.seen)


@functools.cache
def caught(name: str, family: str) -> list[Any]:
    """The scenes of all prompts at the input, where the method can run there, and inside."""
    inside = registry.selector(name).needs & {CURRENT, PREVIOUS, VIEWS}
    rows = [seen for rows in PROMPTS for seen in run(name, family, rows, 2 if inside else 0)]
    return rows if inside else rows + run(name, family, PROMPTS[-1], 2)


def check(scene: Any, keep: int, selection: Any) -> None:
    """Exactly K distinct ascending indices, a carrier for every image, a map within images."""
    found = selection.indices
    assert found.dtype == torch.int64 and found.device == scene.states.device
    assert found.tolist() == sorted(set(found.tolist()))
    assert len(found) == keep and int(found[0]) >= 0 and int(found[-1]) < len(scene.states)
    assert set(scene.image_ids[found].tolist()) == set(range(scene.images))
    if selection.merge is not None:
        merge = selection.merge
        owners = scene.image_ids[found][merge.target]
        assert torch.equal(owners, scene.image_ids[merge.source])
        assert bool(merge.weight.isfinite().all())


@pytest.mark.parametrize(("name", "family"), RUNS)
def test_runs_in_models(name: str, family: str) -> None:
    found = caught(name, family)
    assert len(found) in (4, 6)
    for scene, keep, selection in found:
        assert keep == KEEP
        check(scene, keep, selection)


@pytest.mark.parametrize(("name", "family"), RUNS)
def test_the_same_twice_and_every_budget(name: str, family: str) -> None:
    for scene, _, answer in caught(name, family)[:4]:
        method, tokens = registry.selector(name), len(scene.states)
        assert torch.equal(method.select(scene, KEEP).indices, answer.indices)
        for keep in (scene.images, scene.images + 1, tokens - 1):
            check(scene, keep, method.select(scene, keep))
        assert method.select(scene, tokens).indices.tolist() == list(range(tokens))


def like(scene: Any, source: torch.Tensor) -> Any:
    """The scene in which token v holds everything that ``source[v]`` held."""
    visual = scene.visual

    def rows(tensor: Any) -> Any:
        return None if tensor is None else tensor.index_select(0, source).clone()

    def view(found: Any) -> Any:
        def columns(tensor: Any) -> Any:
            if tensor is None:
                return None
            return tensor.index_copy(1, visual, tensor.index_select(1, visual[source]))

        return found and found._replace(
            keys=columns(found.keys),
            values=found.values.index_select(1, source),
            every_query=columns(found.every_query),
        )

    parts, tower = scene.parts, scene.parts.tower
    if tower is not None:
        tower = Tower(
            rows(tower.features),
            rows(tower.keys),
            rows(tower.received),
            rows(tower.cls),
            tower.cls_feature,
            tower.project,
        )
    return replace(
        scene,
        states=rows(scene.states),
        views=tuple(map(view, scene.views)),
        parts=parts._replace(
            embeddings=rows(parts.embeddings),
            tower=tower,
            current=view(parts.current),
            previous=view(parts.previous),
        ),
    )


@pytest.mark.parametrize(("name", "family"), RUNS)
def test_duplicates_never_repeat_an_index(name: str, family: str) -> None:
    for scene, _, _ in caught(name, family)[:2]:
        tokens = len(scene.states)
        starts = [int((scene.image_ids == image).nonzero()[0]) for image in range(scene.images)]
        first = torch.tensor(starts)[scene.image_ids]
        few = like(scene, first + (torch.arange(tokens) - first) % 3)
        for keep in (scene.images, KEEP, tokens - 2):
            check(few, keep, registry.selector(name).select(few, keep))


@pytest.mark.parametrize(("name", "family"), RUNS)
def test_equal_tokens_give_the_first(name: str, family: str) -> None:
    for scene, _, _ in caught(name, family)[:2]:
        equal = like(scene, torch.zeros(len(scene.states), dtype=torch.long))
        for keep in (scene.images, KEEP):
            found = registry.selector(name).select(equal, keep)
            check(equal, keep, found)
            if name not in SPREADING:
                wanted = top(equal, torch.zeros(len(equal.states)), keep)
                assert found.indices.tolist() == wanted.tolist()


def test_what_cannot_run_says_what_can() -> None:
    for (name, family), instead in REFUSED.items():
        with pytest.raises(VicosetError, match=instead):
            caught(name, family)


def test_every_selector_says_where_it_comes_from() -> None:
    for name in SELECTORS:
        about = registry.selector(name).about
        assert about.title and about.source and about.acts and about.reads, name
        assert about.positions in ("original", "packed"), name
        assert bool(about.code) == bool(about.licence), name
