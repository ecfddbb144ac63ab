"""The commands that print the paper's numbers and compare the parsers of POPE."""

from tests.evaluate import data
from tests.evaluate.tables import made
from vicoset.evaluate import paper, tasks
from vicoset.evaluate.main import main


def test_the_papers_tables_are_listed_and_printed(capsys):
    assert main(["paper"]) == 0
    listed = capsys.readouterr().out
    assert [line.split()[0] for line in listed.splitlines()] == paper.names()
    assert "tab:cond-fixed-k" in listed
    assert main(["paper", "equal_work"]) == 0
    assert "| MMTok | mmtok | 211 | 16.28 | 16.28 | 89.66 | -2.40" in capsys.readouterr().out
    assert main(["paper", "equal_work", "--format", "csv"]) == 0
    assert ",MMTok,mmtok,211," in capsys.readouterr().out
    assert main(["paper", "equalwork"]) == 2
    assert "no published table 'equalwork'; there are" in capsys.readouterr().err


def test_three_parsers_on_the_answers_of_a_run(tmp_path, capsys):
    root = data.pope(tmp_path / "pope")
    items = list(tasks.task("pope").load(root))
    made.run(tmp_path / "runs", "pope", items, say=lambda item, right: "Yes, there is.")
    argv = ["pope-parsers", str(tmp_path / "runs"), "--data", f"pope={root}"]
    assert main(argv) == 0
    row = capsys.readouterr().out.splitlines()[4]
    # Half of the references are yes: two parsers read one, lmms-eval's reads neither.
    assert row.endswith("| 12 | 0.00 | 50.00 | 50.00 | 6 |")
    other = data.pope(tmp_path / "other", n=2)
    assert main([*argv[:-1], f"pope={other}"]) == 2
    assert "which these data do not" in capsys.readouterr().err
    made.run(tmp_path / "none", "tinybench-counting", made.drawn("tinybench-counting", 2))
    assert main(["pope-parsers", str(tmp_path / "none"), *argv[2:]]) == 2
    assert "holds no run of pope" in capsys.readouterr().err
