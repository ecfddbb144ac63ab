"""The demonstration: what it prints is what was measured, and requests it cannot serve exit 2."""

import subprocess
import sys

import pytest
import torch

from vicoset.core.bounds import Identity
from vicoset.demo.__main__ import KEEPS, main
from vicoset.demo.checks import _check, checks
from vicoset.demo.measure import DRAWS, Study, fidelity, random_support, study
from vicoset.demo.page import (
    AFTER,
    BEFORE,
    GRIDS,
    HEAD_WIDTH,
    HEADS,
    PATCHES,
    draw_page,
    keys,
    rms_norm,
)
from vicoset.demo.show import report

GRID, SMALL = 18, (48, 20)


@pytest.fixture(scope="module")
def small() -> Study:
    return study(draw_page(GRID), list(SMALL))


def test_the_default_run_has_a_row_per_budget(capsys: pytest.CaptureFixture[str]) -> None:
    assert main([]) == 0
    lines = capsys.readouterr().out.splitlines()
    heads = [number for number, line in enumerate(lines) if line.startswith("    K")]
    assert len(heads) == 2
    for head in heads:
        rows = lines[head + 1 : head + 1 + len(KEEPS)]
        assert [int(row.split()[0]) for row in rows] == list(KEEPS)
        assert lines[head + 1 + len(KEEPS)] == ""
    assert max(map(len, lines)) <= 100
    assert not any("FAILS" in line for line in lines)


def test_output_follows_from_the_arguments(capsys: pytest.CaptureFixture[str]) -> None:
    def output(*arguments: str) -> str:
        assert main([*arguments, "--grid", str(GRID), "--keep", "0.1"]) == 0
        return capsys.readouterr().out

    assert output("--seed", "1") == output("--seed", "1")
    assert output("--seed", "1") != output("--seed", "2")


def test_the_coverage_support_covers_more_grounded_mass_than_random_ones(small: Study) -> None:
    for row in small.rows:
        assert len(row.random_coverage) == DRAWS
        for other in row.random_coverage:
            assert row.coverage.saturation[0] >= other.saturation[0]
            assert row.coverage.covered.sum() >= other.covered.sum()


def test_the_certificate_is_at_least_what_the_solver_logged(small: Study) -> None:
    for row in small.rows:
        assert float(row.support.certificate) <= row.certificate + 1e-12
        assert 0.3 < row.certificate <= 1.0


def test_the_picture_shows_the_support(small: Study) -> None:
    lines = report(small, 0).splitlines()
    start = next(number for number, line in enumerate(lines) if line.startswith("K = ")) + 2
    picture = "".join(line[2:] for line in lines[start : start + GRID])
    kept = [number for number, mark in enumerate(picture) if mark in "#o"]
    evidence = [number for number, mark in enumerate(picture) if mark in "#+"]
    assert kept == small.rows[0].coreset.indices.tolist()  # 48 is nearest to 128
    assert evidence == (small.page.patch >= 0).nonzero()[:, 0].tolist()


def test_every_statement_holds(small: Study) -> None:
    for row in small.rows:
        found = checks(small, row)
        assert len(found) == 10
        assert [check.name for check in found if not check.holds] == []


def test_a_statement_that_fails_is_shown_as_such() -> None:
    check = _check("wrong", Identity(torch.tensor([1.0, 3.0]), torch.tensor([1.0, 2.0])))
    assert (check.left, check.right, check.holds) == (3.0, 2.0, False)


def test_message_error_is_that_of_plain_attention(small: Study) -> None:
    """The error again, with whole score matrices and one head at a time."""
    page, row = small.page, small.rows[0]
    block, chosen = page.blocks[0], row.coreset.indices
    tokens = GRID * GRID
    for held, found in (
        (row.coreset.states, row.transport),
        (page.population.states[chosen], row.deletion),
    ):
        image = slice(BEFORE, BEFORE + tokens)
        short = torch.cat([block.states[:BEFORE], held, block.states[BEFORE + tokens :]])
        squared = torch.zeros(2, dtype=torch.float64)
        for head in range(HEADS):
            messages = []
            for states, count in ((block.states, tokens), (short, len(chosen))):
                key, value = (rms_norm(states) @ w[head // 2].T for w in (block.key, block.value))
                scores = block.queries[head] @ key.T / HEAD_WIDTH**0.5
                hidden = torch.ones(AFTER, AFTER, dtype=torch.bool).triu(1)
                scores[:, -AFTER:] = scores[:, -AFTER:].masked_fill(hidden, float("-inf"))
                image = slice(BEFORE, BEFORE + count)
                messages.append(scores.softmax(1)[:, image] @ value[image])
            weight = small.grounding.head_weights[head] * small.grounding.query_weights
            for part, rows in enumerate((messages[0] - messages[1], messages[0])):
                squared[part] += (weight[:, None] * rows.square()).sum()
        assert float((squared[0] / squared[1]).sqrt()) == pytest.approx(found.error, rel=1e-9)


def test_keeping_everything_changes_no_message(small: Study) -> None:
    everyone = torch.arange(GRID * GRID)
    same = fidelity(small.page, small.grounding, everyone, everyone, small.page.population.states)
    assert same.error < 1e-12


@pytest.mark.parametrize("seed", range(3))
def test_the_page_is_as_described(seed: int) -> None:
    page = draw_page(36, seed)
    states = page.population.states
    unit = states / states.norm(dim=1, keepdim=True)
    neighbours = (unit[1:] * unit[:-1]).sum(1)
    assert 0.8 < neighbours.median() < 0.95
    stamp, copy = ((page.patch == number).nonzero()[:, 0] for number in (4, 7))
    assert torch.equal(states[stamp], states[copy])
    blank = states[-36:]
    assert torch.equal(blank, blank[:1].expand_as(blank))
    attention = page.readings[0].attention
    assert attention.sum(-1).max() < 1.0  # the text keys take their part
    top = attention.topk(8).values.sum(-1) / attention.sum(-1)
    assert (top.mean(1) > 0.5).sum() >= 5
    assert torch.allclose(keys(page.blocks[0], 3.0 * states), keys(page.blocks[0], states))


@pytest.mark.parametrize("grid", GRIDS)
def test_the_smallest_and_the_largest_page_hold_every_patch(grid: int) -> None:
    page = draw_page(grid)
    assert set(page.patch.tolist()) == {-1, *range(len(PATCHES))}


def test_random_supports_are_ascending_and_distinct() -> None:
    support = random_support(50, 20, 3)
    assert bool((support[1:] > support[:-1]).all())
    assert torch.equal(support, random_support(50, 20, 3))


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--keep", "0"], "keep=0 tokens; allowed are counts from 1 on"),
        (["--keep", "128", "-3"], "keep=-3 tokens; allowed are counts from 1 on"),
        (["--keep", "1.5"], "keep=1.5 is a float, so a fraction"),
        (["--keep", "nan"], "keep=nan is a float, so a fraction"),
        (["--keep", "1296"], "realised K = 1296, so nothing is compressed"),
        (["--keep", "5000"], "realised K = 1296, so nothing is compressed"),
        (["--keep", "many"], "'many' is neither a count nor a fraction"),
        (["--grid", "11"], "allowed are whole numbers from 12 to 48"),
        (["--grid", "wide"], "allowed are whole numbers from 12 to 48"),
        (["--seed", "-1"], "allowed are whole numbers from 0"),
        (["--colour"], "unrecognized arguments: --colour"),
    ],
)
def test_wrong_arguments_exit_2_and_say_why(
    arguments: list[str], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    try:
        code = main(arguments)
    except SystemExit as stop:
        assert isinstance(stop.code, int)
        code = stop.code
    shown = capsys.readouterr()
    assert code == 2
    assert message in shown.err
    assert shown.out == ""


def test_the_module_runs_as_a_command() -> None:
    command = [sys.executable, "-m", "vicoset.demo"]
    refused = subprocess.run([*command, "--keep", "0"], capture_output=True, text=True)
    assert refused.returncode == 2
    assert refused.stderr.startswith("error: keep=0 tokens")
    assert len(refused.stderr.splitlines()) == 1
    described = subprocess.run([*command, "--help"], capture_output=True, text=True)
    assert described.returncode == 0
    assert "--keep" in described.stdout and "--grid" in described.stdout
