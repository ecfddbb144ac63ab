"""The evaluation's commands behind ``vicoset``."""

from tests.evaluate.tables import made
from vicoset.cli.main import main
from vicoset.evaluate.main import COMMANDS


def test_status_merge_and_table(tmp_path, capsys):
    items = made.drawn("tinybench-chart", 2)
    made.run(tmp_path, "tinybench-chart", items)
    made.run(tmp_path, "tinybench-chart", items, "gmc-h2", 64)
    assert main(["evaluate", "status", str(tmp_path)]) == 0
    assert capsys.readouterr().out.count("8/8 (100%)") == 2
    assert main(["evaluate", "finalize", str(tmp_path)]) == 0
    assert capsys.readouterr().out.count("samples.parquet") == 2
    assert main(["table", "fixed-k", str(tmp_path), "--replicates", "50"]) == 0
    assert "| 64 | GMC-H2 |" in capsys.readouterr().out


def test_what_is_refused(tmp_path, capsys):
    assert main(["evaluate", "status", str(tmp_path)]) == 2
    assert main(["table", "fixed-k", str(tmp_path)]) == 2
    assert capsys.readouterr().err.count("holds no run") == 2


def test_commands():
    needed = {"run", "status", "merge", "finalize", "study", "table", "paper", "pope-parsers"}
    assert needed <= COMMANDS.keys()
