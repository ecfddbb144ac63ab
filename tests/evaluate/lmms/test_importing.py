"""Sample logs of lmms-eval, written here in its form, become runs that statistics can compare."""

import json
from pathlib import Path
from typing import Any

import pytest

from tests.evaluate import data
from vicoset.errors import RunError, SettingError, UnknownNameError, UnreadableError
from vicoset.evaluate.folder import complete
from vicoset.evaluate.lmms.importing import import_log
from vicoset.evaluate.lmms.store import Store
from vicoset.evaluate.main import main
from vicoset.evaluate.records import load_runs
from vicoset.evaluate.shards import Shard
from vicoset.evaluate.statistics import Study
from vicoset.evaluate.tasks import task

HASH = "74234e98afe7498fb5daf1f36ac2d78acc339464f950703b8c019892f982b90b"  # of null, for every row


def rows(name: str, root: Path, said: list[str], **more: Any) -> list[dict[str, Any]]:
    """Rows as lmms-eval 0.7.3 writes them; the last ones first, since ranks come one by one."""
    found = []
    for place, (item, raw) in enumerate(zip(task(name).load(root), said, strict=True)):
        score = task(name).score(item, raw).score
        row = {
            "doc_id": place,
            "target": "?",
            "filtered_resps": raw.strip(),
            "token_counts": [{"input_tokens": 9, "output_tokens": 3}],
            "doc_hash": HASH,
            "pope_accuracy": {"question_id": "1", "score": score, "prediction": raw},
            "input": item.prompt.replace("single word or phrase", "word"),
            **more,
        }
        found.append(row if raw == raw.strip() else row | {"resps": raw})
    return found[::-1]


def logged(path: Path, found: list[dict[str, Any]]) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(json.dumps(row) + "\n" for row in found))
    return path


@pytest.fixture
def pope(tmp_path: Path) -> tuple[Path, Path, list[str]]:
    """Data, a log, and the answers in it."""
    root = data.pope(tmp_path / "pope")
    said = data.answers(task("pope").load(root))
    log = logged(tmp_path / "log" / "20261120_samples_pope.jsonl", rows("pope", root, said))
    return root, log, said


def test_a_log_is_a_run(pope: Any, tmp_path: Path) -> None:
    root, log, said = pope
    found = import_log(log, tmp_path / "runs", data=root, method="prumerge", keep="128", model="q")
    entries = complete(found.folder)
    assert [entry.raw for entry in entries] == said  # blanks included
    expected = [
        task("pope").score(i, r) for i, r in zip(task("pope").load(root), said, strict=True)
    ]
    assert [(e.normalised, e.stats, e.score) for e in entries] == expected
    assert 0 < sum(entry.score for entry in entries) < len(entries)
    assert {entry.new_tokens for entry in entries} == {3}
    assert (found.compared, found.differing) == (12, ())
    (run,) = load_runs(tmp_path / "runs")
    assert (run.info.method, run.info.keep, run.info.model) == ("prumerge", "128", "q")
    assert all(sample.cost is None for sample in run.samples)
    again = import_log(log, tmp_path / "runs", data=root, method="prumerge", keep="128", model="q")
    assert complete(again.folder) == entries


def test_runs_are_compared_in_pairs(pope: Any, tmp_path: Path) -> None:
    root, log, said = pope
    other = logged(tmp_path / "x_samples_pope.jsonl", rows("pope", root, ["yes"] * len(said)))
    for name, path in (("one", log), ("two", other)):
        import_log(path, tmp_path / "runs", data=root, method=name)
    runs = {run.info.method: run.samples for run in load_runs(tmp_path / "runs")}
    found = Study.of([task("pope")], runs, replicates=50).score("pope").minus("one").estimates()
    assert found["two"].value == 0.5 - sum(s.score for s in runs["one"]) / len(runs["one"])


def test_other_choices_score_other_answers(pope: Any, tmp_path: Path) -> None:
    """lmms-eval takes "yes." for wrong; LLaVA's convention does not, and the import says so."""
    root, log, _ = pope
    options = {"data": root, "method": "x"}
    found = import_log(log, tmp_path, choices={"parser": "llava"}, **options)  # type: ignore[arg-type]
    ours = {entry.sample_id: entry.score for entry in complete(found.folder)}
    strict = complete(import_log(log, tmp_path, **options).folder)  # type: ignore[arg-type]
    assert set(found.differing) == {e.sample_id for e in strict if ours[e.sample_id] != e.score}
    assert found.differing


def test_the_journal_knows_the_costs(pope: Any, tmp_path: Path) -> None:
    root, log, said = pope
    info = {"run_id": "r", "method": "gmc", "plan": "gmc@2", "keep": "4", "depth": 5}
    store = Store(tmp_path, "gmc@2-k4", {"run_id": "r", "info": info}, Shard(), repair=False)
    for row, raw in enumerate(said):
        cost = {"requested": "4", "tokens": 24, "boundaries": (2,), "kept_by_stage": (4,)}
        cost |= {"depth": 5, "work": 60, "support": None, "new_tokens": 2}
        about = {"key": f"pope/{row}/x", "task": "pope", "doc_id": row, "raw": raw}
        store.add({**about, "cost": cost})
    store.close()
    found = import_log(log, tmp_path / "runs", data=root, journal=store.path)
    entry = complete(found.folder)[0]
    assert (entry.kept, entry.work_share, entry.new_tokens) == (4, 0.5, 2)
    (run,) = load_runs(tmp_path / "runs")
    assert run.info.plan == "gmc@2" and run.info.run_id != "r" and run.info.tokens == 24
    changed = rows("pope", root, ["no", *said[1:]])
    with pytest.raises(RunError, match="has another answer to row 0"):
        import_log(logged(log, changed), tmp_path / "b", data=root, journal=store.path)


def test_what_does_not_fit_is_refused(pope: Any, tmp_path: Path) -> None:
    root, log, said = pope
    sound = rows("pope", root, said)

    def refused(found: list[dict[str, Any]], said: str, kind: type = RunError, **more: Any) -> None:
        with pytest.raises(kind, match=said):
            import_log(logged(log, found), tmp_path / "runs", data=root, method="x", **more)

    refused(sound[1:], r"11 rows and the task 12: rows \[11\] are missing")
    refused(sound, r"rows \[11, 10, 9, 8, 7\] are beyond its end", limit=7)
    refused([*sound, sound[0]], "row 11 twice", UnreadableError)
    swapped = [row | {"doc_id": {0: 1, 1: 0}.get(row["doc_id"], row["doc_id"])} for row in sound]
    refused(swapped, "allowed is the same question")
    refused([{"doc_id": 0, "filtered_resps": [["a", "b"]]}], "no sample of", UnreadableError)
    with pytest.raises(SettingError, match="--method NAME"):
        import_log(logged(log, sound), tmp_path / "runs", data=root)
    other = logged(tmp_path / "x_samples_mmmu_val.jsonl", sound)
    with pytest.raises(UnknownNameError, match="'mmmu_val'"):
        import_log(other, tmp_path / "runs", data=root, method="x")
    assert import_log(other, tmp_path / "runs", task="pope", data=root, method="x").compared == 12


def test_the_command(pope: Any, tmp_path: Path, capsys: Any) -> None:
    root, log, _ = pope
    command = ["import-lmms", str(log.parent), "--out", str(tmp_path / "runs")]
    command += ["--data", f"pope={root}", "--method", "full", "--model", "q"]
    assert main(command) == 0
    assert "pope: lmms-eval scored 12 answers one by one, 0 of them" in capsys.readouterr().err
    assert main([*command, "--choice", "pope=parser:llava"]) == 3
    assert "of them differently" in capsys.readouterr().err
    (log.parent / "20261121_samples_pope.jsonl").write_text("")
    assert main(command) == 2
    assert "several logs of pope" in capsys.readouterr().err
