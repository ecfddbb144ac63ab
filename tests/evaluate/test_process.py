"""Runs that are killed, cut into shards, damaged, interrupted or partly failing."""

import json
import os
import random
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.evaluate import fake
from vicoset.errors import JournalError, RunError
from vicoset.evaluate.folder import complete
from vicoset.evaluate.interrupt import Interrupted
from vicoset.evaluate.progress import Log

ROOT = Path(__file__).parents[2]


class Told(Log):
    """A log whose lines a test reads."""

    def __init__(self):
        self.lines = []
        super().__init__("test", every=0.0)

    def say(self, text):
        self.lines.append(text)


def start(out, **options):
    """Another process on the same run."""
    paths = os.pathsep.join([str(ROOT / "src"), str(ROOT)])
    return subprocess.Popen(
        [sys.executable, "-m", "tests.evaluate.fake", json.dumps({"out": str(out), **options})],
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": paths},
        stderr=subprocess.PIPE,
        text=True,
    )


def lines_of(out):
    return sum(path.read_bytes().count(b"\n") for path in out.rglob("journal-*.jsonl"))


def when(condition, process, seconds=60.0):
    """Wait until a condition holds or the process is over."""
    end = time.monotonic() + seconds
    while not condition() and process.poll() is None:
        assert time.monotonic() < end, "the other process got nowhere"
        time.sleep(0.002)


def killed(tmp_path, batch, shots):
    """Shoot a run so often, let it end, compare; gives how many shots hit a half written line."""
    count, draw = 60, random.Random(batch)
    fake.run(tmp_path / "whole", count, batch=batch)
    out, kills, torn = tmp_path / "killed", 0, 0
    while kills < shots:
        process = start(out, count=count, batch=batch, pause=0.001)
        goal = lines_of(out) + draw.randint(0, 5)
        when(lambda goal=goal: lines_of(out) >= goal, process)
        time.sleep(draw.random() * 0.004)
        process.kill()
        process.communicate()
        if process.returncode != -signal.SIGKILL:
            break
        kills += 1
        torn += any(p.read_bytes()[-1:] not in (b"\n", b"") for p in out.rglob("journal-*.jsonl"))
    assert kills == shots, "the run was over too early"
    fake.run(out, count, batch=batch)
    assert bool(torn) == any(out.rglob("*.torn-*"))
    assert fake.scores(out, count) == fake.scores(tmp_path / "whole", count)
    return torn


@pytest.mark.parametrize(("batch", "shots"), [(1, 4), (4, 2)])
def test_killed_some_times_it_says_the_same(tmp_path, batch, shots):
    killed(tmp_path, batch, shots)


@pytest.mark.slow
@pytest.mark.parametrize("batch", [1, 4])
def test_killed_twenty_times_it_says_the_same(tmp_path, batch):
    assert killed(tmp_path, batch, 20), "no shot hit a half written line"


@pytest.mark.parametrize("count", [1, 2, 30, 31])
@pytest.mark.parametrize("batch", [1, 4])
def test_shards_are_the_whole(tmp_path, count, batch):
    fake.run(tmp_path / "one", count, batch=batch)
    for number in range(1, 4):
        fake.run(tmp_path / "three", count, f"{number}/3", batch=batch)
    assert fake.scores(tmp_path / "three", count) == fake.scores(tmp_path / "one", count)


def test_another_number_of_shards_goes_on_where_the_first_stopped(tmp_path):
    fake.run(tmp_path, shard="2/3")
    told = Told()
    for number in (1, 2):
        fake.run(tmp_path, shard=f"{number}/2", progress=told)
    assert [line for line in told.lines if "already" in line] == [
        "30 answers, 10 of them there already",
        "30 answers, 10 of them there already",
    ]
    fake.run(tmp_path / "whole")
    assert fake.scores(tmp_path) == fake.scores(tmp_path / "whole")


def test_what_is_there_is_not_computed_again(tmp_path):
    fake.run(tmp_path)
    before = fake.scores(tmp_path)
    fake.run(tmp_path, answers=[None, None], prepare=None)
    assert fake.scores(tmp_path) == before


def journal_of(out):
    return fake.folders(out, 30)[0].path / "journal-1of1.jsonl"


def damaged(path, number):
    lines = path.read_bytes().splitlines(keepends=True)
    found = json.loads(lines[number - 1])["line"]["sample_id"]
    lines[number - 1] = lines[number - 1].replace(b'"score":0.', b'"score":1.')
    path.write_bytes(b"".join(lines))
    return found


def asked(names):
    """Answers that note which samples they were asked for."""

    def noting(name):
        def answer(block, prepared):
            names.extend(block.ids)
            return fake.answer(name)(block, prepared)

        return answer

    return [noting(name) for name in fake.NAMES]


def test_a_corrupted_last_line_costs_that_sample(tmp_path):
    fake.run(tmp_path / "whole")
    fake.run(tmp_path / "hurt")
    lost = damaged(journal_of(tmp_path / "hurt"), 31)
    told, names = Told(), []
    fake.run(tmp_path / "hurt", answers=asked(names), progress=told)
    assert names == [lost]
    assert any("kept as journal-1of1.torn-1" in line for line in told.lines)
    assert fake.scores(tmp_path / "hurt") == fake.scores(tmp_path / "whole")


def test_corruption_in_the_middle_is_refused_or_repaired(tmp_path):
    fake.run(tmp_path / "whole")
    fake.run(tmp_path / "hurt")
    path = journal_of(tmp_path / "hurt")
    lost = [damaged(path, number) for number in (5, 9)]
    with pytest.raises(JournalError, match=r"journal-1of1\.jsonl is damaged in line 5, 9"):
        fake.run(tmp_path / "hurt")
    told, names = Told(), []
    fake.run(tmp_path / "hurt", repair=True, answers=asked(names), progress=told)
    assert names == lost
    assert fake.scores(tmp_path / "hurt") == fake.scores(tmp_path / "whole")


def test_damage_in_another_shard_is_refused_or_repaired_too(tmp_path):
    for number in (1, 2):
        fake.run(tmp_path, shard=f"{number}/2")
    path = journal_of(tmp_path).with_name("journal-2of2.jsonl")
    lost = damaged(path, 4)
    with pytest.raises(JournalError, match=r"journal-2of2\.jsonl is damaged in line 4"):
        fake.run(tmp_path, shard="1/1")
    names = []
    fake.run(tmp_path, shard="1/1", repair=True, answers=asked(names))
    assert names == [lost]


def test_a_sample_that_is_missing_is_named(tmp_path):
    fake.run(tmp_path, shard="1/2")
    named = r"lacks 15 of 30 samples: q15, q16, .*, 'q21\\n☃', .* and 5 more"
    with pytest.raises(RunError, match=named):
        fake.scores(tmp_path)


def test_a_doubled_sample_is_named_with_its_places(tmp_path):
    fake.run(tmp_path)
    path = journal_of(tmp_path)
    lines = path.read_bytes().splitlines(keepends=True)
    path.with_name("journal-2of3.jsonl").write_bytes(lines[0] + lines[4])
    with pytest.raises(
        RunError, match=r"q3 \(journal-1of1\.jsonl line 5, journal-2of3\.jsonl line 2\)"
    ):
        fake.scores(tmp_path)


def test_a_foreign_journal_is_refused(tmp_path):
    fake.run(tmp_path)
    mine, other = fake.folders(tmp_path, 30)
    (other.path / "journal-1of1.jsonl").replace(mine.path / "journal-2of2.jsonl")
    with pytest.raises(RunError, match=f"belongs to the run {other.digest}"):
        complete(mine)


def test_a_foreign_sample_is_named(tmp_path):
    fake.run(tmp_path)
    folder = fake.folders(tmp_path, 30)[0]
    (folder.path / "ids.json").write_text(json.dumps(list(folder.ids[:-1])))
    with pytest.raises(RunError, match="samples that its task does not have: q29"):
        complete(type(folder)(folder.path, folder.facts, folder.ids[:-1]))


def test_a_directory_holds_one_run(tmp_path):
    fake.folders(tmp_path, 30)
    with pytest.raises(RunError, match=r"of 30 samples, not .* of 31"):
        fake.folders(tmp_path, 31)


def test_two_writers_of_a_shard(tmp_path):
    first = start(tmp_path, count=30, pause=0.05)
    when(lambda: lines_of(tmp_path) >= 4, first)
    second = start(tmp_path, count=30)
    said = second.communicate()[1]
    first.kill()
    first.communicate()
    assert second.returncode == 1 and f"held by process {first.pid}" in said, said
    fake.run(tmp_path)  # the lock went with its holder
    fake.run(tmp_path / "whole")
    assert fake.scores(tmp_path) == fake.scores(tmp_path / "whole")


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM], ids=lambda n: n.name)
def test_a_signal_leaves_whole_lines(tmp_path, number):
    process = start(tmp_path, count=30, pause=0.01)
    when(lambda: lines_of(tmp_path) >= 6, process)
    process.send_signal(number)
    said = process.communicate()[1]
    assert process.returncode != 0 and f"stopped by {number.name}" in said, said
    assert all(path.read_bytes().endswith(b"\n") for path in tmp_path.rglob("journal-*.jsonl"))
    assert re.search(r"fake: \d+/60 \(\d+%\), [\d.]+/s, .* left", said), said
    fake.run(tmp_path)
    fake.run(tmp_path / "whole")
    assert fake.scores(tmp_path) == fake.scores(tmp_path / "whole")


def test_a_time_limit_leaves_a_run_that_goes_on(tmp_path):
    slow = [fake.answer(name, pause=0.01) for name in fake.NAMES]
    with pytest.raises(Interrupted, match=r"stopped after 0\.05 s"):
        fake.run(tmp_path, answers=slow, seconds=0.05)
    assert 2 < lines_of(tmp_path) < 62
    fake.run(tmp_path)
    fake.scores(tmp_path)


@pytest.mark.parametrize("ahead", [0, 2])
@pytest.mark.parametrize("batch", [1, 4])
def test_a_failing_sample_fails_alone_and_is_tried_again(tmp_path, batch, ahead):
    bad = [fake.answer(name, bad=["q5"]) for name in fake.NAMES]
    told = Told()
    failures = fake.run(tmp_path, batch=batch, answers=bad, progress=told, ahead=ahead)
    assert [failure.sample_id for _, failure in failures] == ["q5", "q5"]
    assert all("ValueError: cannot answer q5" in failure.error for _, failure in failures)
    assert "2 failed" in told.lines[-1]
    with pytest.raises(RunError, match="lacks 1 of 30 samples, 1 of them failed: q5"):
        fake.scores(tmp_path)
    names = []
    assert fake.run(tmp_path, batch=batch, answers=asked(names)) == ()
    assert names == (["q5"] if batch == 1 else ["q4", "q5", "q6", "q7\n☃"]) * 2
    entries = json.loads(fake.scores(tmp_path))
    alone = [one["sample_id"] for one in entries if one["notes"]]
    assert alone == ([] if batch == 1 else ["q4", "q6", "q7\n☃"] * 2)


def test_an_unreadable_image_costs_its_sample(tmp_path):
    def broken(block):
        if "q5" in block.ids:
            raise OSError("q5.png is broken")
        return fake.prepare(block)

    failures = fake.run(tmp_path, prepare=broken, batch=4)
    assert [failure.error for _, failure in failures] == ["OSError: q5.png is broken"] * 2


def test_a_run_in_which_everything_fails_is_stopped(tmp_path):
    ids = [item.sample_id for item in fake.items(60)]
    bad = [fake.answer(name, bad=ids) for name in fake.NAMES]
    with pytest.raises(RunError, match=r"20 samples .* failed one after the other"):
        fake.run(tmp_path, 60, answers=bad)
    fake.run(tmp_path, 60)
    fake.scores(tmp_path, 60)


def test_doubled_ids_of_a_task_are_refused(tmp_path):
    from vicoset.evaluate.folder import create

    with pytest.raises(RunError, match="sample ids b more than once"):
        create(tmp_path, "m", {"task": "t", "digest": "0" * 16}, ["a", "b", "b"])


def test_a_full_disk_stops_the_run_and_loses_nothing(tmp_path, monkeypatch):
    from vicoset.evaluate import journal

    real, room = os.write, [25]

    def write(handle, data):
        room[0] -= 1
        if room[0] < 0:
            raise OSError(28, "No space left on device")
        return real(handle, data)

    with monkeypatch.context() as patch:
        patch.setattr(journal, "_write", write)
        with pytest.raises(JournalError, match="No space left"):
            fake.run(tmp_path)
    assert lines_of(tmp_path) == 25
    fake.run(tmp_path)
    fake.run(tmp_path / "whole")
    assert fake.scores(tmp_path) == fake.scores(tmp_path / "whole")


def test_the_next_block_is_read_while_one_is_answered(tmp_path):
    ready, seen = set(), []

    def prepare(block):
        ready.add(block.first)
        return fake.prepare(block)

    def waiting(block, prepared):
        end = time.monotonic() + 10
        while block.first < 29 and block.first + 1 not in ready and time.monotonic() < end:
            time.sleep(0.001)
        seen.append(block.first == 29 or block.first + 1 in ready)
        return fake.answer("full")(block, prepared)

    fake.run(tmp_path, prepare=prepare, ahead=1, answers=[waiting, fake.answer("gmc-h2-k128")])
    assert len(seen) == 30 and all(seen)
