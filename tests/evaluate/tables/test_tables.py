"""Tables out of records, against numbers that are worked out another way."""

import csv
import io
import itertools

import numpy as np
import pytest
from statsmodels.stats.multitest import multipletests

from tests.evaluate.statistics.cases import slow_bootstrap
from tests.evaluate.tables import made
from vicoset.errors import RunError
from vicoset.evaluate import tabulate
from vicoset.evaluate.folder import complete
from vicoset.evaluate.main import main
from vicoset.evaluate.tables import Options, find, printed
from vicoset.evaluate.tables.comparison import Comparison
from vicoset.evaluate.tables.equal import budget, equal_work, targets
from vicoset.evaluate.tables.factorial import factorial_effects
from vicoset.evaluate.tables.fixed import fixed_k
from vicoset.evaluate.tables.lineup import ALWAYS, lineup
from vicoset.evaluate.tables.pathway import ends, message_pathway
from vicoset.evaluate.tables.records import Key
from vicoset.evaluate.tables.table import Cell, Column, Row, Table, joined
from vicoset.methods import interventions, registry

TASKS = ("tinybench-chart", "tinybench-presence")
FEW = Options(replicates=300)
METHODS = {"gmc-h2": 0.6, "gmc-l16": 0.7, "fastv-h2": 0.45, "grid+drop@2": 0.4}


@pytest.fixture
def out(tmp_path):
    for task in TASKS:
        items = made.drawn(task)
        made.run(tmp_path, task, items, chance=0.8)
        for keep, (plan, chance) in itertools.product((64, 128), METHODS.items()):
            made.run(tmp_path, task, items, plan, keep, chance=chance)
        for seed in range(3):
            made.run(tmp_path, task, items, "random+drop@2", 128, seed, chance=0.3)
    return tmp_path


def mean(found, key, task):
    """Accuracy in percent, by a loop over the samples; over seeds the mean."""
    rates = [
        np.mean([sample.score for sample in run.samples if sample.task == task])
        for run in found.runs[key]
    ]
    return 100 * np.mean(rates)


def row(table, plan, keep):
    (found,) = (
        r for r in table.rows if (r.values.get("plan"), r.values.get("keep")) == (plan, keep)
    )
    return found


def test_fixed_k_by_hand(out):
    found = find(out)
    table, family = fixed_k(found, options=FEW)
    full = {task: mean(found, Key("full"), task) for task in TASKS}
    for plan, keep in [*itertools.product(METHODS, ("64", "128")), ("random+drop@2", "128")]:
        values = row(table, plan, keep).values
        mine = {task: mean(found, Key(plan, keep), task) for task in TASKS}
        for task in TASKS:
            assert values[task] == pytest.approx(mine[task])
        kept = np.mean([100 * mine[task] / full[task] for task in TASKS])
        assert values["macro"].value == pytest.approx(kept)
        assert values["macro"].low < kept < values["macro"].high
        boundary = {"gmc-l16": 16}.get(plan, 2)
        share = (boundary * 1296 + (28 - boundary) * int(keep)) / (28 * 1296)
        assert values["work"] == pytest.approx(100 * share)
        assert values["average"] == pytest.approx(1296 * share)
        assert values["kept"] == int(keep)
        if plan != "gmc-h2":
            ours = np.mean([100 * mean(found, Key("gmc-h2", keep), t) / full[t] for t in TASKS])
            assert values["delta"].value == pytest.approx(kept - ours)
    assert row(table, "random+drop@2", "128").values["method"] == "Random (mean of 3 seeds)"
    assert [one.values["keep"] for one in family.rows] == ["128", "64"]
    assert row(table, "gmc-h2", "64").values["question"] == "yes"
    assert row(table, "grid+drop@2", "64").values["question"] == "no"


def test_rows_that_have_to_be_there_say_what_makes_them(out):
    table = fixed_k(find(out), options=FEW)[0]
    missing = row(table, "random+drop@2", "64")
    assert "macro" not in missing.values
    assert f"--tasks {','.join(TASKS)} --out {out}" in missing.command
    assert "--methods random+drop@2 --keeps 64" in missing.command
    assert row(table, "downsample", "128").command and not row(table, "gmc-h2", "64").command
    text = table.markdown()
    assert "missing rows: `python -m vicoset.evaluate run" in text and "| missing |" in text


def test_interval_and_p_equal_the_slow_way(tmp_path):
    """One task: the difference of two rows, resampled by copying samples."""
    task, items = TASKS[0], made.drawn(TASKS[0])
    chances = {"full": 1.0, "gmc-h2": 0.9, "fastv-h2": 0.6, "grid+drop@2": 0.3}
    for plan, chance in chances.items():
        made.run(tmp_path, task, items, plan, 1296 if plan == "full" else 64, chance=chance)
    found = find(tmp_path)
    table = fixed_k(found, options=Options(replicates=200, seed=3))[0]
    ours = {s.sample_id: s.score for s in found.runs[Key("gmc-h2", "64")][0].samples}
    raw = {}
    for plan in ("fastv-h2", "grid+drop@2"):
        theirs = found.runs[Key(plan, "64")][0].samples

        def difference(drawn):
            """Full is right throughout; a copy's id has its number behind the last slash."""
            gained = [s.score - ours[s.sample_id.rpartition("/")[0]] for s in drawn]
            return 100 * sum(gained) / len(gained)

        slow = np.array(slow_bootstrap(difference, theirs, 200, 3))
        shown = row(table, plan, "64").values["delta"]
        ends_ = np.quantile(slow, [0.025, 0.975])
        assert (shown.low, shown.high) == pytest.approx(tuple(ends_), abs=1e-9)
        sides = [(1 + (slow <= 1e-12).sum()) / 201, (1 + (slow >= -1e-12).sum()) / 201]
        raw[plan] = min(1.0, 2 * min(sides))
    wanted = multipletests(list(raw.values()), method="holm")[1]
    shown = [row(table, plan, "64").values["p"] for plan in raw]
    assert shown == pytest.approx(list(wanted))


def test_order_and_shards_do_not_count(tmp_path):
    said = []
    for number, more in enumerate(({}, {"shards": 3, "backwards": True})):
        out = tmp_path / str(number)
        for task in TASKS:
            items = made.drawn(task)
            made.run(out, task, items, chance=0.8, **more)
            made.run(out, task, items, "gmc-h2", 64, **more)
        said.append([one.csv().replace(str(out), "") for one in fixed_k(find(out), options=FEW)])
    assert said[0] == said[1]


def test_equal_methods_differ_by_nothing(tmp_path):
    items = made.drawn(TASKS[0])
    for plan in ("full", "gmc-h2", "fastv-h2"):
        keep = 1296 if plan == "full" else 64
        made.run(tmp_path, TASKS[0], items, plan, keep, say=lambda item, right: item.sample_id)
    both = Comparison.of(find(tmp_path), [Key("gmc-h2", "64"), Key("fastv-h2", "64")], (), FEW)
    pairs = {"d": (Key("gmc-h2", "64"), Key("fastv-h2", "64"))}
    one, p = both.differences(both.macro(retention=False), pairs)["d"]
    assert (one.value, one.low, one.high, p) == (0, 0, 0, 1)
    table = fixed_k(find(tmp_path), options=FEW)[0]  # Full is 0: no retention, and it says so
    assert any("percent of the attainable" in note for note in table.notes)


def test_equal_work_budgets_are_the_papers(tmp_path):
    """28 K = W: 211, 330, 795 and 850 at the input, 757 and 816 before block 2."""
    items = made.drawn(TASKS[0], 3)
    made.run(tmp_path, TASKS[0], items, chance=0.9)
    for plan, keep in itertools.product(("gmc-h2", "gmc-l16"), (128, 256)):
        made.run(tmp_path, TASKS[0], items, plan, keep)
    for keep in (128, 256, 757, 816):
        made.run(tmp_path, TASKS[0], items, "fastv-h2", keep)
    table = equal_work(find(tmp_path), options=FEW)[0]
    there = {(r.group, r.values["keep"]): r for r in table.rows if r.values["plan"] == "fastv-h2"}
    wanted = {("H2-128", "128"), ("H2-256", "256"), ("L16-128", "757"), ("L16-256", "816")}
    assert set(there) == wanted and not any(r.command for r in there.values())
    works = {r.group: r.values["work"] for r in table.rows if r.reference and r.group}
    for (group, _), one in there.items():
        assert one.values["work"] == pytest.approx(works[group], abs=100 / 28 / 1296 * 26)
    missing = {r.values["keep"] for r in table.rows if r.values["plan"] == "grid+drop@2"}
    assert missing == {"128", "256", "757", "816"}
    goals = targets(("gmc-h2", "gmc-l16"), (128, 256), 1296, 28)
    assert [budget("random+drop@0", g.work, 1296, 28) for g in goals] == [211, 330, 795, 850]
    assert budget("random+drop@20", goals[0].work, 1296, 28) is None


def test_factorial_effects_by_hand(tmp_path):
    cells = interventions.factorial("gmc-h2")
    items = {task: made.drawn(task) for task in TASKS}
    for task in TASKS:
        made.run(tmp_path, task, items[task], chance=0.8)
        for number, plan in enumerate(cells):
            made.run(tmp_path, task, items[task], plan, 128, chance=0.3 + 0.05 * number)
    found = find(tmp_path)
    shown, effects = factorial_effects(found, options=FEW, where=("gmc-h2",))
    macros = {p: np.mean([mean(found, Key(p, "128"), t) for t in TASKS]) for p in cells}
    for plan, value in macros.items():
        assert row(shown, plan, "128").values["macro"].value == pytest.approx(value)
    named = {r.values["effect"]: r.values["macro"] for r in effects.rows}
    on = [macros[plan] for plan, levels in cells.items() if levels[1]]
    off = [macros[plan] for plan, levels in cells.items() if not levels[1]]
    assert named["history"].value == pytest.approx(np.mean(on) - np.mean(off))
    three = sum(
        macros[plan] * np.prod([1 if level else -1 for level in levels])
        for plan, levels in cells.items()
    )
    assert named["message x history x population"].value == pytest.approx(three)
    assert all(isinstance(one, Cell) and one.low <= one.value <= one.high for one in named.values())


def test_factorial_names_the_cells_that_are_missing(tmp_path):
    cells = list(interventions.factorial("gmc-l16"))
    items = made.drawn(TASKS[0], 2)
    made.run(tmp_path, TASKS[0], items)
    for plan in cells[:-1]:
        made.run(tmp_path, TASKS[0], items, plan, 64)
    (shown,) = factorial_effects(find(tmp_path), options=FEW)
    missing = [r.values["plan"] for r in shown.rows if r.command]
    assert missing == [cells[-1], *ALWAYS]  # the controls are rows of this table too
    for plan in ALWAYS:
        made.run(tmp_path, TASKS[0], items, plan, 64)
    (shown,) = factorial_effects(find(tmp_path), options=FEW)
    assert [r.values["plan"] for r in shown.rows if r.command] == [cells[-1]]
    with pytest.raises(RunError, match="holds no cell of the design"):
        factorial_effects(find(tmp_path), options=FEW, where=("gmc-h2",))


def test_message_pathway_by_hand(tmp_path):
    whole, none = ends("gmc-l16")
    items = made.drawn(TASKS[1])
    made.run(tmp_path, TASKS[1], items, chance=0.8)
    for keep, (plan, chance) in itertools.product((64, 128), ((whole, 0.7), (none, 0.4))):
        made.run(tmp_path, TASKS[1], items, plan, keep, chance=chance)
    found = find(tmp_path)
    table = message_pathway(found, options=FEW, where=("gmc-l16",))[0]
    (full,) = [line for line in table.markdown().splitlines() if "score of Full" in line]
    assert "+" not in full  # a score beside differences
    effect = {
        k: mean(found, Key(whole, k), TASKS[1]) - mean(found, Key(none, k), TASKS[1])
        for k in ("64", "128")
    }
    values = {r.values["keep"]: r.values["macro"].value for r in table.rows if "at" in r.values}
    assert values == {
        "64": pytest.approx(effect["64"]),
        "128": pytest.approx(effect["128"]),
        "64 - 128": pytest.approx(effect["64"] - effect["128"]),
    }


def test_the_papers_numbers_stand_beside_ours(tmp_path):
    items = made.drawn(TASKS[0], 2)
    made.run(tmp_path, TASKS[0], items)
    made.run(tmp_path, TASKS[0], items, "gmc-h2", 128)
    found = find(tmp_path)
    assert printed.setting(found, "auto") == "Qwen2.5-VL-7B"
    assert printed.setting(found, "never") is None
    assert printed.number("fixed_k", "textvqa", "Qwen2.5-VL-7B", Key("gmc-h2", "128")) == 78.45
    assert printed.number("fixed_k", "macro", "Qwen2.5-VL-7B", Key("full")) == 100.0
    tasks = ("pope", "mme", "chartqa", "textvqa")
    assert printed.macro_table("Qwen2.5-VL-7B", tasks) == ("fixed_k", "macro")
    assert printed.macro_table("Qwen2.5-VL-7B", ("pope",)) is None
    other = tmp_path / "other"
    made.run(other, TASKS[0], items, model="tiny")
    assert printed.setting(find(other), "auto") is None
    assert printed.setting(find(other), "always") == "Qwen2.5-VL-7B"


def test_the_lineup_is_the_registry():
    names = registry.names().selectors
    members = lineup(28)
    written = " ".join(one.plan for one in members)
    for name in names:
        assert name.split("-")[0] in written
    assert [one.plan for one in members[:2]] == ["gmc-h2", "gmc-l16"]
    assert {"random+drop@2", "grid+drop@2"} <= {one.plan for one in members if one.control}
    assert len({one.plan for one in members}) == len(members)
    assert all(max(one.boundaries) < 8 for one in lineup(8))


def test_two_identities_of_a_method_are_refused(tmp_path):
    items = made.drawn(TASKS[0], 2)
    made.run(tmp_path, TASKS[0], items)
    for version in ("1", "2"):
        made.run(tmp_path, TASKS[0], items, "gmc-h2", 64, version=version)
    with pytest.raises(RunError, match="several identities"):
        find(tmp_path)


def test_several_models_have_to_be_told_apart(tmp_path):
    items = made.drawn(TASKS[0], 2)
    for model in ("a", "b"):
        made.run(tmp_path, TASKS[0], items, model=model)
    with pytest.raises(RunError, match="models a, b"):
        find(tmp_path)
    assert find(tmp_path, model="b").model == "b"


def test_incomplete_runs_are_left_out_and_named(tmp_path):
    items = made.drawn(TASKS[0], 2)
    made.run(tmp_path, TASKS[0], items)
    whole = made.run(tmp_path, TASKS[0], items, "gmc-h2", 64)
    (journal,) = whole.journals()
    journal.write_bytes(b"".join(journal.read_bytes().splitlines(keepends=True)[:-1]))
    found = find(tmp_path)
    assert Key("gmc-h2", "64") not in found.runs and "left out, incomplete" in found.notes[0]
    with pytest.raises(RunError, match="lacks 1 of"):
        complete(whole)


def test_the_three_forms(tmp_path):
    columns = [
        Column("name", "A | B", text=True),
        Column("d", "Δ", signed=True),
        Column("n", "N", 1),
    ]
    rows = [
        Row({"name": "50% of_x", "d": Cell(1.234, -0.5, 2.0), "n": 3.14159}, "one"),
        Row({"name": "gone"}, "two", "run it"),
    ]
    table = Table("t", "T", columns, rows, ["a note"])
    text = table.markdown().splitlines()
    assert text[2:6] == [
        "| A \\| B | Δ | N |",
        "|---|---:|---:|",
        "| 50% of_x | +1.23 [-0.50, +2.00] | 3.1 |",
        "| gone | missing | missing |",
    ]
    assert text[-1] == "- missing rows: `run it`"
    lines = list(csv.DictReader(io.StringIO(table.csv())))
    assert lines[0]["d"] == "1.234" and lines[0]["d_low"] == "-0.5" and lines[0]["n"] == "3.14159"
    assert lines[1]["missing"] == "run it" and lines[1]["d"] == ""
    latex = table.latex()
    assert r"50\% of\_x & +1.23 [$-$0.50, +2.00] & 3.1 \\" in latex
    assert latex.count(r"\midrule") == 2 and latex.count("&") == 6


def test_the_command_writes_three_files(out, capsys):
    to = out / "tables" / "fixed"
    assert main(["table", "fixed-k", str(out), "--to", str(to), "--replicates", "200"]) == 0
    names = sorted(path.name for path in to.parent.iterdir())
    assert names == ["fixed-general-family.csv", "fixed.csv", "fixed.md", "fixed.tex"]
    assert set(capsys.readouterr().out.split()) == {str(to.parent / name) for name in names}
    assert main(["table", "nothing", str(out)]) == 2
    assert "allowed are fixed-k" in capsys.readouterr().err
    assert main(["table", "fixed-k", str(out), "--format", "csv", "--replicates", "200"]) == 0
    assert capsys.readouterr().out.startswith("group,keep,method,plan,question,kept,average,work")


def test_options_of_the_command_reach_the_table(out, capsys):
    said = "--reference gmc-l16 --alternative greater --unit sample --seed 5 --replicates 100"
    assert main(["table", "fixed-k", str(out), *said.split()]) == 0
    text = capsys.readouterr().out
    assert "Δ to gmc-l16" in text and "p: greater" in text and "seed 5" in text
    assert tabulate.FORMS.keys() == {"markdown", "csv", "latex"}


def test_a_table_takes_the_rows_that_are_asked_for(out, capsys):
    argv = ["table", "fixed-k", str(out), "--replicates", "50", "--format", "csv"]
    assert main([*argv, "--keeps", "64", "--methods", "gmc-h2,fastv-h2"]) == 0
    lines = list(csv.DictReader(io.StringIO(capsys.readouterr().out.split("\n\n")[0])))
    there = [line["plan"] for line in lines if line["macro"]]
    assert there == ["full", "gmc-h2", "fastv-h2"] and {line["keep"] for line in lines} == {"64"}
    assert main([*argv, "--keeps", "65"]) == 2
    assert "there are the plans" in capsys.readouterr().err


def test_commands_of_missing_rows_are_joined():
    start = "python -m vicoset.evaluate run --methods"
    found = joined([f"{start} {plan} --keeps {k}" for k in "12" for plan in ("a", "gmc[-b,-c]@2")])
    assert found == [f"{start} 'a,gmc[-b,-c]@2' --keeps {k}" for k in "12"]
    assert joined(["python -m x study --to y"]) == ["python -m x study --to y"]
