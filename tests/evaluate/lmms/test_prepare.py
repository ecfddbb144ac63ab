"""Task files for lmms-eval name local files by absolute paths and nothing on a hub."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import yaml

from tests.evaluate import data
from vicoset.errors import RunError, SettingError, UnsupportedError
from vicoset.evaluate.lmms import guest, prepare
from vicoset.evaluate.main import main
from vicoset.evaluate.tasks import task


class Loader(yaml.SafeLoader):
    """Names of functions as texts."""


Loader.add_constructor("!function", lambda loader, node: f"<{node.value}>")


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty directory, with lmms-eval's tasks pretended to lie in another one."""
    monkeypatch.setattr(prepare, "lmms_tasks", lambda: Path("/lmms/tasks"))
    return tmp_path


def prepared(name: str, root: Path | None, home: Path, **choices: Any) -> dict[str, Any]:
    paths = {} if root is None else {name: str(root)}
    (path,) = prepare.prepare([name], paths, {name: choices}, home / "tasks")
    found: dict[str, Any] = yaml.load(path.read_text(), Loader)
    return found


@pytest.mark.parametrize("name", prepare.SHIPPED)
def test_files_are_those_that_our_task_reads(name: str, home: Path) -> None:
    root = getattr(data, name)(home / "data")
    found, ours = prepared(name, root, home), task(name)
    shipped = prepare.SHIPPED[name]
    assert found["include"] == f"/lmms/tasks/{shipped.file}" and found["task"] == f"{name}_local"
    assert (found["dataset_path"], found["dataset_name"]) == ("parquet", None)
    (files,) = found["dataset_kwargs"]["data_files"].values()
    assert list(found["dataset_kwargs"]["data_files"]) == [shipped.split]
    sources = {str(p.source) for item in ours.load(root) for p in item.pictures}
    assert name == "gqa" or set(files) == sources
    assert all(Path(file).is_absolute() and Path(file).is_file() for file in files)
    assert found["generation_kwargs"]["max_new_tokens"] == ours.limit


def test_gqa_takes_its_pictures_from_their_own_table(home: Path) -> None:
    root = data.gqa(home / "data")
    found = prepared("gqa", root, home)
    assert found["process_docs"] is None  # the shipped one asks a hub
    assert found["doc_to_visual"] == "<gqa_album.visual>"
    names: dict[str, Any] = {}
    exec((home / "tasks" / "gqa_album.py").read_text(), names)
    for item in task("gqa").load(root):
        (image,) = names["visual"]({"imageId": item.unit_id.removeprefix("image ")})
        assert image.tobytes() == item.pictures[0].read().tobytes()


def test_nothing_asks_a_judge(home: Path) -> None:
    for name in ("hallusionbench", "mmbench"):
        found = prepared(name, getattr(data, name)(home / name), home)
        how = [metric["aggregation"] for metric in found["metric_list"]]
        assert all("intern" in one or "static" in one for one in how)


def test_json_gets_absolute_paths(home: Path) -> None:
    root = home / "data"
    (root / "images").mkdir(parents=True)
    (root / "images" / "ä.png").write_bytes(data.encoded(0))
    row = {"type": "human_test", "question": "Wie?", "answer": "1", "image": "images/ä.png"}
    (root / "test.json").write_text(json.dumps([row, row]))
    found = prepared("chartqa", root, home)
    (file,) = found["dataset_kwargs"]["data_files"]["test"]
    read = [json.loads(line) for line in Path(file).read_text().splitlines()]
    assert found["dataset_path"] == "json" and len(read) == 2
    assert read[0] == row | {"image": str(root / "images" / "ä.png")}


def test_a_task_that_lmms_eval_lacks_is_ours(home: Path) -> None:
    root = data.amber(home / "data")
    found = prepared("amber", root, home, count=3)
    items = task("amber").load(root, count=3)
    (file,) = found["dataset_kwargs"]["data_files"]["test"]
    docs = [json.loads(line) for line in Path(file).read_text().splitlines()]
    assert [guest.text(doc) for doc in docs] == [item.prompt for item in items]
    assert [guest.visual(doc)[0].size for doc in docs] == [(48, 32)] * 3
    assert json.loads(guest.target(docs[0])) == items[0].references
    said = [guest.process(doc, [raw]) for doc, raw in zip(docs, ("yes", "no", "well"), strict=True)]
    scores = [
        task("amber").score(i, r).score for i, r in zip(items, ("yes", "no", "well"), strict=True)
    ]
    assert [one["score"] for one in said] == scores
    assert guest.aggregate([one["value"] for one in said]) == np.mean(scores)
    with pytest.raises(RunError, match="is not any more"):
        guest.text(docs[0] | {"sample_id": "7"})


def test_groups_and_strata_count_in_a_guest_value(tmp_path: Path) -> None:
    """MME needs its pairs and categories; here as if lmms-eval lacked it."""
    docs = guest.rows("mme", str(data.mme(tmp_path)), {})
    said = [guest.process(doc, ["yes"])["value"] for doc in docs]
    assert guest.aggregate(said[::-1]) == 5 * 50.0


def test_refusals(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(SettingError, match="pass them to import-lmms"):
        prepared("pope", data.pope(home / "data"), home, parser="llava")
    monkeypatch.undo()
    for answer, said in (("0.3.5", r"0\.7\.x"), (None, "is not installed here")):
        monkeypatch.setattr(prepare, "version", lambda name, answer=answer: found(answer))
        with pytest.raises(UnsupportedError, match=said):
            prepare.lmms_tasks()


def found(answer: str | None) -> str:
    if answer is None:
        raise prepare.PackageNotFoundError
    return answer


def test_the_command(home: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = home / "tasks"
    given = ["--tasks", "tinybench", "--choice", "tinybench=images:1", "--out", str(out)]
    assert main(["prepare-tasks", *given]) == 0
    assert capsys.readouterr().out.splitlines() == [
        str(out / "tinybench_local.yaml"),
        f"lmms-eval: --include_path {out} --tasks tinybench_local",
    ]
