"""docs/models.md says what families.py says; the contract behind it can fail."""

from __future__ import annotations

import re
from typing import Any

import pytest
import torch

from docs import make_models
from tests import zoo
from vicoset.models.families import FAMILIES, REFUSED, family_of


def tables(text: str) -> list[list[list[str]]]:
    """The cells of every table's rows, heads left out."""
    found = re.findall(r"(?:^\|.*\|\n)+", text, re.M)
    return [
        [[cell.strip() for cell in line.strip("|").split("|")] for line in table.splitlines()[2:]]
        for table in found
    ]


@pytest.fixture
def committed() -> str:
    return make_models.PAGE.read_text(encoding="utf-8")


def test_the_page_lists_exactly_the_families(committed: str) -> None:
    rows = tables(committed)[0]
    want = [[f.name, make_models.codes(f.model_types), f.notes] for f in FAMILIES]
    assert [[name, types, notes] for name, types, _, _, notes in rows] == want
    certified = {name for name, _, verdict, _, _ in rows if verdict.startswith("yes")}
    assert certified == {family.name for family in FAMILIES if family.certified}


def test_the_page_lists_exactly_the_refused_types(committed: str) -> None:
    assert tables(committed)[1] == [[f"`{kind}`", why] for kind, why in REFUSED.items()]


def test_the_page_is_what_the_script_writes(committed: str) -> None:
    """From the results that it shows; `make docs-models` writes it anew."""
    passed = {
        name: make_models.Passed(
            re.findall(r"`(.+?)`", decoders), verdict.removeprefix("yes, ").split(" and ")
        )
        for name, _, verdict, decoders, _ in tables(committed)[0]
        if verdict != "no"
    }
    version = re.search(r"transformers (\d\S*),", committed)
    assert version is not None
    assert make_models.page(passed, version[1]) == committed


def test_every_certified_family_has_a_tiny_model() -> None:
    models = [zoo.tiny(name) for name in zoo.FAMILIES]
    assert {family_of(model).name for model in models} == {f.name for f in FAMILIES if f.certified}


@pytest.mark.parametrize("name", ["qwen2_5_vl", "llava"])
def test_the_contract_fails_where_it_should(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    model = zoo.tiny(name)
    inputs = zoo.prompt(model, name, make_models.ROWS)
    assert make_models.deletion(model, inputs, 2)
    assert make_models.identity(model, inputs, 2)
    blind = make_models.blind
    monkeypatch.setattr(make_models, "blind", lambda m, gone, p: blind(m, gone, p + 1))
    assert not make_models.deletion(model, inputs, 2)
    monkeypatch.setattr(make_models, "EVERYTHING", make_models.Keep(tokens=make_models.KEEP))
    assert not make_models.identity(model, inputs, 2)


def test_a_broken_family_keeps_the_page_as_it_is(monkeypatch: pytest.MonkeyPatch) -> None:
    def off(model: Any, inputs: dict[str, torch.Tensor], boundary: int) -> bool:
        return boundary != 2

    monkeypatch.setattr(make_models, "deletion", off)
    monkeypatch.setattr(make_models, "identity", lambda *_: True)
    monkeypatch.setattr(zoo, "FAMILIES", ("llava",))
    with pytest.raises(SystemExit, match=r"llava: off, images 1, p = 2, sdpa") as error:
        make_models.certify()
    assert "Gemma3: certified without a tiny model" in str(error.value)
