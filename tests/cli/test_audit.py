"""``vicoset audit``: from files to numbers that are those of the library."""

import json
from pathlib import Path
from typing import Any

import pytest

from tests import checkpoints
from vicoset.api import load
from vicoset.audit import audit
from vicoset.cli.main import main


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, str]:
    home = tmp_path_factory.mktemp("audit")
    picture = home / "page.png"
    checkpoints.picture(48, 40).save(picture)
    return checkpoints.save("llava", home / "model"), str(picture)


def asked(model: Path, *given: str) -> list[str]:
    fixed = ["--plan", "gmc@2", "--keep", "9", "--limit", "2"]
    return ["audit", *given, "--model", str(model), *fixed]


def test_it_says_what_the_library_says(
    files: tuple[Path, str], capsys: pytest.CaptureFixture[str]
) -> None:
    model, picture = files
    assert main([*asked(model, picture, "what?"), "--blocks", "2,4", "--json"]) == 0
    told: dict[str, Any] = json.loads(capsys.readouterr().out)
    own = audit(*load(model), checkpoints.picture(48, 40), "what?", "gmc@2", 9, limit=2)
    expected = own.to_json()
    assert told["coverage"] == expected["coverage"] and told["digest"] == expected["digest"]
    assert told["decisions"] == expected["decisions"]
    assert [one["block"] for one in told["messages"]] == [2, 4] and told["violations"] == []
    assert told["full"]["text"] == own.full_answer


def test_light_needs_one_run_and_says_coverage_alone(
    files: tuple[Path, str], capsys: pytest.CaptureFixture[str]
) -> None:
    model, picture = files
    assert main([*asked(model, picture, picture, "what?"), "--level", "light"]) == 0
    out = capsys.readouterr().out
    assert "F(S)/F(V)" in out and "e_M" not in out and "violated: 0" in out


def test_a_file_that_is_no_image_is_refused(
    files: tuple[Path, str], capsys: pytest.CaptureFixture[str]
) -> None:
    model, _ = files
    assert main(asked(model, str(model / "config.json"), "what?")) == 2
    assert "no image that Pillow knows" in capsys.readouterr().err


def test_a_picture_of_the_benchmark_needs_no_file(
    files: tuple[Path, str], capsys: pytest.CaptureFixture[str]
) -> None:
    model, _ = files
    given = asked(model, "tinybench:chart/0000", "How high is bar A?")
    assert main([*given, "--level", "light"]) == 0
    assert "F(S)/F(V)" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("given", "told"),
    [(["--plan", "gcm-h2"], "Did you mean 'gmc-h2'?"), (["--keep", "many"], "budget 'many'")],
)
def test_what_cannot_work_is_refused_before_the_model_is_loaded(
    given: list[str], told: str, files: tuple[Path, str], capsys: pytest.CaptureFixture[str]
) -> None:
    _, picture = files
    assert main(["audit", picture, "what?", "--model", "none", *given]) == 2
    out, error = capsys.readouterr()
    assert out == "" and told in error and error.count("\n") == 1


def test_blocks_are_whole_numbers(
    files: tuple[Path, str], capsys: pytest.CaptureFixture[str]
) -> None:
    model, picture = files
    with pytest.raises(SystemExit) as stop:
        main([*asked(model, picture, "what?"), "--blocks", "2,x"])
    assert (
        stop.value.code == 2 and "allowed are whole numbers such as 2,5" in capsys.readouterr().err
    )
