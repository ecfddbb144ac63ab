"""``vicoset run``: the answer and the record first, files after them, refusals before the model."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from PIL import Image

from tests import checkpoints
from vicoset import compress
from vicoset.api import load
from vicoset.cli.main import main
from vicoset.evaluate import loading
from vicoset.tiny import bench

ITEM = "tinybench:document/0000"


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    found = tmp_path_factory.mktemp("run")
    checkpoints.picture(48, 40).save(found / "page.png")
    checkpoints.save("llava", found / "llava")
    checkpoints.save("qwen2_5_vl", found / "qwen")
    return found


def asked(home: Path, *given: str, model: str = "qwen") -> list[str]:
    fixed = ["--plan", "gmc@2", "--keep", "9", "--max-new-tokens", "3"]
    return ["run", *given, "--model", str(home / model), *fixed]


@pytest.fixture
def no_model(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever is refused is refused before a model is loaded."""

    def refuse(*_: Any, **__: Any) -> Any:
        raise AssertionError("the model was loaded")

    monkeypatch.setattr(loading, "load_named", refuse)


def test_it_prints_the_answer_and_the_record(
    home: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    page = str(home / "page.png")
    assert main(asked(home, page, "what?", model="llava")) == 0
    out, error = capsys.readouterr()
    model, processor = load(home / "llava")
    chat = checkpoints.question("what?", Image.open(page).convert("RGB"))
    inputs = checkpoints.inputs(processor, chat)
    with compress(model, "gmc@2", 9) as run:
        answer = model.generate(**inputs, max_new_tokens=3, do_sample=False)
    text = processor.tokenizer.decode(answer[0, inputs["input_ids"].shape[1] :]).strip()
    assert out == f"{text}\n{run.last}\n"
    assert error == ""


def test_a_picture_of_the_benchmark_says_what_is_right(
    home: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(asked(home, ITEM)) == 0
    out, error = capsys.readouterr()
    item = bench.picture_items("qwen", "document/0000")[0]
    assert f"{item.question} The benchmark's answer is {item.answer}.\n" in out
    assert "Of the evidence, " in out and f" of {len(item.boxes)} is kept." in out
    assert "UserWarning" not in error and "Loading" not in error


def test_compare_runs_full_beside_it(home: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([*asked(home, ITEM), "--compare"]) == 0
    lines = capsys.readouterr().out.splitlines()
    head = next(line for line in lines if line.startswith("method"))
    rows = lines[lines.index(head) + 1 :][:2]
    assert [row.split()[:2] for row in rows] == [["full", "64"], ["gmc@2", "9"]]
    assert "100.0%" in rows[0] and "seconds" in head and "prompt KV" in head
    full = next(line for line in lines if line.startswith("Full: ")).removeprefix("Full: ")
    same = next(line for line in lines if line.startswith("gmc@2: ") and "visual" not in line)
    assert same.endswith("(the same)") == (same.startswith(f"gmc@2: {full}  ("))


def test_json_has_the_same_numbers(home: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([*asked(home, ITEM), "--compare", "--json"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert (told["tokens"], told["kept"], told["boundaries"]) == (64, 9, [2])
    assert told["full"]["kept"] == 64 and told["full"]["kv_bytes"] == told["full_kv_bytes"]
    assert told["kv_bytes"] < told["full_kv_bytes"] and 0 < told["coverage"] <= 1
    assert told["same"] == (told["answer"] == told["full"]["answer"])
    assert set(told["seconds"]) >= {"request", "prompt", "decode"}
    assert told["record"].startswith("gmc@2: visual 64 -> 9")


def test_records_and_pictures_are_files(
    home: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    picture, record = tmp_path / "a.png", tmp_path / "a.jsonl"
    files = ["--picture", str(picture), "--record", str(record)]
    assert main([*asked(home, ITEM), "--compare", *files]) == 0
    assert capsys.readouterr().out.endswith(f"picture: {picture}\n")
    lines = [json.loads(line) for line in record.read_text().splitlines()]
    assert [line["about"]["method"] for line in lines] == ["full", "gmc@2-k9"]
    with Image.open(picture) as found:
        assert found.width > 3 * 504


@pytest.mark.parametrize("plan", ["full", "downsample", "random@2"])
def test_other_rows_of_a_comparison_can_be_asked_too(
    plan: str, home: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    files = ["--picture", str(tmp_path / "a.png")]
    assert main([*asked(home, ITEM), *files, "--plan", plan, "--seed", "3"]) == 0
    assert f"\n{plan}: visual 64 -> " in capsys.readouterr().out
    assert (tmp_path / "a.png").exists()


def test_a_picture_that_fails_at_last_loses_nothing(
    home: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    record = tmp_path / "a.jsonl"

    def full(self: Path, data: bytes) -> int:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(Path, "write_bytes", full)
    files = ["--picture", str(tmp_path / "a.png"), "--record", str(record)]
    assert main([*asked(home, ITEM), *files]) == 2
    out, error = capsys.readouterr()
    assert "gmc@2: visual 64 -> 9" in out and "No space left on device" in error
    assert len(record.read_text().splitlines()) == 1


@pytest.mark.parametrize(
    ("given", "told"),
    [
        (["none.png", "what?"], "none.png is not there"),
        (["half.png", "what?"], "copied whole"),
        ([".", "what?"], "is a directory"),
        (["page.png"], "no question came"),
        (["page.png", " "], "is empty"),
        (["tinybench:tabel/0000"], "Write tinybench:table/0000"),
        (["page.png", "what?", "--plan", "gcm-h2"], "Did you mean 'gmc-h2'?"),
        (["page.png", "what?", "--plan", "gmc"], "names no boundary"),
        (["page.png", "what?", "--keep", "many"], "budget 'many'"),
        (["page.png", "what?", "--keep", "0"], "tokens=0; allowed are whole numbers from 1"),
        (["page.png", "what?", "--keep", "1.5"], "1.5"),
        (["page.png", "what?", "--picture", "none/a.png"], "mkdir -p none"),
        (["page.png", "what?", "--picture", "a.xyz"], "Write a.png"),
        (["page.png", "what?", "--record", "none/a.jsonl"], "mkdir -p none"),
        (["page.png", "what?", "--record", "."], "is a directory"),
    ],
)
def test_what_cannot_work_is_refused_at_once(
    given: list[str],
    told: str,
    home: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    no_model: None,
) -> None:
    data = (home / "page.png").read_bytes()
    (tmp_path / "page.png").write_bytes(data)
    (tmp_path / "half.png").write_bytes(data[: len(data) // 2])
    monkeypatch.chdir(tmp_path)
    assert main(["run", *given]) == 2
    out, error = capsys.readouterr()
    assert out == "" and error.count("\n") == 1 and error.startswith("vicoset run: ")
    assert told in error


def test_what_only_the_model_can_say_is_said_in_a_line(
    home: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    missing = ["run", str(home / "page.png"), "what?", "--model", str(home / "none")]
    for given, told in (
        (missing, "is not there; allowed is a local directory"),
        ([*asked(home, ITEM), "--plan", "gmc@5"], "this model has 5 blocks"),
        ([*asked(home, ITEM), "--dtype", "int8"], "dtype 'int8'"),
    ):
        assert main(given) == 2
        out, error = capsys.readouterr()
        assert out == "" and told in error.splitlines()[-1]


@pytest.mark.parametrize("given", [["--prefix", "sparse"], ["--max-new-tokens", "0"]])
def test_options_that_have_no_meaning(
    given: list[str], home: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as stop:
        main([*asked(home, ITEM), *given])
    error = capsys.readouterr().err
    assert stop.value.code == 2 and ("allowed are" in error or "invalid choice" in error)


def test_the_module_is_the_command(tmp_path: Path) -> None:
    given = [sys.executable, "-m", "vicoset", "run", str(tmp_path / "none.png"), "what?"]
    result = subprocess.run(given, capture_output=True, text=True)
    assert (result.returncode, result.stdout) == (2, "")
    assert result.stderr.startswith("vicoset run: image ") and result.stderr.count("\n") == 1
