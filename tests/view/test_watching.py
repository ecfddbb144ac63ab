"""A watcher's supports are those of the records, and the composition of several stages."""

from typing import Any

import numpy as np
import pytest
import torch

from tests.runtime.helpers import ROWS, model_of
from tests.zoo import prompt
from vicoset import Keep, Plan, Stage, compress, plan_named
from vicoset.errors import RuntimeStateError
from vicoset.view import Watcher


def run(batch: Any, plan: Any, keep: Any = 6) -> tuple[Watcher, Any]:
    model, watcher = model_of("llava"), Watcher()
    with compress(model, plan, keep, watch=watcher) as context, torch.no_grad():
        model(**batch)
    return watcher, context.last


def test_the_kept_tokens_of_every_row_and_image_are_the_records() -> None:
    batch = prompt(model_of("llava"), "llava", ROWS)
    watcher, records = run(batch, "gmc@2")
    assert watcher.rows == (0, 1)
    for row in watcher.rows:
        found = [watcher.support(image, row) for image in range(records[row].images)]
        kept = np.concatenate([one.kept for one in found])
        assert np.flatnonzero(kept).tolist() == records[row].stages[0].indices.tolist()
        for one in found:
            assert one.carrier is not None and (one.carrier >= 0).all()
            assert one.kept[one.carrier].all()  # every carrier is a kept token of the same image
            assert (one.carrier[one.kept] == np.flatnonzero(one.kept)).all()


def test_stages_are_composed() -> None:
    one, two = (plan_named(name, 5).stages[0] for name in ("gmc@1", "gmc@3"))
    stages = (
        Stage(1, one.selector, one.realiser, Keep(tokens=12)),
        Stage(3, two.selector, two.realiser, Keep(tokens=5)),
    )
    batch, seen = prompt(model_of("llava"), "llava"), []
    with compress(model_of("llava"), Plan("twice", stages), watch=seen.append):
        model_of("llava")(**batch)
    watcher, record = run(batch, Plan("twice", stages))
    found = watcher.support()
    assert np.flatnonzero(found.kept).tolist() == record.stages[1].indices.tolist()
    first, second = seen
    kept = first.selection.indices.tolist()
    finally_kept = [kept[index] for index in second.selection.indices.tolist()]
    assert found.carrier is not None and found.mass is not None
    for token in range(found.tokens):
        through = int(first.realisation.carrier[token])
        assert found.carrier[token] == finally_kept[int(second.realisation.carrier[through])]
    assert found.mass.sum() == pytest.approx(float(second.realisation.mass.sum()), rel=1e-5)


def test_deleted_tokens_have_no_carrier() -> None:
    watcher, _ = run(prompt(model_of("llava"), "llava"), "random+drop@2")
    found = watcher.support()
    assert found.carrier is not None
    assert (found.carrier[~found.kept] == -1).all() and (found.carrier[found.kept] >= 0).all()


def test_a_new_prompt_replaces_the_last_one() -> None:
    model, watcher = model_of("llava"), Watcher()
    two = prompt(model, "llava", [1, 1])
    with compress(model, "random@2", 6, watch=watcher), torch.no_grad():
        model(**two)
        assert watcher.rows == (0, 1)
        model(**prompt(model, "llava", seed=3))
    assert watcher.rows == (0,)


def test_nothing_compressed_is_nothing_to_draw() -> None:
    watcher, _ = run(prompt(model_of("llava"), "llava"), "gmc@2", keep=1.0)
    with pytest.raises(RuntimeStateError, match="Run a prompt with an image and K < N"):
        watcher.support()
