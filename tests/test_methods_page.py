"""docs/methods.md says what methods say of themselves, all of them and nothing else."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from docs import make_methods
from vicoset.methods import registry
from vicoset.plan import PRESETS
from vicoset.runtime import downsample


@pytest.fixture
def committed() -> str:
    return make_methods.PAGE.read_text(encoding="utf-8")


def test_the_page_is_what_the_command_writes(committed: str) -> None:
    assert make_methods.page() == committed, "run make docs-methods"


def test_the_page_has_every_registered_name_once(committed: str) -> None:
    sections = re.findall(r"^### (\S+)$", committed, re.M)
    known = registry.names()
    wanted = [*known.selectors, *known.realisers, downsample.NAME]
    assert sorted(sections) == sorted(wanted)
    rows = re.findall(r"^\| `([a-z0-9-]+)` \|", committed, re.M)
    assert sorted(rows) == sorted(PRESETS)


def test_every_method_says_what_a_reader_needs() -> None:
    for name in registry.names().selectors:
        about = registry.selector(name).about
        assert about.checked, name
        if about.code:
            assert about.notes and about.budget, name
            assert re.fullmatch(r"[\w.-]+/[\w.-]+", about.code), name


def test_a_new_method_changes_the_page(monkeypatch: pytest.MonkeyPatch) -> None:
    before = make_methods.page()
    about = registry.selector("fastv").about._replace(title="Another title")
    monkeypatch.setattr(type(registry.selector("fastv")), "about", about)
    assert make_methods.page() != before


def test_licences_of_public_code_are_named(committed: str) -> None:
    assert "`vbdi/divprune`, licence: CC BY-NC 4.0" in committed
    assert "`pkunlp-icler/FastV`, licence: none stated" in committed
    assert Path("docs/methods.md").name == make_methods.PAGE.name
