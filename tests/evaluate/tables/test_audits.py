"""Tables of audited runs equal plain loops over the audits."""

from __future__ import annotations

import itertools
import random
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.core.helpers import refused
from tests.evaluate.tables import made
from vicoset.audit import correlation
from vicoset.errors import RunError
from vicoset.evaluate.entry import FULL
from vicoset.evaluate.fingerprint import digest_of
from vicoset.evaluate.folder import Folder, complete, create, line_of
from vicoset.evaluate.shards import Shard
from vicoset.evaluate.tables import find
from vicoset.evaluate.tables.comparison import Options
from vicoset.evaluate.tables.coverage import coverage
from vicoset.evaluate.tables.mechanism import mechanism, plans_at
from vicoset.evaluate.tables.probe import plans_at as probes_at
from vicoset.evaluate.tables.probe import probe
from vicoset.evaluate.tables.recovery import plans_at as pairs_at
from vicoset.evaluate.tables.recovery import selector_recovery
from vicoset.evaluate.tables.table import Cell

TASK = "tinybench-document"
OPTIONS = Options(replicates=200)
BANKS = ("all", "grounded", "appearance", "spatial")


def numbers(dice: random.Random, worse: bool) -> dict[str, Any]:
    """An audit of one request, harmful ones with larger errors."""
    vie = dice.random() + worse
    return {
        "statements": 40,
        "violations": [],
        "coverage": [
            {
                "boundary": 2,
                **{name: dice.random() for name in (*BANKS, "certificate", "grid")},
                "distance": dice.random(),
                "bound": 1.5,
            }
        ],
        "messages": [{"block": 2, "error": dice.random() + worse}],
        "decision": {
            "vie": vie,
            "distortion": vie * 3 + dice.random(),
            "rho": dice.random() * 3,
            "certified": dice.random() < 0.3 and not worse,
            "flip": worse,
            "escape": False,
        },
        "positions": {
            **{"count": 3, "certified": 1, "flips": int(worse)},
            **{"certified_flips": 0, "escapes": 0},
        },
    }


def audited(out: Path, plan: str, keep: int = 128, seed: int = 0, **options: Any) -> Folder:
    """A run whose every entry holds an audit."""
    items = made.drawn(TASK)
    plain = made.run(out / "plain", TASK, items, plan, keep, chance=0.6, **options)
    entries = complete(plain)
    info = {**plain.facts["info"], "run_id": digest_of([plan, keep, "audited"])}
    identity = {"task": {"choices": {}}, "method": {"audit": {"level": "full"}}}
    facts = {**plain.facts, "info": info, "identity": identity}
    facts["digest"] = digest_of(facts["info"])
    folder = create(out / "audited", plan, facts, [item.sample_id for item in items])
    dice = random.Random(f"{plan} {seed}")
    with folder.journal(Shard(1, 1)) as journal:
        for entry in entries:
            found = numbers(dice, entry.score < 1)
            journal.append(line_of(replace(entry, evidence={"audit": found})))
    return folder


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, list[Folder]]:
    out = tmp_path_factory.mktemp("audits")
    full = made.run(out / "audited", TASK, made.drawn(TASK), FULL, chance=0.7)
    plans = [*plans_at("gmc-h2", made.DEPTH), *probes_at("gmc-h2", [4, 8], [0, 1])[1:]]
    return out / "audited", [full, *(audited(out, plan) for plan in dict.fromkeys(plans))]


def entries_of(folders: list[Folder], plan: str) -> dict[str, Any]:
    (folder,) = [one for one in folders if one.facts["info"]["plan"] == plan]
    return {one.sample_id: one for one in complete(folder)}


def value(cell: Any) -> float:
    return cell.value if isinstance(cell, Cell) else cell


def test_the_mechanism_is_what_loops_find(runs: tuple[Path, list[Folder]]) -> None:
    out, folders = runs
    first, second, third = mechanism(find(out, audited=True), folders, (), OPTIONS, ("gmc-h2",))
    full = entries_of(folders, FULL)
    for plan in plans_at("gmc-h2", made.DEPTH):
        mine = entries_of(folders, plan)
        (row,) = [r.values for r in first.rows if r.values.get("plan") == plan]
        audits = {name: one.evidence["audit"] for name, one in mine.items()}
        vie = {name: audit["decision"]["vie"] for name, audit in audits.items()}
        assert value(row["vie"]) == pytest.approx(np.mean(list(vie.values())))
        errors = [audit["messages"][0]["error"] for audit in audits.values()]
        assert value(row["error"]) == pytest.approx(np.mean(errors))
        covered = [audit["coverage"][0]["all"] for audit in audits.values()]
        assert value(row["coverage"]) == pytest.approx(np.mean(covered))
        right = [name for name in mine if full[name].score == 1]
        harmed = [mine[name].normalised != full[name].normalised for name in right]
        assert 0 < sum(harmed) < len(right)
        assert value(row["harmful"]) == pytest.approx(100 * np.mean(harmed))
        marked = [(vie[name], bad) for name, bad in zip(right, harmed, strict=True)]
        wins = [
            (a > b) + (a == b) / 2
            for (a, e), (b, f) in itertools.product(marked, marked)
            if e and not f
        ]
        assert value(row["auroc"]) == pytest.approx(np.mean(wins))
        logits = [audit["decision"]["distortion"] for audit in audits.values()]
        wanted = np.corrcoef(logits, list(vie.values()))[0, 1]
        assert value(row["correlation"]) == pytest.approx(wanted)
        assert value(row["score"]) == pytest.approx(100 * np.mean([e.score for e in mine.values()]))
        for name in ("vie", "error", "harmful", "coverage", "score", "correlation"):
            assert row[name].low <= row[name].value <= row[name].high
        (counts,) = [r.values for r in third.rows if r.values["plan"] == plan]
        assert (counts["requests"], counts["all_count"]) == (len(mine), 3 * len(mine))
        assert (counts["statements"], counts["violations"]) == (40 * len(mine), 0)
        sure = [audit["decision"]["certified"] for audit in audits.values()]
        assert value(counts["certified"]) == pytest.approx(100 * np.mean(sure))
        assert counts["all_flips"] == sum(audit["positions"]["flips"] for audit in audits.values())
    ours = {r.values.get("plan"): r.values for r in first.rows}["gmc-h2"]
    (pooled,) = [r.values for r in first.rows if r.values["method"] == "All of these, by question"]
    mine = [entries_of(folders, plan) for plan in plans_at("gmc-h2", made.DEPTH)]
    mine += [entries_of(folders, plan) for plan in probes_at("gmc-h2", [4, 8], [0, 1])[1:]]
    left = [one[0] for of_plan in mine for one in _points(of_plan)]
    right = [one[1] for of_plan in mine for one in _points(of_plan)]
    groups = [name for of_plan in mine for name in of_plan]
    assert value(pooled["correlation"]) == pytest.approx(correlation(left, right, groups))
    for row in second.rows:
        other = next(r.values for r in first.rows if r.values.get("plan") == row.values["plan"])
        for name in ("error", "vie", "harmful"):
            wanted = value(other[name]) - value(ours[name])
            assert value(row.values[name]) == pytest.approx(wanted)
            assert 0 < row.values[f"{name}_p"] <= 1


def _points(found: dict[str, Any]) -> list[tuple[float, float]]:
    decisions = [one.evidence["audit"]["decision"] for one in found.values()]
    return [(one["distortion"], one["vie"]) for one in decisions]


def test_coverage_has_means_and_fifth_percentiles(runs: tuple[Path, list[Folder]]) -> None:
    out, folders = runs
    (table,) = coverage(find(out, audited=True), folders, (), OPTIONS, ("gmc-h2",))
    (row,) = [row.values for row in table.rows]
    parts = [one.evidence["audit"]["coverage"][0] for one in entries_of(folders, "gmc-h2").values()]
    for name in BANKS:
        own = [part[name] for part in parts]
        assert value(row[name]) == pytest.approx(np.mean(own))
        assert value(row[f"{name}_p5"]) == pytest.approx(np.quantile(own, 0.05))
        assert row[f"{name}_p5"].low <= row[f"{name}_p5"].value <= row[f"{name}_p5"].high
    assert (row["p"], row["keep"], row["violations"]) == (2, "128", 0)


def test_the_probe_is_compared_with_the_deployed_one(runs: tuple[Path, list[Folder]]) -> None:
    out, folders = runs
    (table,) = probe(find(out, audited=True), folders, (), OPTIONS, ("gmc-h2",))
    rows = {row.values["plan"]: row.values for row in table.rows}
    assert [(r["rank"], r["seed"]) for r in list(rows.values())[1:]] == [(4, 0), (4, 1), (8, 0)]
    deployed = rows["gmc-h2"]
    for plan in ("gmc-h2[probe_rank=8]", "gmc-h2[probe_seed=1]"):
        wanted = value(rows[plan]["error"]) - value(deployed["error"])
        assert value(rows[plan]["error_delta"]) == pytest.approx(wanted)
        wanted = value(rows[plan]["macro"]) - value(deployed["macro"])
        assert value(rows[plan]["macro_delta"]) == pytest.approx(wanted)
    assert "macro_delta" not in deployed


def test_plain_and_audited_runs_do_not_meet(runs: tuple[Path, list[Folder]]) -> None:
    out, folders = runs
    made.run(out, TASK, made.drawn(TASK), "gmc-h2", 128)
    plain, seen = find(out), find(out, audited=True)
    assert {key.plan for key in plain.runs} == {FULL, "gmc-h2"}
    assert len(seen.runs) == len(folders)
    with refused(RunError, "no audited run"):
        mechanism(plain, folders, (), OPTIONS, ("gmc-l16",))
    with refused(RunError, "hold no audits"):
        mechanism(plain, [*folders, *_plain(out)], (), OPTIONS, ("gmc-h2",))


def _plain(out: Path) -> list[Folder]:
    from vicoset.evaluate.folder import folders

    return [one for one in folders(out) if one.facts["info"]["plan"] == "gmc-h2"]


def test_missing_rows_say_what_runs_them(tmp_path: Path) -> None:
    made.run(tmp_path / "audited", TASK, made.drawn(TASK), FULL)
    folders = [audited(tmp_path, "gmc-h2")]
    found = find(tmp_path / "audited", audited=True)
    there = [*folders, *[f for f in _all(tmp_path) if f.facts["info"]["plan"] == FULL]]
    first = mechanism(found, there, (), OPTIONS, ("gmc-h2",))[0]
    assert "vicoset evaluate study mechanism" in first.markdown() and "missing" in first.markdown()


def _all(out: Path) -> list[Folder]:
    from vicoset.evaluate.folder import folders

    return folders(out / "audited")


def test_a_stratum_of_one_unit_is_warned_about(tmp_path: Path) -> None:
    for images, warned in ((1, True), (2, False)):
        out = tmp_path / str(images)
        items = made.drawn(TASK, images)
        made.run(out, TASK, items, FULL)
        made.run(out, TASK, items, "gmc+drop@2", 128)
        given = ["gmc"], ["drop"]
        (table,) = selector_recovery(find(out), (), OPTIONS, ("gmc-h2",), *given)
        assert ("TOO NARROW: 1 of 1 strata" in table.notes[0]) == warned


def test_support_by_recovery_is_a_table_of_differences(tmp_path: Path) -> None:
    items = made.drawn(TASK)
    made.run(tmp_path, TASK, items, FULL, chance=0.9)
    grid = pairs_at("gmc-h2", made.DEPTH, ["gmc", "k-center"], ["drop", "transport"])
    for number, plan in enumerate(grid.values()):
        made.run(tmp_path, TASK, items, plan, 128, chance=0.3 + number / 5)
    given = ["gmc", "k-center"], ["drop", "transport"]
    (table,) = selector_recovery(find(tmp_path), (), OPTIONS, ("gmc-h2",), *given)
    rows = {row.values.get("plan"): row.values for row in table.rows}
    macro = {plan: value(rows[plan]["macro"]) for plan in grid.values()}
    own = rows["k-center+transport@2"]
    assert value(own["hard"]) == pytest.approx(
        macro["k-center+transport@2"] - macro["k-center+drop@2"]
    )
    assert value(own["gmc"]) == pytest.approx(
        macro["k-center+transport@2"] - macro["gmc+transport@2"]
    )
    assert rows["gmc+drop@2"]["hard"] is None and rows["gmc+drop@2"]["gmc"] is None
    assert rows["gmc+transport@2"]["recovery"] == "grounded"
    with refused(RunError, "selector-recovery"):
        selector_recovery(find(tmp_path), (), OPTIONS, ("gmc-l16",))
