"""Tables of times: only what one process did, without its first question, beside Full."""

import numpy as np
import pytest

from tests.evaluate.tables import made
from vicoset.errors import RunError
from vicoset.evaluate.main import main
from vicoset.evaluate.tables import KINDS, Options, find
from vicoset.evaluate.tables.lineup import ALWAYS
from vicoset.evaluate.tables.records import FULL_KEY, Key
from vicoset.evaluate.tables.times import PARTS, Times

TASK = "tinybench-counting"
FEW = Options(replicates=400)


def clock(factor, slow_first=True, parts=False):
    """Seconds of a question; the first one warms up and takes a hundred times as long."""

    def seconds(index):
        whole = factor * (1 + 0.1 * (index % 7)) * (100 if slow_first and not index else 1)
        found = {"request": whole, "prompt": whole / 2}
        return found | dict.fromkeys(PARTS, whole / 40) if parts else found

    return seconds


@pytest.fixture
def out(tmp_path):
    items = made.drawn(TASK)
    told = {"process": "p"}
    made.run(tmp_path, TASK, items, chance=0.8, seconds=clock(2.0), **told)
    made.run(tmp_path, TASK, items, "gmc-h2", 128, seconds=clock(1.0, parts=True), **told)
    for seed, factor in enumerate((0.5, 1.5)):
        plan = ("random+drop@2", 128, seed)
        made.run(tmp_path, TASK, items, *plan, seconds=clock(factor, parts=True), **told)
    other = {"seconds": clock(0.1), "process": "another"}
    made.run(tmp_path, TASK, items, "grid+drop@2", 128, **other)
    return tmp_path


def row(table, plan):
    (found,) = [r for r in table.rows if r.values["plan"] == plan]
    return found


def test_runtime_by_hand(out):
    (table,) = KINDS["runtime"](find(out), (), FEW)
    number = len(made.drawn(TASK)) - 1
    factors = np.mean([1 + 0.1 * (i % 7) for i in range(1, number + 1)])
    full, gmc, drawn = (row(table, p).values for p in ("full", "gmc-h2", "random+drop@2"))
    assert full["seconds"].value == pytest.approx(2 * factors)
    assert full["speedup"] == 1.0 and gmc["speedup"].value == pytest.approx(2)
    # The same factor for every question: however they are drawn, the ratio stays.
    assert (gmc["speedup"].low, gmc["speedup"].high) == pytest.approx((2, 2))
    assert gmc["seconds"].low < gmc["seconds"].value < gmc["seconds"].high
    assert drawn["seconds"].value == pytest.approx(factors)  # the mean of two seeds
    assert drawn["prompt"] == pytest.approx(factors / 2)
    assert gmc["kept"] == 128 and gmc["work"] == pytest.approx(16.31, abs=0.01)
    assert (gmc["question"], drawn["question"]) == ("yes", "no")


def test_times_of_another_process_stand_alone(out):
    (table,) = KINDS["runtime"](find(out), (), FEW)
    grid = row(table, "grid+drop@2")
    assert "seconds" not in grid.values and not grid.command and grid.values["kept"] == 128
    assert any("No times for grid+drop@2 128" in note for note in table.notes)


def test_controls_are_always_there(out):
    for kind in ("runtime", "overhead"):
        (table,) = KINDS[kind](find(out), (), FEW)
        assert {r.values["plan"] for r in table.rows} >= {*ALWAYS, "full"}
        assert row(table, "downsample").command.endswith("--methods downsample --keeps 128")


def test_overhead_by_hand(out):
    (table,) = KINDS["overhead"](find(out), (), FEW)
    number = len(made.drawn(TASK)) - 1
    mean = 1000 * np.mean([1 + 0.1 * (i % 7) for i in range(1, number + 1)])
    gmc = row(table, "gmc-h2").values
    assert [gmc[part] for part in PARTS] == pytest.approx([mean / 40] * 4)
    assert gmc["total"].value == pytest.approx(mean / 10)
    assert gmc["share"].value == pytest.approx(10)  # a tenth of 1 beside half of 2
    assert gmc["prompt"] == pytest.approx(mean / 2)
    assert "total" not in row(table, "full").values


def test_the_papers_numbers_stand_beside_ours(out):
    (table,) = KINDS["runtime"](find(out), (), FEW)
    assert row(table, "gmc-h2").values["paper_speedup"] == 1.031
    assert row(table, "gmc-h2").values["paper_seconds"] == 0.3231
    (table,) = KINDS["overhead"](find(out), (), FEW)
    assert row(table, "gmc-h2").values["paper"] == 64.5
    assert row(table, "random+drop@2").values.get("paper") is None


def test_records_without_times_are_refused(tmp_path):
    items = made.drawn(TASK)
    made.run(tmp_path, TASK, items, seconds=lambda index: {})
    made.run(tmp_path, TASK, items, "gmc-h2", 128, seconds=lambda index: {})
    with pytest.raises(RunError, match="holds no times of Full"):
        KINDS["runtime"](find(tmp_path), (), FEW)


def test_two_processes_of_one_run_warm_up_twice(tmp_path):
    items = made.drawn(TASK)
    folder = made.run(tmp_path, TASK, items, seconds=clock(1.0), process="p")
    path = next(folder.path.glob("journal-*.jsonl"))
    half = len(items) // 2
    made.run(tmp_path / "b", TASK, items, seconds=clock(1.0), process="q")
    other = next((tmp_path / "b").rglob("journal-*.jsonl"))
    head, lines = path.read_bytes().splitlines(True), other.read_bytes().splitlines(True)
    path.write_bytes(b"".join([*head[: half + 1], *lines[half + 1 :]]))
    other.unlink()
    (folder.path.parent.parent / "b" / TASK).rename(tmp_path / "gone")
    times = Times.of(find(tmp_path, chosen=[folder]), FULL_KEY, (TASK,), FEW)
    assert times.questions == len(items) - 2
    assert Key("full") == FULL_KEY


def test_the_command(out, capsys):
    assert main(["table", "runtime", str(out), "--replicates", "50", "--paper", "never"]) == 0
    said = capsys.readouterr().out
    assert "| Speedup | Peak GiB |" in said and "(paper)" not in said
