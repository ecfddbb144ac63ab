"""Whole runs of a tiny checkpoint by the command: stored, resumed, shared, cut, tabulated."""

import contextlib
import io
import json
import os
import re
import shlex
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from PIL import Image

from tests import checkpoints
from tests.evaluate import data
from vicoset.cli.main import main as command
from vicoset.evaluate import parquet
from vicoset.evaluate.folder import complete, folders
from vicoset.evaluate.main import main
from vicoset.evaluate.records import load_runs

ROOT = Path(__file__).parents[2]
METHODS = "gmc-h2,random+drop@2,downsample"
ITEMS = 6


class Place:
    """A checkpoint, and ChartQA as JSON beside image files."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.model = checkpoints.save("qwen2_5_vl", root / "model")
        self.data = chartqa(root / "chartqa")

    def arguments(self, out: Path, *more: str, data: Path | None = None) -> list[str]:
        where = ["--model", str(self.model), "--data", f"chartqa={data or self.data}"]
        return ["run", *where, "--tasks", "chartqa", "--out", str(out), "--keeps", "6", *more]


def chartqa(home: Path, items: int = ITEMS) -> Path:
    home.mkdir(parents=True)
    rows = []
    for i in range(items):
        Image.open(io.BytesIO(data.encoded(i))).save(home / f"{i}.png")
        row = {"type": "human_test", "question": f"How many in {i}?", "answer": str(i)}
        rows.append({**row, "image": f"{i}.png"})
    (home / "test.json").write_text(json.dumps(rows))
    return home


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    return Place(tmp_path_factory.mktemp("runs"))


@pytest.fixture(scope="module")
def whole(place):
    """A run with everything stored, and what the command printed."""
    out = place.root / "whole"
    code, said, _ = told(place.arguments(out, "--methods", METHODS, "--support", "--evidence"))
    assert code == 0 and len(said.split()) == 4
    return out


def told(argv, main=main):
    out, err = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        code = main(argv)
    return code, out.getvalue(), err.getvalue()


def journals(out):
    return {path: path.read_bytes() for path in out.rglob("journal-*.jsonl")}


def scores(out):
    """All that a run says, but for the clock, the memory and the process; support and evidence."""
    free = {"seconds": None, "peak_bytes": 0, "process": "", "support": None, "evidence": None}
    return json.dumps(
        {
            folder.name: [{**entry.to_json(), **free} for entry in complete(folder)]
            for folder in folders(out)
        },
        sort_keys=True,
    ).encode()


def test_entries_say_what_was_done(whole):
    runs = {run.info.plan: run for run in load_runs(whole)}
    assert runs.keys() == {"full", "gmc-h2", "random+drop@2", "downsample"}
    assert runs["gmc-h2"].info.query_aware and not runs["downsample"].info.query_aware
    entries = {folder.path.name.split("-k")[0]: complete(folder) for folder in folders(whole)}
    gmc = entries["gmc-h2"]
    assert {(e.tokens, e.kept, e.depth) for e in gmc} == {(24, 6, 5)}
    assert {e.work_share for e in gmc} == {(2 * 24 + 3 * 6) / (5 * 24)}
    assert all(len(e.support[0]) == 6 and "gmc@2" in e.evidence for e in gmc)
    parts = {"message", "selection", "transport", "compaction"}
    assert all(e.seconds.keys() >= {"prepare", "request", "prompt", "decode", *parts} for e in gmc)
    assert all(sum(e.seconds[part] for part in parts) < e.seconds["prompt"] for e in gmc)
    assert len({e.process for mine in entries.values() for e in mine}) == 1
    assert not sys.platform.startswith("linux") or all(e.peak_bytes > 1 << 20 for e in gmc)


def test_the_same_command_computes_nothing_and_full_is_shared(place, whole):
    before = journals(whole)
    code, _, said = told(place.arguments(whole, "--methods", METHODS))
    assert code == 0 and "24 answers, 24 of them there already" in said
    assert "24/24 (100%), 0.00/s, nothing left" in said
    assert journals(whole) == before
    code, _, said = told(place.arguments(whole, "--methods", "grid+drop@2"))
    assert code == 0 and "12 answers, 6 of them there already" in said
    assert before.items() <= journals(whole).items()


def test_two_shards_are_one(place, whole):
    out = place.root / "two"
    for shard in ("2/2", "1/2"):
        argv = place.arguments(out, "--methods", METHODS, "--shard", shard)
        assert told(argv)[0] == 0
    ours = json.loads(scores(whole))
    assert json.loads(scores(out)) == {name: ours[name] for name in json.loads(scores(out))}


def test_parquet_gives_the_entries_back(whole):
    code, said, _ = told(["finalize", str(whole)])
    assert code == 0
    for path in map(Path, said.split()):
        entries, facts = parquet.read(path)
        (folder,) = folders(path.parent)
        assert entries == complete(folder) and facts["digest"] == folder.digest


def test_an_unreadable_image_costs_one_sample(place, tmp_path):
    home = chartqa(tmp_path / "hurt")
    (home / "2.png").write_bytes(b"no picture")
    argv = place.arguments(tmp_path / "runs", "--methods", "gmc-h2", data=home)
    code, _, said = told(argv)
    assert code == 3 and f"{home}/2.png is no image" in said
    assert "2 samples failed; the same command tries them again." in said
    code, said, _ = told(["status", str(tmp_path / "runs")])
    assert code == 3 and said.count("5/6 (83%), 1 failed") == 2
    code, _, said = told(["merge", str(tmp_path / "runs")])
    assert code == 2 and "lacks 1 of 6 samples, 1 of them failed: 00002" in said
    (home / "3.png").unlink()
    code, _, said = told(argv)
    assert code == 2 and "3.png cannot be read" in said and "Traceback" not in said


def test_a_missing_row_names_the_command_that_makes_it(place, whole):
    table = ["table", "fixed-k", str(whole), "--replicates", "50"]
    _, said, _ = told(table)
    rows = [line for line in said.splitlines() if line.startswith("- missing rows: ")]
    assert len(rows) == 1 and "gmc-l16" in rows[0].split("--methods ")[1].split()[0]
    for row in rows:
        command = shlex.split(row.partition("`")[2].partition("`")[0])
        assert command[:3] == ["python", "-m", "vicoset.evaluate"]
        assert told(command[3:])[0] == 0
    assert "missing" not in told(table)[1]


def test_one_command_runs_and_writes_a_table(place, whole):
    argv = place.arguments(whole)[1:-2]
    argv = ["study", "fixed-k", *argv, "--keeps", "6", "--methods", "fastv-h2", "--seeds", "0"]
    argv += ["--replicates", "50", "--to", str(place.root / "table")]
    code, said, err = told(argv)
    assert code == 0, err
    assert {Path(line).suffix for line in said.splitlines()} == {".md", ".csv", ".tex"}
    page = (place.root / "table.md").read_text()
    for plan in ("full", "gmc-h2", "fastv-h2", "random+drop@2", "grid+drop@2", "downsample"):
        assert f"| {plan} |" in page
    assert "missing" not in page


@pytest.mark.parametrize(
    ("more", "said"),
    [
        (["--data", "chatqa=x"], "task 'chatqa'; .* Did you mean 'chartqa'"),
        (["--choice", "chartqa=unti:image"], "Did you mean unit"),
        (["--methods", "gmc-h3"], "'gmc-h3' is no plan"),
        (["--keeps", "many"], "budget 'many'"),
        (["--limit", "0"], "--limit 0; allowed are numbers from 1 on"),
        (["--batch", "0"], "--batch 0"),
        (["--seeds", "a"], "--seeds 'a'"),
        (["--shard", "3/2"], "shard 3/2"),
        (["--prefix", "dens"], "--prefix dens; allowed are gathered, dense, replay"),
        (["--tasks", "chart"], "task 'chart'; .*Did you mean 'chartqa'"),
        (["--tasks", "gqa"], "gqa got no data; .* Pass --data gqa=PATH"),
    ],
)
def test_what_cannot_run_is_said_before_a_model_is_loaded(place, tmp_path, more, said):
    argv = place.arguments(tmp_path / "runs", "--model", str(tmp_path / "no model"), *more)
    code, _, err = told(argv)
    assert code == 2 and len(err.splitlines()) == 1, err
    assert re.search(said, err), err
    assert not (tmp_path / "runs").exists()


def test_every_image_in_one_size(place, tmp_path):
    """The stock bound of 64 x 64 pixels moves along; 8 pixels a token."""
    methods = ["--methods", "gmc-h2,downsample"]
    records = ["--records", str(tmp_path / "records.jsonl")]
    code, _, err = told(place.arguments(tmp_path, *methods, "--square", "96", *records))
    assert code == 0, err
    again = ["verify", records[1], "--model", str(place.model), "--limit", "2"]
    assert told(again, command)[0] == 0  # asked again in the same size
    for folder in folders(tmp_path):
        assert {entry.tokens for entry in complete(folder)} == {144}
        assert folder.facts["identity"]["model"]["square"] == 96
    code, _, err = told(place.arguments(tmp_path, "--square", "100"))
    assert code == 2 and "square=100; allowed are multiples of the 8 pixels" in err
    assert "The nearest is 96." in err


def test_options_that_the_machine_lacks(place, tmp_path):
    for more in (["--attention", "fancy"], ["--device", "moon"]):
        code, _, err = told(place.arguments(tmp_path, *more))
        assert code == 2 and f"{more[0][2:]} '{more[1]}' does not work here" in err


def launched(argv, *launcher):
    paths = {"PYTHONPATH": str(ROOT / "src"), "OMP_NUM_THREADS": "1", "HF_HUB_OFFLINE": "1"}
    return subprocess.Popen(
        [sys.executable, *launcher, "-m", "vicoset.evaluate", *argv],
        env={**os.environ, **paths},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


@pytest.mark.slow
def test_torchrun(place, whole):
    out = place.root / "torchrun"
    argv = place.arguments(out, "--methods", METHODS)
    process = launched(argv, "-m", "torch.distributed.run", "--nproc-per-node=2")
    _, said = process.communicate(timeout=900)
    assert process.returncode == 0, said
    assert len(list(out.rglob("journal-*of2.jsonl"))) == 8
    ours = json.loads(scores(whole))
    assert json.loads(scores(out)) == {name: ours[name] for name in json.loads(scores(out))}


@pytest.mark.slow
def test_killed_twenty_times_with_a_model(place, tmp_path):
    """SIGKILL after one or two more answers each time, or in the middle of one; then to the end."""
    home = chartqa(tmp_path / "data", 18)
    assert told(place.arguments(tmp_path / "whole", "--methods", METHODS, data=home))[0] == 0
    out, kills = tmp_path / "killed", 0
    while kills < 20:
        process = launched(place.arguments(out, "--methods", METHODS, data=home))
        goal = sum(found.count(b"\n") for found in journals(out).values()) + (4 if not kills else 2)
        while sum(found.count(b"\n") for found in journals(out).values()) < goal:
            assert process.poll() is None, process.communicate()[1]
            time.sleep(0.002)
        time.sleep(0.004 * kills)
        process.send_signal(signal.SIGKILL)
        process.communicate()
        assert process.returncode == -signal.SIGKILL
        kills += 1
    assert told(place.arguments(out, "--methods", METHODS, data=home))[0] == 0
    assert scores(out) == scores(tmp_path / "whole")


@pytest.mark.slow
def test_ctrl_c_says_how_to_go_on(place, tmp_path):
    argv = place.arguments(tmp_path / "runs", "--methods", METHODS)
    process = launched(argv)
    while not journals(tmp_path) or max(map(len, journals(tmp_path).values())) < 500:
        assert process.poll() is None, process.communicate()[1]
        time.sleep(0.005)
    process.send_signal(signal.SIGINT)
    _, said = process.communicate()
    assert process.returncode == 130, said
    assert "Every finished sample is stored; go on with" in said and "Traceback" not in said
    again = shlex.split(said.strip().splitlines()[-1])
    assert again == ["python", "-m", "vicoset.evaluate", *argv]
    assert told(again[3:])[0] == 0
