"""A run that is killed and started again ends with the same weights, and writes a model."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
import torch

from vicoset.errors import SettingError
from vicoset.tiny.train import recipe as recipes
from vicoset.tiny.train.__main__ import main
from vicoset.tiny.train.journal import lines
from vicoset.tiny.train.loop import JOURNAL, STATE, Trainer
from vicoset.tiny.train.optimise import share_of
from vicoset.tiny.train.pages import Sheet
from vicoset.tiny.train.recipe import ALONE, Phase, Weights

SMALL = (
    Phase("signs", Sheet(8, 2, 3, pixels=False), 2, Weights(1.0, 0.5, 0.15), recipes.TOWERS),
    Phase("tower", Sheet(8, 2, 1), 1, Weights(signs=1.0), recipes.DECODER),
    Phase("parts", Sheet(8, 2, 3), 2, ALONE),
)


def digest(folder: Path) -> dict[str, torch.Tensor]:
    found: dict[str, torch.Tensor] = torch.load(folder / STATE)["model"]
    return found


@pytest.mark.parametrize("family", ["qwen", "llava"])
def test_resumed_equals_uninterrupted(family: str, tmp_path: Path) -> None:
    whole = Trainer(family, 1, SMALL, tmp_path / "whole")
    whole.run(every=1)
    broken = Trainer(family, 1, SMALL, tmp_path / "broken")
    advance, calls = broken.advance, []

    def failing(phase: Phase) -> object:
        calls.append(phase.name)
        if len(calls) == 5:
            raise KeyboardInterrupt
        return advance(phase)

    broken.advance = failing  # type: ignore[method-assign, assignment]
    with pytest.raises(KeyboardInterrupt):
        broken.run(every=1, save=0.0)
    Trainer(family, 1, SMALL, tmp_path / "broken").run(every=1)
    one, two = digest(tmp_path / "whole"), digest(tmp_path / "broken")
    assert all(torch.equal(one[name], two[name]) for name in one)
    said = [
        [{k: v for k, v in line.items() if k != "seconds"} for line in lines(folder / JOURNAL)]
        for folder in (tmp_path / "whole", tmp_path / "broken")
    ]
    assert said[0] == said[1]
    assert [line["phase"] for line in said[0]] == ["signs", "signs", "tower", "parts", "parts"]


def test_frozen_parts_do_not_move(tmp_path: Path) -> None:
    trainer = Trainer("qwen", 0, SMALL[:2], tmp_path)
    before = {name: value.clone() for name, value in trainer.model.state_dict().items()}
    trainer.run()
    tower = torch.load(tmp_path / "after-signs.pt")
    for name, value in tower.items():
        same = torch.equal(value, before[name])
        assert same or not name.startswith(recipes.TOWERS), name
    for name, value in digest(tmp_path).items():
        same = torch.equal(value, tower[name])
        assert same == (name.startswith(recipes.DECODER) or ("bias" in name and same)), name


def test_another_run_s_folder_is_refused(tmp_path: Path) -> None:
    Trainer("qwen", 0, SMALL[:1], tmp_path).save()
    with pytest.raises(SettingError, match="its seed is 0, and 1 was asked for"):
        Trainer("qwen", 1, SMALL[:1], tmp_path).resume()


def test_answers_alone_for_the_last_third_of_the_steps() -> None:
    for family in ("qwen", "llava"):
        phases = recipes.recipe(family)
        last = next(n for n, phase in enumerate(phases[::-1]) if not phase.alone)
        alone = sum(phase.steps for phase in phases[len(phases) - last :])
        assert alone >= sum(phase.steps for phase in phases) / 3
        assert phases[-1].sheet.side == recipes.FULL[family][0]


def test_share_of_the_rate() -> None:
    assert share_of(0, 100, warm=10) == pytest.approx(0.1)
    assert share_of(50, 100, tail=0.4, last=0.2) == 1.0
    assert share_of(80, 100, tail=0.4, last=0.2) == pytest.approx(0.6)
    assert share_of(99, 100, tail=0.5) == pytest.approx(0.02)


@pytest.mark.parametrize(
    ("given", "said"), [(["--scale", "0"], "above 0"), (["--threads", "0"], "whole numbers from 1")]
)
def test_refusals(
    given: list[str], said: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main([str(tmp_path), *given]) == 2
    assert said in capsys.readouterr().err


@pytest.mark.slow
def test_a_short_run_learns_survives_a_kill_and_loads(tmp_path: Path) -> None:
    """Killed with SIGKILL three times; the loss falls, and the stock classes read the result."""
    from vicoset.runtime.checkpoint import load

    folder = tmp_path / "run"
    command = [sys.executable, "-m", "vicoset.tiny.train", str(folder), "--scale", "0.04"]
    for _ in range(3):
        process = subprocess.Popen([*command, "--every", "5"], env={**os.environ})
        time.sleep(25)
        if process.poll() is None:
            process.send_signal(signal.SIGKILL)
        process.wait()
    subprocess.run([*command, "--every", "5"], check=True)
    signs = [line["loss"] for line in lines(folder / JOURNAL) if line["phase"] == "signs"]
    assert signs[-1] < 0.7 * signs[0]
    with pytest.warns(UserWarning, match="images only"):
        model, processor = load(folder / "model")
    assert model.dtype == torch.bfloat16
    assert processor.tokenizer.pad_token == "<|endoftext|>"
