"""Studies run every registered method on a model of a directory, and go on where they stopped."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests import checkpoints
from vicoset.cli.main import main
from vicoset.evaluate.folder import complete, folders
from vicoset.evaluate.tables.lineup import lineup

# What the tiny models cannot serve: published weights of 28 heads, a CLIP model for the question.
OUT = {"hawk+drop@0", "cdpruner+drop@0"}
DEPTH = 5
BUDGET = "9"


def study(kind: str, model: Path, out: Path, *more: str) -> int:
    words = ["evaluate", "study", kind, "--model", str(model), "--out", str(out)]
    task = [
        "--tasks",
        "tinybench",
        "--limit",
        "1",
        "--images",
        "1",
        "--seeds",
        "0",
        "--replicates",
        "20",
    ]
    return main([*words, *task, "--device", "cpu", *more])


@pytest.mark.parametrize("family", ["qwen2_5_vl", "llava"])
def test_every_method_runs_and_none_runs_twice(
    family: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    model = checkpoints.save(family, tmp_path / "model")
    assert study("fixed-k", model, tmp_path / "out", "--keeps", BUDGET) == 0
    said = capsys.readouterr()
    left = {line.split(": ")[1] for line in said.err.splitlines() if line.startswith("left out:")}
    known = {one.plan for one in lineup(DEPTH)}
    assert left <= known and left == OUT & known, said.err
    found = {folder.name: folder for folder in folders(tmp_path / "out")}
    plans = {
        json.loads((one.path / "run.json").read_text())["info"]["plan"] for one in found.values()
    }
    assert plans == {"full", *known} - left
    assert all(len(complete(one)) == 1 for one in found.values())
    written = {name: [p.read_bytes() for p in one.journals()] for name, one in found.items()}
    assert study("fixed-k", model, tmp_path / "out", "--keeps", BUDGET) == 0
    assert written == {
        one.name: [p.read_bytes() for p in one.journals()] for one in folders(tmp_path / "out")
    }
    assert capsys.readouterr().out == said.out  # the same table, from the same records


def test_equal_work_runs_what_has_a_budget(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    model = checkpoints.save("qwen2_5_vl", tmp_path / "model")
    some = "visionzip,fastv-h2,sparsevlm,mmtok+drop@0,downsample"
    assert study("equal-work", model, tmp_path / "out", "--methods", some, "--keeps", "9") == 0
    table = capsys.readouterr().out
    for name in some.split(","):
        assert f"| {name} |" in table, table
    assert "layer averages" in table  # what published names mean
