"""lmms-eval itself runs our model through the plug-in, offline; its scores are our runner's."""

from __future__ import annotations

import contextlib
import io
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from tests import checkpoints
from tests.evaluate import data
from vicoset.evaluate import tasks
from vicoset.evaluate.folder import complete, folders
from vicoset.evaluate.main import main
from vicoset.evaluate.records import load_runs
from vicoset.evaluate.statistics.units import unit_sums

KEEP = 6
# Task -> our metric ("" for its own value) -> lmms-eval's name of it.
SHIPPED = {
    "textvqa": {"": "exact_match"},
    "chartqa": {
        "": "relaxed_overall",
        "human": "relaxed_human_split",
        "augmented": "relaxed_augmented_split",
    },
    "docvqa": {"": "anls"},
    "gqa": {"": "exact_match"},
    "mmbench": {"": "gpt_eval_score"},
    "mme": {"perception": "mme_perception_score", "cognition": "mme_cognition_score"},
    "pope": {
        "": "pope_accuracy",
        "precision": "pope_precision",
        "recall": "pope_recall",
        "f1": "pope_f1_score",
    },
    "hallusionbench": {"": "aAcc", "q_acc": "qAcc", "f_acc": "fAcc"},
}
OURS = {"amber": {"": "value"}, "tinybench-counting": {"": "value"}}
PERCENT = ("mmbench",)
FAMILIES = ("qwen2_5_vl", "llava")


class Place:
    """A checkpoint, the data of all tasks, and the commands that both sides are asked with."""

    def __init__(self, root: Path, family: str) -> None:
        self.root = root
        self.model = checkpoints.save(family, root / "model")
        self.data: dict[str, Path] = {}
        for name in (*SHIPPED, "amber"):
            self.data[name] = getattr(data, name)(root / "data" / name)
        self.taught = self._taught()

    @property
    def asked(self) -> list[str]:
        """Where the data lie, and tinybench small enough for a test."""
        found = [f"--data={name}={path}" for name, path in self.data.items()]
        return [*found, "--choice=tinybench-counting=images:6,model:llava"]

    def ours(self, out: Path, methods: str = "gmc-h2") -> None:
        """Our runner."""
        argv = ["run", "--model", str(self.model), "--out", str(out), "--methods", methods]
        argv += ["--keeps", str(KEEP), "--no-full", "--allow-uncertified", *self.asked]
        with contextlib.redirect_stdout(io.StringIO()):
            assert main([*argv, "--tasks", ",".join((*SHIPPED, *OURS))]) == 0

    def theirs(self, name: str, *more: str, **options: Any) -> subprocess.Popen[str]:
        """lmms-eval, in another process."""
        asked = {"plan": "gmc-h2", "keep": KEEP, **options}
        told = ",".join(f"{key}={value}" for key, value in asked.items())
        told = f"pretrained={self.model},journal={self.root / name / 'journal'},{told}"
        local = ",".join(f"{task}_local" for task in (*SHIPPED, *OURS))
        argv = ["-m", "lmms_eval", "--model", "vicoset", "--model_args", told, "--batch_size", "1"]
        argv += ["--include_path", str(self.root / "tasks"), "--tasks", local, "--log_samples"]
        argv += ["--output_path", str(self.root / name / "out")]
        quiet = {"HF_HUB_OFFLINE": "1", "HF_DATASETS_OFFLINE": "1", "OMP_NUM_THREADS": "1"}
        return subprocess.Popen(
            [sys.executable, *more, *argv],
            env={**os.environ, **quiet, "HF_HOME": str(self.root / "home")},
            cwd=self.root,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )

    def _taught(self) -> int:
        """Put answers of the model itself among the references, so that some of them are right."""
        self.ours(self.root / "first", "full,gmc-h2")
        said: dict[str, list[str]] = {}
        for folder in folders(self.root / "first"):
            if "gmc" in folder.path.name:
                said[folder.task] = [entry.raw.strip() for entry in complete(folder)]
        for name, column in (("chartqa", "answer"), ("gqa", "answer"), ("docvqa", "answers")):
            self._rewrite(name, column, said[name])
        return sum(map(len, said.values()))

    def _rewrite(self, name: str, column: str, said: list[str]) -> None:
        import pyarrow as pa
        import pyarrow.parquet as pq

        parts = {"gqa": "testdev_balanced_instructions", "docvqa": "DocVQA"}
        (file,) = (self.data[name] / parts.get(name, "data")).glob("*.parquet")
        rows = pq.read_table(file).to_pylist()
        for place, (row, answer) in enumerate(zip(rows, said, strict=True)):
            if place % 2:
                row[column] = [answer, "else"] if column == "answers" else answer
        pq.write_table(pa.Table.from_pylist(rows), file)


@pytest.fixture(scope="module", params=FAMILIES)
def place(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Place:
    """One for all tests of a family; the task files are there."""
    found = Place(tmp_path_factory.mktemp(request.param), request.param)
    argv = ["prepare-tasks", "--out", str(found.root / "tasks"), *found.asked]
    with contextlib.redirect_stdout(io.StringIO()):
        assert main([*argv, "--tasks", ",".join((*SHIPPED, *OURS))]) == 0
        found.ours(found.root / "ours")
    return found


def values(out: Path) -> dict[str, dict[str, float]]:
    """What our runs are worth: task -> metric -> value."""
    (run,) = load_runs(out)
    found = {}
    for name in (*SHIPPED, *OURS):
        task = tasks.task(name)
        sums = unit_sums(name, {"m": run.samples}).totals(task.stratified)
        more = {metric: float(one.aggregate(sums)[0]) for metric, one in task.metrics.items()}
        found[name] = {"": float(task.aggregate(sums)[0]), **more}
    return found


def results(out: Path) -> dict[str, Any]:
    (file,) = out.rglob("2*_results.json")  # MMBench leaves one of its own
    found: dict[str, Any] = json.loads(file.read_text())["results"]
    return found


def finished(process: subprocess.Popen[str]) -> str:
    said = process.communicate(timeout=600)[0]
    assert process.returncode == 0, said[-4000:]
    return said


def check(place: Place, name: str) -> None:
    theirs, ours = results(place.root / name / "out"), values(place.root / "ours")
    for task, metrics in {**SHIPPED, **OURS}.items():
        for metric, shown in metrics.items():
            value = theirs[f"{task}_local"][f"{shown},none"]
            value = value / 100 if task in PERCENT else value
            assert ours[task][metric] == pytest.approx(value, abs=1e-12), (task, metric)
    for task in ("chartqa", "gqa", "docvqa"):
        assert 0 < ours[task][""] < 1  # not all wrong: the comparison says something


def test_scores_are_those_of_our_runner(place: Place) -> None:
    finished(place.theirs("one"))
    check(place, "one")


def test_its_logs_are_runs_of_ours(place: Place) -> None:
    """Imported with the journal, every answer has our answer's text, score and cost."""
    (journal,) = (place.root / "one" / "journal").glob("gmc-h2-*")
    logs = sorted((place.root / "one" / "out").rglob("*_samples_*.jsonl"))
    argv = ["import-lmms", *map(str, logs), "--out", str(place.root / "brought")]
    with contextlib.redirect_stdout(io.StringIO()):
        assert main([*argv, "--journal", str(journal), *place.asked]) == 0
    mine = {folder.task: complete(folder) for folder in folders(place.root / "ours")}
    brought = {folder.task: complete(folder) for folder in folders(place.root / "brought")}
    assert mine.keys() == brought.keys() == {*SHIPPED, *OURS}
    for task, entries in mine.items():
        for one, other in zip(entries, brought[task], strict=True):
            free = {"seconds": None, "peak_bytes": 0, "process": ""}
            ours, theirs = ({**e.to_json(), **free} for e in (one, other))
            ours["raw"], theirs["raw"] = ours["raw"].strip(), theirs["raw"].strip()
            assert ours == theirs
            assert one.kept == KEEP < one.tokens


def test_a_killed_run_goes_on(place: Place) -> None:
    """Shot in the middle, run again: what the journal has is not computed again."""
    process, file = place.theirs("two"), None
    end = time.monotonic() + 300
    while process.poll() is None and time.monotonic() < end:
        found = list((place.root / "two" / "journal").glob("gmc-h2-*/journal-1of1.jsonl"))
        if found and found[0].read_bytes().count(b"\n") > place.taught // 4:
            file = found[0]
            process.send_signal(signal.SIGKILL)
            break
        time.sleep(0.01)
    process.communicate()
    assert process.returncode == -signal.SIGKILL and file is not None
    before = file.read_bytes()
    before = before[: before.rfind(b"\n") + 1]
    finished(place.theirs("two"))
    assert file.read_bytes().startswith(before)
    whole = next((place.root / "one" / "journal").glob("gmc-h2-*/journal-1of1.jsonl"))
    assert file.read_bytes().count(b"\n") == whole.read_bytes().count(b"\n")
    check(place, "two")


def test_two_processes_of_torchrun(place: Place) -> None:
    if place.model.parent.name.startswith("llava"):
        pytest.skip("one family is enough: sharding is lmms-eval's")
    finished(place.theirs("both", "-m", "torch.distributed.run", "--nproc-per-node=2"))
    check(place, "both")
    assert len(list((place.root / "both" / "journal").rglob("journal-*of2.jsonl"))) == 2


def test_what_is_refused_is_said(place: Place) -> None:
    said = place.theirs("no", kep=4).communicate()[0]
    assert "--model_args got kep=4" in said and "Did you mean keep?" in said
