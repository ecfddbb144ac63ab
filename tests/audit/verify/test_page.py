"""``docs/records.md`` shows the schema that the program holds records to."""

from pathlib import Path

from tests.audit.verify.tamper import UNSEEN
from vicoset.audit.verify.problem import EXACT, SUMMED
from vicoset.audit.verify.rerun import CLOSE, COARSE
from vicoset.audit.verify.schema import OBJECTS, RECORD, VERSION, tables
from vicoset.runtime.record_json import SCHEMA

PAGE = (Path(__file__).parents[3] / "docs" / "records.md").read_text(encoding="utf-8")


def test_every_table_is_on_the_page():
    for table in tables():
        assert table in PAGE, f"docs/records.md lacks or differs in:\n{table}"
    assert PAGE.count("\n### ") == len(OBJECTS)


def test_version_and_tolerances_are_those_of_the_program():
    assert VERSION == SCHEMA and f"schema has version {VERSION}" in PAGE
    assert (EXACT, SUMMED) == (1e-6, 2e-5) and "1e-6, sums to 2e-5" in PAGE
    assert (CLOSE["float32"], COARSE) == (1e-4, 2e-2) and "1e-4 (2e-2 in half precision)" in PAGE


def test_what_alone_cannot_show_is_a_field():
    for name in UNSEEN:
        assert name.split(".")[0] in RECORD.fields
