"""Pictures are refused before the work when they cannot be written, and are whole or not at all."""

import os
from pathlib import Path

import pytest
from PIL import Image

from vicoset.errors import UnwritableError
from vicoset.view import check_target, save
from vicoset.view.saving import SUFFIXES

RED = Image.new("RGB", (6, 4), (200, 0, 0))


@pytest.mark.parametrize("suffix", [*SUFFIXES, ".PNG"])
def test_every_allowed_suffix_is_written(suffix: str, tmp_path: Path) -> None:
    path = save(RED, tmp_path / f"a{suffix}")
    assert path.stat().st_size > 0 and [p.name for p in tmp_path.iterdir()] == [path.name]
    if suffix != ".pdf":
        with Image.open(path) as found:
            assert found.size == (6, 4)


@pytest.mark.parametrize(
    ("name", "told"),
    [
        ("a.xyz", "Write .*a.png"),
        ("a", "no suffix"),
        ("missing/a.png", "mkdir -p .*missing"),
        ("folder.png", "is a directory"),
    ],
)
def test_what_cannot_be_written_is_refused(name: str, told: str, tmp_path: Path) -> None:
    (tmp_path / "folder.png").mkdir()
    with pytest.raises(UnwritableError, match=told):
        check_target(tmp_path / name)


def test_what_stood_there_stays_when_writing_fails(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "a.png"
    path.write_bytes(b"before")

    def full(self: Path, data: bytes) -> int:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(Path, "write_bytes", full)
    with pytest.raises(UnwritableError, match="No space left"):
        save(RED, path)
    assert path.read_bytes() == b"before" and os.listdir(tmp_path) == ["a.png"]
