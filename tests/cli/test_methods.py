"""``vicoset methods``: everything that is registered is listed, with what it says of itself."""

import json

import pytest

from vicoset.cli.main import main
from vicoset.methods import registry
from vicoset.plan import PAPER_BLOCKS, PRESETS, plan_named


def test_everything_registered_is_listed(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["methods", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    names = registry.names()
    assert [method["name"] for method in found["selectors"]] == list(names.selectors)
    assert [method["name"] for method in found["realisers"]] == list(names.realisers)
    assert [preset["name"] for preset in found["presets"]] == list(PRESETS)
    for preset in found["presets"]:
        stages = plan_named(preset["name"], PAPER_BLOCKS).stages
        assert preset["stages"] == [str(stage) for stage in stages]
    for method in found["selectors"]:
        made = registry.selector(method["name"])
        assert method["query_aware"] == made.query_aware
        assert method["needs"] == sorted(made.needs)


def test_the_page_has_a_line_each(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["methods"]) == 0
    lines = capsys.readouterr().out.splitlines()
    first = [line.split()[0] for line in lines if line.startswith("  ")]
    names = registry.names()
    assert {*names.selectors, *names.realisers, *PRESETS} <= {*first}
    gmc = next(line.split() for line in lines if line.split()[:1] == ["gmc"])
    assert gmc[1] == "yes"
    assert next(line.split() for line in lines if line.split()[:1] == ["random"])[1] == "no"
