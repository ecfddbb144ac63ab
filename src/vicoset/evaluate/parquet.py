"""A run as one Parquet file, for DuckDB, Polars, pandas and whoever reads columns."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
from pyarrow import parquet

from vicoset.evaluate.entry import Entry

_WHOLE, _REAL, _TEXT = pa.int64(), pa.float64(), pa.string()
_OF_RUN = {"run_id": _TEXT, "method": _TEXT, "plan": _TEXT, "keep": _TEXT}
_OF_ENTRY = {
    "task": _TEXT,
    "sample_id": _TEXT,
    "index": _WHOLE,
    "unit_id": _TEXT,
    "stratum": _TEXT,
    "groups": pa.map_(_TEXT, _TEXT),
    "score": _REAL,
    "stats": pa.map_(_TEXT, _REAL),
    "raw": _TEXT,
    "normalised": _TEXT,
    "requested": _TEXT,
    "tokens": _WHOLE,
    "images": _WHOLE,
    "boundaries": pa.list_(_WHOLE),
    "kept_by_stage": pa.list_(_WHOLE),
    "length": _WHOLE,
    "compact_length": _WHOLE,
    "depth": _WHOLE,
    "work": _WHOLE,
    "kv_bytes": _WHOLE,
    "full_kv_bytes": _WHOLE,
    "new_tokens": _WHOLE,
    "seconds": pa.map_(_TEXT, _REAL),
    "peak_bytes": _WHOLE,
    "process": _TEXT,
    "support": pa.list_(pa.list_(pa.int32())),
    "evidence": _TEXT,  # JSON: every method measures its own
    "notes": pa.list_(_TEXT),
}
_DERIVED = {"kept": _WHOLE, "work_share": _REAL, "layer_average": _REAL}
_MAPS = ("groups", "stats", "seconds")
_FACTS = b"vicoset.run"


def write(path: Path, entries: Sequence[Entry], facts: Mapping[str, Any]) -> None:
    """Write a file whole or not at all.

    Args:
        path: of the file.
        entries: of the run, in the order of its task.
        facts: of the run, which the file carries as metadata.
    """
    run = {name: facts["info"][name] for name in _OF_RUN}
    columns: dict[str, list[Any]] = {name: [value] * len(entries) for name, value in run.items()}
    for name in _OF_ENTRY:
        columns[name] = [_cell(name, getattr(entry, name)) for entry in entries]
    for name in _DERIVED:
        columns[name] = [getattr(entry, name) for entry in entries]
    schema = pa.schema(
        list({**_OF_RUN, **_OF_ENTRY, **_DERIVED}.items()),
        metadata={_FACTS: json.dumps(dict(facts), ensure_ascii=False).encode()},
    )
    fresh = path.with_suffix(".new")
    parquet.write_table(pa.table(columns, schema=schema), fresh, compression="zstd")
    os.replace(fresh, path)


def read(path: str | os.PathLike[str]) -> tuple[list[Entry], dict[str, Any]]:
    """The entries and the facts of a file that :func:`write` made.

    Args:
        path: of the file.
    """
    table = parquet.read_table(os.fspath(path))
    facts: dict[str, Any] = json.loads(table.schema.metadata[_FACTS])
    rows = table.select(list(_OF_ENTRY)).to_pylist()
    return [Entry.from_json(_back(row)) for row in rows], facts


def _cell(name: str, value: Any) -> Any:
    if name in _MAPS:
        return list(value.items())
    return None if value is None else json.dumps(value) if name == "evidence" else value


def _back(row: Mapping[str, Any]) -> dict[str, Any]:
    found = {name: value for name, value in row.items() if value is not None}
    for name in _MAPS:
        found[name] = dict(found[name])
    if "evidence" in found:
        found["evidence"] = json.loads(found["evidence"])
    return found
