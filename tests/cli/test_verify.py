"""``vicoset verify``: records alone, with the model, and drawn again."""

import json
from pathlib import Path
from typing import Any

import pytest
from PIL import Image

from tests import checkpoints
from tests.audit.verify.tamper import line_of
from vicoset.api import compress, load
from vicoset.cli.main import main
from vicoset.evaluate import tasks
from vicoset.runtime import record_lines

pytestmark = pytest.mark.filterwarnings("ignore:torchvision is not installed")


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path, Path]:
    """A checkpoint, a picture, and a file with the record of a question about it."""
    home = tmp_path_factory.mktemp("verify")
    directory = checkpoints.save("qwen2_5_vl", home / "model")
    picture = home / "page.png"
    checkpoints.picture(48, 40).save(picture)
    model, processor = load(directory)
    question = checkpoints.question("what?", checkpoints.picture(48, 40))
    with compress(model, "gmc@2", 7, audit="full") as run:
        model.generate(**checkpoints.inputs(processor, question), max_new_tokens=2, do_sample=False)
    path = home / "records.jsonl"
    run.write(path, [{"image": str(picture), "question": "what?"}])
    return directory, picture, path


def told(capsys: pytest.CaptureFixture[str], *given: object) -> tuple[int, str]:
    code = main(["verify", *map(str, given)])
    return code, capsys.readouterr().out


def test_alone_and_with_the_model_it_stands(
    files: tuple[Path, Path, Path], capsys: pytest.CaptureFixture[str]
) -> None:
    model, _, path = files
    code, out = told(capsys, path)
    assert (code, out.splitlines()[0]) == (0, "line 1: stands") and "alone: 1 stand, 0 do" in out
    code, out = told(capsys, path, "--model", model)
    assert code == 0 and out.endswith(": 1 stand, 0 do not\n")


def changed(path: Path, change: Any, to: Path) -> Path:
    body = record_lines.read(path.read_bytes().splitlines()[0])
    change(body)
    to.write_bytes(line_of(body) + b"\n" + path.read_bytes())
    return to


def test_a_changed_number_is_named(
    files: tuple[Path, Path, Path], capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    model, picture, path = files

    def more(body: dict[str, Any]) -> None:
        body["work"] += 5

    wrong = changed(path, more, tmp_path / "work.jsonl")
    code, out = told(capsys, wrong)
    assert code == 1 and "line 1: does not stand\n  work: " in out and "line 2: stands" in out
    assert told(capsys, wrong, "--line", 2)[0] == 0
    code, out = told(capsys, wrong, "--json", "--limit", 1)
    assert json.loads(out)["problems"][0]["where"] == "work"

    def mass(body: dict[str, Any]) -> None:
        body["stages"][0]["realised"]["mass"][3] += 0.5

    wrong = changed(path, mass, tmp_path / "mass.jsonl")
    assert told(capsys, wrong)[0] == 0  # only the model knows
    code, out = told(capsys, wrong, "--model", model)
    assert code == 1 and "stages[0].realised.mass[3]: " in out

    def other(body: dict[str, Any]) -> None:
        body["about"]["question"] = "where?"

    wrong = changed(path, other, tmp_path / "other.jsonl")
    code, out = told(capsys, wrong, "--model", model, "--line", 1)
    assert code == 1 and "prompt: " in out
    given = ("--image", picture, "--question", "what?")
    assert told(capsys, wrong, "--model", model, "--line", 1, *given)[0] == 0

    def nothing(body: dict[str, Any]) -> None:
        body["about"] = {}

    wrong = changed(path, nothing, tmp_path / "nothing.jsonl")
    code, out = told(capsys, wrong, "--model", model, "--line", 1)
    assert code == 1 and "does not say what was asked" in out


def test_requests_of_tasks_are_found_again(
    files: tuple[Path, Path, Path], capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    directory, _, _ = files
    model, processor = load(directory)
    choices = {"images": 1, "questions": 2}
    item = tasks.task("tinybench").load(None, **choices)[3]
    question = checkpoints.question(item.prompt, item.pictures[0].read())
    with compress(model, "gmc@1", 5) as run:
        model.generate(**checkpoints.inputs(processor, question), max_new_tokens=1, do_sample=False)
    path = tmp_path / "records.jsonl"
    about = {"task": {"name": "tinybench", "sample": item.sample_id, "choices": choices}}
    run.write(path, [about])
    assert told(capsys, path, "--model", directory)[0] == 0
    drawn = {"image": f"tinybench:{item.unit_id}", "question": item.prompt}
    run.write(path, [drawn])
    assert told(capsys, path, "--model", directory)[0] == 0
    run.write(path, [{"task": {**about["task"], "sample": "nobody"}}])
    code, out = told(capsys, path, "--model", directory, "--line", 3)
    assert code == 1 and "no sample 'nobody'" in out


def test_the_support_is_drawn_again(
    files: tuple[Path, Path, Path], capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    _, picture, path = files
    page = tmp_path / "support.png"
    assert told(capsys, path, "--line", 1, "--draw", page, "--image", picture)[0] == 0
    with Image.open(page) as drawn:
        assert drawn.width > 400
    assert told(capsys, path, "--line", 1, "--draw", page)[0] == 0  # without the picture too
    assert told(capsys, path, "--draw", page)[0] == 2


def test_what_is_refused(
    files: tuple[Path, Path, Path], capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    assert told(capsys, tmp_path / "nowhere")[0] == 2
    assert told(capsys, files[2], "--line", 9)[0] == 2
    noise = tmp_path / "noise"
    noise.write_bytes(bytes(range(256)) * 4)
    code, out = told(capsys, noise)
    assert code == 1 and "seal: is not that of these bytes" in out
