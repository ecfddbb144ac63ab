"""A study that audits: its numbers are those of ``audit``, Full is run once, and it goes on."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests import checkpoints
from tests.core.helpers import refused
from tests.evaluate.test_downsampled import Asked
from vicoset.audit import audit
from vicoset.audit.verify import verify_file
from vicoset.errors import SettingError
from vicoset.evaluate import audited as room
from vicoset.evaluate.audited import Audited, audited
from vicoset.evaluate.folder import complete
from vicoset.evaluate.identity import of_method
from vicoset.evaluate.main import main
from vicoset.evaluate.method import Method, methods_of
from vicoset.evaluate.progress import Silent
from vicoset.evaluate.runner import evaluate

PLANS = ["full", "gmc@1", "gmc+drop@2", "random+drop@2"]


@pytest.fixture(scope="module")
def pair() -> tuple[Any, Any]:
    return checkpoints.model("qwen2_5_vl"), checkpoints.qwen_processor()


@pytest.mark.parametrize("share", [False, True])
def test_its_numbers_are_those_of_an_audit(
    share: bool, pair: tuple[Any, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    model, processor = pair
    runs: list[object] = []
    original = room.refer
    monkeypatch.setattr(room, "refer", lambda *a, **k: runs.append(1) or original(*a, **k))
    methods = audited(methods_of(PLANS, [5], 5))
    options = {"methods": methods, "out": tmp_path, "progress": Silent(), "share": share}
    records = tmp_path / "records.jsonl"
    outcome = evaluate(model, processor, Asked(), records=records, **options)
    assert outcome.failures == () and len(runs) == 3  # Full and the null once for every question
    for method, folder in zip(methods, outcome.folders, strict=True):
        for number, entry in enumerate(complete(folder)):
            if method.plan is None:
                assert entry.evidence is None
                continue
            image = checkpoints.picture(48, 32, number)
            own = audit(model, processor, image, "what?", method.plan, 5, limit=3)
            assert entry.raw == own.compact_answer and entry.kept == 5
            told = entry.evidence["audit"]
            assert told["decision"]["vie"] == own.decisions[0].prior.vie
            assert told["messages"][0]["error"] == own.messages[0].error
            assert told["coverage"][0]["all"] == own.coverage[0].ratio
            assert told["coverage"][0]["spatial"] == own.coverage[0].bank("spatial").saturation
            assert told["states"][0]["behind"] == own.states[0].behind
            assert told["positions"]["count"] == 3 and told["violations"] == []
            flips = sum(one.flip for one in own.decisions)
            assert told["positions"]["flips"] == flips
    assert [one.stands for one in verify_file(records)] == [True] * 12
    again = evaluate(model, processor, Asked(), **options)  # nothing is left to do
    assert len(runs) == 3 and again.folders == outcome.folders


def test_a_light_audit_measures_coverage_alone(pair: tuple[Any, Any], tmp_path: Path) -> None:
    model, processor = pair
    methods = audited(methods_of(["gmc@1", "gmc@2"], [5], 5), "light")
    plain = methods_of(["gmc@1", "gmc@2"], [5], 5)
    options = {"out": tmp_path, "progress": Silent()}
    seen = evaluate(model, processor, Asked(), methods=methods, **options)
    bare = evaluate(model, processor, Asked(), methods=plain, **options)
    for one, other in zip(seen.folders, bare.folders, strict=True):
        for entry, unseen in zip(complete(one), complete(other), strict=True):
            assert entry.raw == unseen.raw and unseen.evidence is None
            assert set(entry.evidence["audit"]) == {"statements", "violations", "coverage"}


def test_an_audited_run_is_another_run() -> None:
    (plain,) = methods_of(["gmc@2"], [5], 5)
    (full,), (light,) = audited([plain]), audited([plain], "light")
    (blank,) = audited([plain], null="blank")
    ids = [of_method(one, "gathered", None) for one in (plain, full, light, blank)]
    assert len({str(one) for one in ids}) == 4
    assert (
        full.label == "gmc@2-k5-audit-full" and full.asked == "gmc@2" and isinstance(full, Method)
    )
    assert audited([Method()]) == [Method()]
    with refused(SettingError, "level='heavy'"):
        audited([plain], "heavy")


def test_one_prompt_at_a_time(pair: tuple[Any, Any], tmp_path: Path) -> None:
    model, processor = pair
    methods = audited(methods_of(["gmc@2"], [5], 5))
    options = {"methods": methods, "out": tmp_path, "progress": Silent(), "batch": 2}
    outcome = evaluate(model, processor, Asked(), **options)
    # a batch that raises is taken apart, and single prompts are audited
    assert outcome.failures == () and isinstance(methods[0], Audited)


@pytest.mark.filterwarnings("ignore:torchvision is not installed")
@pytest.mark.parametrize("kind", ["mechanism", "coverage", "probe", "selector-recovery"])
def test_a_study_is_one_command(
    kind: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    directory = checkpoints.save("qwen2_5_vl", tmp_path / "model")
    fixed = ["--model", str(directory), "--tasks", "tinybench", "--images", "1", "--limit", "2"]
    more = ["--keeps", "3", "--at", "gmc-h1", "--ranks", "2", "--probe-seeds", "0"]
    more += ["--selectors", "gmc,random", "--realisers", "drop,transport", "--seeds", "0"]
    given = ["study", kind, *fixed, *more, "--out", str(tmp_path / "out"), "--replicates", "50"]
    assert main([*given, "--without", "random"]) == 0
    out = capsys.readouterr().out
    assert "gmc-h1" in out and "over units: tinybench" in out
    wanted = {
        "mechanism": "VIE",
        "coverage": "Appearance 5%",
        "probe": "Rank",
        "selector-recovery": "grounded",
    }
    assert wanted[kind] in out
    assert main(["table", kind, str(tmp_path / "out"), *more[2:4], "--replicates", "50"]) == 0
    if kind != "selector-recovery":
        assert main([*given, "--batch", "2"]) == 2
