"""``vicoset demo``: what it prints is what was asked, and its three commands run as printed."""

import os
import shlex
import sys
from pathlib import Path

import pytest
from PIL import Image

from tests import checkpoints
from vicoset.cli import demo
from vicoset.cli.main import main
from vicoset.tiny import bench


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    found = tmp_path_factory.mktemp("demo")
    checkpoints.save("qwen2_5_vl", found / "model")
    return found


@pytest.fixture(scope="module")
def shown(home: Path) -> str:
    """What a run printed."""
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(home)
        # The random model has 64 visual tokens.
        patch.setattr(demo, "MORE", 16)
        patch.setattr(demo, "FEWER", 8)
        patch.setenv("PATH", os.environ.get("PATH", ""))
        code, text = run(["demo", "--model", str(home / "model")])
    assert code == 0
    return text


def run(given: list[str]) -> tuple[int, str]:
    import contextlib
    import io

    out = io.StringIO()
    with contextlib.redirect_stdout(out):
        code = main(given)
    return code, out.getvalue()


def commands(text: str) -> list[list[str]]:
    """The three commands, without the program."""
    lines = text[text.index("To try next:") :].splitlines()
    found = [shlex.split(line) for line in lines if line.startswith("  ") and line[2] != "#"]
    program = shlex.split(demo.program())
    assert all(one[: len(program)] == program for one in found)
    return [one[len(program) :] for one in found]


def test_the_table_has_a_row_for_every_method(shown: str) -> None:
    lines = shown.splitlines()
    head = next(n for n, line in enumerate(lines) if line.split()[:2] == ["method", "K"])
    rows = [line.split()[:2] for line in lines[head + 1 : lines.index("", head)]]
    assert rows == [
        ["full", "64"],
        *[[name, "16"] for name in ("gmc-h2", "gmc-l16")],
        *[[name, "8"] for name in ("gmc-h2", "gmc-l16", "random@2", "random@3")],
    ]
    assert max(map(len, lines[: lines.index("To try next:")])) <= 100


def test_the_question_and_its_evidence_are_the_benchmark_s(shown: str) -> None:
    unit = demo.ITEM.removeprefix("tinybench:")
    item = bench.picture_items("qwen", unit)[0]
    assert f"question   {item.question}\n" in shown and f"reference  {item.answer}\n" in shown
    assert f"{len(item.boxes)} of {len(item.boxes)}" in shown
    assert "1008 x 1008 pixels, N = 64 visual tokens" in shown


def test_the_picture_shows_three_methods(shown: str, home: Path) -> None:
    assert f"Picture: {demo.PICTURE}, what was kept at K = 8" in shown
    with Image.open(home / demo.PICTURE) as found:
        assert found.width > 4 * 504 and found.height > 2 * 504


def test_an_answer_that_needs_no_mark_has_no_evidence(
    home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(demo, "MORE", 16)
    monkeypatch.setattr(demo, "FEWER", 8)
    items = bench.picture_items("qwen", "objects/0000")
    item = next(one for one in items if not one.boxes)
    given = ["--item", f"tinybench:{item.item_id}", "--model", str(home / "model")]
    code, text = run(["demo", *given])
    assert code == 0 and item.question in text and "evidence" not in text
    assert (tmp_path / demo.PICTURE).exists()


def test_the_three_commands_run(
    shown: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    found = commands(shown)
    assert [one[0] for one in found] == ["run", "audit", "evaluate"]
    found[2][found[2].index("--images") + 1] = "1"  # four questions instead of twenty
    for given in found:
        code, text = run(given)
        assert code == 0 and text
    assert (tmp_path / "chart.png").exists() and (tmp_path / "runs").is_dir()


def test_the_commands_name_the_bundled_model_by_default() -> None:
    from vicoset.ask import source_of

    told = [command for _, command in demo.suggestions("tiny", source_of(demo.ITEM))]
    assert "--model" not in told[0] + told[1] and "--model tiny" in told[2]


def test_the_program_is_called_as_this_shell_finds_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    own = tmp_path / "bin" / "vicoset"
    own.parent.mkdir()
    monkeypatch.setattr(sys, "executable", str(own.with_name("python")))
    monkeypatch.setenv("PATH", str(tmp_path / "nothing"))
    assert demo.program() == f"{own.with_name('python')} -m vicoset"
    own.touch()
    own.chmod(0o755)
    monkeypatch.chdir(tmp_path)
    assert demo.program() == os.path.join("bin", "vicoset")
    monkeypatch.setenv("PATH", str(own.parent))
    assert demo.program() == "vicoset"


@pytest.mark.parametrize(
    ("given", "told"),
    [
        (["--item", "tinybench:document/0003/chart/0"], "allowed are document/0"),
        (["--item", "page.png"], "page.png is not there"),
        (["--picture", "none/a.png"], "mkdir -p none"),
        (["--picture", "a.xyz"], "Write a.png"),
        (["--model", "none"], "checkpoint none is not there"),
    ],
)
def test_what_cannot_work_is_refused(
    given: list[str],
    told: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    assert main(["demo", *given]) == 2
    out, error = capsys.readouterr()
    assert out == "" and told in error


def test_the_bundled_model_is_asked_by_default(
    home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import vicoset.tiny
    from vicoset.api import load

    known = {"qwen": home / "model"}
    monkeypatch.setattr(vicoset.tiny, "load_tiny", lambda name: load(known[name]), raising=False)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(demo, "MORE", 16)
    monkeypatch.setattr(demo, "FEWER", 8)
    code, text = run(["demo"])
    assert code == 0 and "5 blocks, float32 on cpu" in text
    assert str(home) not in text and len(commands(text)) == 3
