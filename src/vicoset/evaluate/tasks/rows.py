"""Local tables with pictures: Parquet as public datasets have it, or JSON beside image files."""

from __future__ import annotations

import functools
import hashlib
import io
import json
import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from vicoset.errors import UnreadableError, UnsupportedError
from vicoset.evaluate.task import Picture

_KINDS = (".parquet", ".json", ".jsonl")


@dataclass(frozen=True)
class Place:
    """Where a row lies.

    Attributes:
        path: the file.
        group: row group of a Parquet file.
        row: inside the group, or inside a JSON file.
    """

    path: Path
    group: int
    row: int


class Rows(Sequence[Mapping[str, Any]]):
    """Rows without their pictures, which are read one at a time."""

    def __init__(self, rows: list[dict[str, Any]], places: list[Place], columns: set[str]) -> None:
        self._rows = rows
        self._places = places
        self.columns = columns

    def __len__(self) -> int:
        """Number of rows."""
        return len(self._rows)

    def __getitem__(self, place: Any) -> Any:
        """A row, or a list of them for a slice."""
        return self._rows[place]

    def __iter__(self) -> Iterator[Mapping[str, Any]]:
        """The rows in order."""
        return iter(self._rows)

    def picture(self, place: int, column: str = "image") -> Picture:
        """A picture that is read when asked for.

        Args:
            place: of the row.
            column: that holds it.
        """
        at = self._places[place]
        if at.path.suffix != ".parquet":
            return picture_of(at.path.parent / str(self._rows[place].get(column)))
        name = f"{at.path.name} row {place} {column}"
        return Picture(name, functools.partial(_decoded, at, column, name), at.path)

    def picture_key(self, place: int, column: str = "image") -> str:
        """What is equal for rows that show the same picture: its path, or a digest of its bytes.

        Args:
            place: of the row.
            column: that holds it.
        """
        at = self._places[place]
        if at.path.suffix != ".parquet":
            return str(self._rows[place].get(column))
        return hashlib.sha1(_bytes(at, column), usedforsecurity=False).hexdigest()[:16]


def read_rows(
    path: str | os.PathLike[str] | None,
    split: str,
    needs: Sequence[str],
    *,
    optional: Sequence[str] = (),
    config: str = "",
    images: Sequence[str] = ("image",),
) -> Rows:
    """The rows of a split.

    Args:
        path: a file, or a directory that holds ``<split>*.parquet`` (or .json, .jsonl) somewhere.
        split: how the files' names start.
        needs: columns that have to be there.
        optional: columns that are read where they are there.
        config: a folder that the files lie in, where a directory holds several configurations.
        images: columns with pictures, which have to be there and are read later.
    """
    files = files_of(path, split, config)
    rows: list[dict[str, Any]] = []
    places: list[Place] = []
    columns: set[str] = set()
    for file in files:
        found = _parquet(file, needs, optional, images) if file.suffix == ".parquet" else None
        for place, row in found or _json(file, needs, images):
            rows.append(row)
            places.append(place)
            columns |= row.keys()
    if not rows:
        raise UnreadableError(f"{', '.join(map(str, files))} hold no rows; at least one is needed.")
    return Rows(rows, places, columns)


def files_of(path: str | os.PathLike[str] | None, split: str, config: str = "") -> list[Path]:
    """The files of a split, in order.

    Args:
        path: a file, or a directory.
        split: how the files' names start.
        config: a folder, where a directory holds several configurations.
    """
    if path is None:
        raise UnreadableError(
            "path=None; allowed is a local file or directory with the benchmark's data. Only "
            "tinybench draws its own."
        )
    given = Path(path)
    if given.is_file():
        return [given]
    if not given.is_dir():
        raise UnreadableError(
            f"{given} is not there; allowed is a local file or directory, such as "
            "`hf download <name> --repo-type dataset --local-dir <directory>` leaves it."
        )
    for kind in _KINDS:
        found = sorted(given.rglob(f"{split}*{kind}"))
        inside = [file for file in found if config in file.relative_to(given).parts]
        if inside or found:
            return inside or found
    there = sorted({str(f.relative_to(given)) for f in given.rglob("*") if f.suffix in _KINDS})
    raise UnreadableError(
        f"{given} has no {split}*.parquet, .json or .jsonl; it has {', '.join(there[:8]) or 'none'}"
        f". Give the directory of the split {split!r}, or the file itself."
    )


def subset(
    task: str, rows: list[dict[str, Any]], ids: str | os.PathLike[str] | None, count: int | None
) -> list[dict[str, Any]]:
    """The rows of a list of ids, or a number of evenly spaced ones, or all.

    Args:
        task: its name, for messages.
        rows: with an ``id``.
        ids: a JSON list.
        count: how many.
    """
    if ids is not None and count is not None:
        raise UnreadableError(f"{task} got ids= and count=; allowed is one of them. Leave one out.")
    if ids is not None:
        wanted = set(read_json(ids))
        missing = wanted - {row["id"] for row in rows}
        if missing:
            raise UnreadableError(
                f"{ids} names {len(missing)} ids that {task} does not have, such as "
                f"{min(map(str, missing))}. Check which version of the data they are of."
            )
        return [row for row in rows if row["id"] in wanted]
    if count is None:
        return rows
    if not 0 < count <= len(rows):
        raise UnreadableError(f"{task} has {len(rows)} rows; count={count} is no number of them.")
    return [rows[i * len(rows) // count] for i in range(count)]


def _parquet(
    file: Path, needs: Sequence[str], optional: Sequence[str], images: Sequence[str]
) -> Iterator[tuple[Place, dict[str, Any]]]:
    opened = _opened_parquet(file)
    names = set(opened.schema_arrow.names)
    _check(file, names, (*needs, *images))
    read = [name for name in dict.fromkeys((*needs, *optional)) if name in names]
    for group in range(opened.num_row_groups):
        for row, values in enumerate(opened.read_row_group(group, columns=read).to_pylist()):
            yield Place(file, group, row), values


def _json(
    file: Path, needs: Sequence[str], images: Sequence[str]
) -> Iterator[tuple[Place, dict[str, Any]]]:
    for place, row in enumerate(read_json(file)):
        _check(file, row.keys() if isinstance(row, dict) else set(), (*needs, *images))
        yield Place(file, 0, place), row


def picture_of(file: Path) -> Picture:
    """The picture of a file.

    Args:
        file: with an image.
    """
    return Picture(str(file), functools.partial(_opened, file), file)


def read_json(file: str | os.PathLike[str]) -> Any:
    """What a .json holds, or the lines of a .jsonl.

    Args:
        file: in UTF-8.
    """
    try:
        text = Path(file).read_text(encoding="utf-8")
        if Path(file).suffix == ".jsonl":
            return [json.loads(line) for line in text.splitlines() if line.strip()]
        return json.loads(text)
    except FileNotFoundError:
        raise UnreadableError(f"{file} is not there; the task needs it. Check the path.") from None
    except ValueError as error:
        raise UnreadableError(f"{file} is no JSON: {error}. Copy it again.") from error


def _check(file: Path, names: Any, wanted: Sequence[str]) -> None:
    missing = [name for name in wanted if name not in names]
    if missing:
        raise UnreadableError(
            f"{file} has no column {', '.join(missing)}; it has {', '.join(sorted(names))}. Give "
            "the file of the task in the layout of the public dataset."
        )


@functools.lru_cache(maxsize=8)
def _opened_parquet(file: Path) -> Any:
    try:
        import pyarrow.parquet as parquet
    except ImportError:
        raise UnsupportedError(
            f"{file} is Parquet, which needs pyarrow; install vicoset[evaluate], or give JSON."
        ) from None
    return parquet.ParquetFile(file)


@functools.lru_cache(maxsize=2)
def _column(file: Path, group: int, column: str) -> Any:
    return _opened_parquet(file).read_row_group(group, columns=[column]).column(0)


def _bytes(at: Place, column: str) -> bytes:
    value = _column(at.path, at.group, column)[at.row].as_py()
    found = value.get("bytes") if isinstance(value, dict) else value
    if found is None and isinstance(value, dict) and value.get("path"):
        return Path(at.path.parent / value["path"]).read_bytes()
    if not isinstance(found, bytes):
        raise UnreadableError(
            f"{at.path} row {at.row} of group {at.group} has no picture in {column}; allowed are "
            "encoded bytes. Copy the file again."
        )
    return found


def _decoded(at: Place, column: str, name: str) -> Any:
    from PIL import Image, UnidentifiedImageError

    try:
        with Image.open(io.BytesIO(_bytes(at, column))) as image:
            return _upright(image)
    except UnidentifiedImageError:
        raise UnreadableError(
            f"{name} is no image that Pillow knows; copy the file again."
        ) from None


def _opened(file: Path) -> Any:
    from PIL import Image, UnidentifiedImageError

    try:
        with Image.open(file) as image:
            return _upright(image)
    except FileNotFoundError:
        raise UnreadableError(f"image {file} is not there; check the image folder.") from None
    except UnidentifiedImageError:
        raise UnreadableError(f"{file} is no image that Pillow knows; copy it again.") from None


def _upright(image: Any) -> Any:
    """The picture as it is looked at: cameras note how they were held, as ``datasets`` heeds."""
    from PIL import ImageOps

    return ImageOps.exif_transpose(image).convert("RGB")
