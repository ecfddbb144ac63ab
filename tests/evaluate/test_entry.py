"""An entry survives JSON, and refuses what it does not know."""

import json
from dataclasses import replace

import pytest

from vicoset.errors import UnreadableError
from vicoset.evaluate.entry import Entry

PLAIN = Entry("pope", "3", "image-1", "", {"tp": 1.0, "n": 1.0}, 1.0)
RICH = replace(
    PLAIN,
    groups={"figure": "f1"},
    raw="Yes.",
    normalised="yes",
    index=3,
    requested="64",
    tokens=256,
    images=1,
    boundaries=(2, 4),
    kept_by_stage=(128, 64),
    depth=8,
    work=2 * 256 + 2 * 128 + 4 * 64,
    seconds={"answer": 0.1},
    support=((0, 1), (1,)),
    evidence={"gmc": {"ratio": 0.9, "banks": [0.1, 0.2]}},
    notes=("a note",),
)


@pytest.mark.parametrize("sample", [PLAIN, RICH], ids=["plain", "rich"])
def test_json_gives_the_entry_back(sample: Entry) -> None:
    assert Entry.from_json(json.loads(json.dumps(sample.to_json()))) == sample


def test_realised_k_and_work_have_one_meaning() -> None:
    assert (RICH.kept, RICH.layer_average, RICH.work_share) == (64, 128.0, 0.5)
    full = replace(PLAIN, tokens=256, depth=8, work=8 * 256)
    assert (full.kept, full.layer_average, full.work_share) == (256, 256.0, 1.0)
    assert (PLAIN.kept, PLAIN.layer_average, PLAIN.work_share) == (0, 0.0, 1.0)


@pytest.mark.parametrize(
    ("change", "said"), [({"colour": 1}, "colour"), ({"score": None}, "score")]
)
def test_unknown_and_missing_fields_are_named(change: dict[str, object], said: str) -> None:
    found = {k: v for k, v in {**PLAIN.to_json(), **change}.items() if v is not None}
    with pytest.raises(UnreadableError, match=said):
        Entry.from_json(found)


def test_the_statistics_see_scores_and_cost() -> None:
    seen = RICH.sample
    assert (seen.task, seen.sample_id, seen.unit_id) == ("pope", "3", "image-1")
    assert (seen.stats, seen.score, seen.groups) == (RICH.stats, 1.0, {"figure": "f1"})
    assert seen.cost is not None
    assert (seen.cost.tokens, seen.cost.kept) == (256, 64)
    assert (seen.cost.layer_average, seen.cost.work) == (128.0, 0.5)
    assert PLAIN.sample.cost is None
