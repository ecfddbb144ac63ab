"""Who watches a run is shown what every stage did to every row, and changes nothing by it."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from tests.runtime.helpers import ROWS, compressed, model_of
from tests.zoo import prompt
from vicoset import Keep, Plan, Stage, compress, plan_named
from vicoset.api import Compaction


def first(batch: Any, **options: Any) -> Any:
    model = model_of("llava")
    with compressed(model, **options) as engine, torch.no_grad():
        return model(**batch).logits, engine


def test_every_stage_and_row_is_shown() -> None:
    one, two = (plan_named(name, 5).stages[0] for name in ("gmc@1", "random+drop@3"))
    plan = Plan(
        "twice",
        (
            Stage(1, one.selector, one.realiser, Keep(tokens=9)),
            Stage(3, two.selector, two.realiser, Keep(tokens=4)),
        ),
    )
    batch = prompt(model_of("llava"), "llava", ROWS)
    seen: list[Compaction] = []
    logits, engine = first(batch, plan=plan, watch=seen.append)
    assert [(done.stage.boundary, done.row) for done in seen] == [(1, 0), (1, 1), (3, 0), (3, 1)]
    records = engine.last
    for done in seen[:2]:
        assert torch.equal(records[done.row].stages[0].indices, done.selection.indices)
        assert len(done.scene.states) == records[done.row].tokens
        assert set(done.realisation.carrier.tolist()) == set(range(9))
    for before, after in zip(seen[:2], seen[2:], strict=True):
        assert len(after.scene.states) == 9  # what the first stage left
        kept = before.selection.indices[after.selection.indices]
        assert torch.equal(records[after.row].stages[1].indices, kept)
    unseen, _ = first(batch, plan=plan)
    assert torch.equal(logits, unseen)


def test_nothing_is_shown_where_nothing_was_compressed() -> None:
    seen: list[Compaction] = []
    first(prompt(model_of("llava"), "llava"), plan="gmc@1", keep=1.0, watch=seen.append)
    assert seen == []


def test_an_error_of_the_watcher_is_the_callers_and_leaves_the_model_clean() -> None:
    def fail(done: Compaction) -> None:
        raise ZeroDivisionError(done.row)

    model, batch = model_of("llava"), prompt(model_of("llava"), "llava")
    before = dict(model.__dict__)
    with pytest.raises(ZeroDivisionError), compress(model, "gmc@1", keep=4, watch=fail):
        model(**batch)
    assert model.__dict__ == before
