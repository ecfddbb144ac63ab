"""One entry: what it lists, what its exit status says, and which line an error leaves."""

import argparse
import os
import subprocess
import sys
import types
from pathlib import Path

import pytest

from vicoset import __version__
from vicoset.cli import main as entry
from vicoset.cli.main import COMMANDS, Command, main
from vicoset.errors import BudgetError


def command(monkeypatch: pytest.MonkeyPatch, run: object) -> None:
    """Make ``vicoset probe`` a command that does ``run``."""
    module = types.ModuleType("vicoset_probe")
    module.HELP = "A probe."  # type: ignore[attr-defined]
    module.add_arguments = lambda parser: parser.add_argument("--n", type=int)  # type: ignore[attr-defined]
    module.run = run  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "vicoset_probe", module)
    monkeypatch.setitem(COMMANDS, "probe", Command("vicoset_probe", "probes"))


@pytest.mark.parametrize("given", [[], ["-h"], ["--help"], ["help"]])
def test_the_list_names_every_command(given: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert main(given) == 0
    lines = capsys.readouterr().out.splitlines()
    for name, found in COMMANDS.items():
        assert [line.split(None, 1)[1] for line in lines if line.split()[:1] == [name]] == [
            found.line
        ]
    assert max(map(len, lines)) <= 100


@pytest.mark.parametrize("name", COMMANDS)
def test_every_command_has_help(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    told = []
    for given in ([name, "--help"], ["help", name]):
        with pytest.raises(SystemExit) as stop:
            main(given)
        assert stop.value.code == 0
        told.append(capsys.readouterr().out)
    assert told[0] == told[1]
    assert told[0].startswith(f"usage: vicoset {name}")


def test_the_list_loads_no_model_code() -> None:
    code = (
        "import sys; from vicoset.cli.main import main; main(['--help']); "
        "print(*{'torch', 'transformers', 'numpy', 'PIL'} & sys.modules.keys())"
    )
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert (result.returncode, result.stderr) == (0, "")
    assert result.stdout.splitlines()[-1] == ""


def test_the_version_is_the_package_s(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--version"]) == 0
    assert capsys.readouterr().out == f"vicoset {__version__}\n"


@pytest.mark.parametrize(
    ("name", "told"),
    [("metods", "Did you mean vicoset methods?"), ("xyzzy", "vicoset --help"), ("-q", "no option")],
)
def test_unknown_commands_name_the_nearest(
    name: str, told: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main([name]) == 2
    out, error = capsys.readouterr()
    assert out == "" and error.count("\n") == 1
    assert repr(name) in error and told in error
    assert all(known in error for known in COMMANDS)


def test_the_command_s_status_is_the_status(monkeypatch: pytest.MonkeyPatch) -> None:
    seen = []

    def run(options: argparse.Namespace) -> int:
        seen.append(options.n)
        return 1

    command(monkeypatch, run)
    assert main(["probe", "--n", "7"]) == 1
    assert seen == [7]


@pytest.mark.parametrize("given", [["probe", "--n", "x"], ["probe", "--m", "1"]])
def test_wrong_options_exit_2(
    given: list[str], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    command(monkeypatch, lambda options: 0)
    with pytest.raises(SystemExit) as stop:
        main(given)
    assert stop.value.code == 2
    assert "vicoset probe: error:" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("error", "line"),
    [
        (BudgetError("keep=0\n  is nothing."), "vicoset probe: keep=0 is nothing.\n"),
        (FileNotFoundError(2, "No such file", "x.png"), "No such file: 'x.png'\n"),
    ],
)
def test_errors_are_one_line(
    error: Exception,
    line: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    def run(options: argparse.Namespace) -> int:
        raise error

    command(monkeypatch, run)
    assert main(["probe"]) == 2
    out, told = capsys.readouterr()
    assert out == "" and told.endswith(line) and told.count("\n") == 1


def test_a_fault_of_ours_keeps_its_trace(monkeypatch: pytest.MonkeyPatch) -> None:
    command(monkeypatch, lambda options: 1 // 0)
    with pytest.raises(ZeroDivisionError):
        main(["probe"])


def test_ctrl_c_exits_130(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def run(options: argparse.Namespace) -> int:
        raise KeyboardInterrupt

    command(monkeypatch, run)
    assert main(["probe"]) == entry.INTERRUPTED == 130
    assert capsys.readouterr() == ("", "\n")


def test_a_reader_that_went_away_is_no_error() -> None:
    read, write = os.pipe()
    os.close(read)
    with open(write, "w", encoding="utf-8") as closed:
        result = subprocess.run(
            [sys.executable, "-m", "vicoset", "--help"], stdout=closed, stderr=subprocess.PIPE
        )
    assert (result.returncode, result.stderr) == (entry.NO_READER, b"")


def test_the_module_is_the_command(tmp_path: Path) -> None:
    result = subprocess.run(
        [sys.executable, "-m", "vicoset", "--version"],
        capture_output=True,
        text=True,
        cwd=tmp_path,
    )
    assert (result.returncode, result.stdout) == (0, f"vicoset {__version__}\n")
