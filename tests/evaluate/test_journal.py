"""A journal loses at most its last line, and says so."""

import errno
import json
import os

import pytest

from vicoset.errors import JournalError
from vicoset.evaluate import journal as module
from vicoset.evaluate.journal import Journal, scan, sealed, unsealed

LINES = [{"n": 1}, {"text": "zwei\n☃", "list": [1, 2.5, None]}, {"n": 3}]


@pytest.fixture
def path(tmp_path):
    with Journal(tmp_path / "j.jsonl") as journal:
        for line in LINES:
            journal.append(line)
    return tmp_path / "j.jsonl"


def contents(path):
    return [content for _, content in scan(path).lines]


def test_a_line_is_json_and_comes_back(path):
    assert contents(path) == LINES
    assert path.read_bytes().count(b"\n") == len(LINES)
    assert unsealed(sealed(LINES[1])[:-1]) == LINES[1]
    assert [json.loads(line)["line"] for line in path.read_text("utf-8").splitlines()] == LINES


@pytest.mark.parametrize("place", range(len(sealed(LINES[0])) - 1))
def test_a_flipped_bit_anywhere_is_seen(place):
    line = bytearray(sealed(LINES[0])[:-1])
    line[place] ^= 1
    with pytest.raises(ValueError):
        unsealed(bytes(line))


@pytest.mark.parametrize("cut", range(1, len(sealed(LINES[2])) + 1))
def test_a_half_last_line_is_kept_aside_and_written_again(path, cut):
    whole = path.read_bytes()
    path.write_bytes(whole[:-cut])
    with Journal(path) as journal:
        assert [content for _, content in journal.lines] == LINES[:2]
        lost = whole[: len(whole) - cut].rpartition(b"\n")[2]
        assert len(journal.notes) == (1 if lost else 0)
        if lost:
            assert path.with_suffix(".torn-1").read_bytes() == lost
            assert str(path) in journal.notes[0] and "torn-1" in journal.notes[0]
        journal.append(LINES[2])
    assert path.read_bytes() == whole


def test_a_damaged_last_line_is_kept_aside(path):
    data = bytearray(path.read_bytes())
    data[-4] ^= 1
    path.write_bytes(bytes(data))
    with Journal(path) as journal:
        assert [content for _, content in journal.lines] == LINES[:2]
        assert "its sample will be computed again" in journal.notes[0]
    with Journal(path) as journal:
        assert journal.notes == []


def flip(path, line, byte=30):
    lines = path.read_bytes().splitlines(keepends=True)
    damaged = bytearray(lines[line - 1])
    damaged[byte] ^= 1
    path.write_bytes(b"".join([*lines[: line - 1], bytes(damaged), *lines[line:]]))


def test_damage_in_the_middle_names_the_line_and_changes_nothing(path):
    flip(path, 2)
    before = path.read_bytes()
    with pytest.raises(JournalError, match=r"j\.jsonl is damaged in line 2.*--repair"):
        Journal(path)
    assert path.read_bytes() == before


def test_repair_leaves_the_damaged_line_out_and_the_file_aside(path):
    flip(path, 2)
    before = path.read_bytes()
    with Journal(path, repair=True) as journal:
        assert [content for _, content in journal.lines] == [LINES[0], LINES[2]]
        assert "lines 2" in journal.notes[0]
        journal.append({"n": 4})
    assert contents(path) == [LINES[0], LINES[2], {"n": 4}]
    assert path.with_suffix(".damaged-1").read_bytes() == before


def test_damage_and_a_half_line_are_both_mended(path):
    path.write_bytes(path.read_bytes() + b'{"sum": "12')
    flip(path, 1)
    with pytest.raises(JournalError, match="line 1"):
        Journal(path)
    with Journal(path, repair=True) as journal:
        assert [content for _, content in journal.lines] == LINES[1:]


def test_one_writer(path):
    with Journal(path) as first:
        with pytest.raises(JournalError, match=f"held by process {os.getpid()}"):
            Journal(path)
        first.append({"n": 4})
    with Journal(path) as again:
        assert len(again.lines) == 4


@pytest.mark.parametrize("written", [0, 5])
def test_a_full_disk_loses_nothing(path, monkeypatch, written):
    """Also when a part of the line still fitted."""
    real = os.write

    def full(handle, data):
        real(handle, data[:written])
        raise OSError(errno.ENOSPC, "No space left on device")

    before = path.read_bytes()
    with Journal(path) as journal:
        with monkeypatch.context() as patch:
            patch.setattr(module, "_write", full)
            with pytest.raises(JournalError, match=r"No space left on device.*are stored"):
                journal.append({"n": 4})
        assert path.read_bytes() == before
        journal.append({"n": 4})  # there is room again
    assert contents(path) == [*LINES, {"n": 4}]


def test_a_short_write_is_finished(path, monkeypatch):
    monkeypatch.setattr(module, "_write", lambda handle, data: os.write(handle, data[:3]))
    with Journal(path) as journal:
        journal.append({"n": 4})
    assert contents(path) == [*LINES, {"n": 4}]


def test_every_line_is_on_the_disk_before_append_returns(path, monkeypatch):
    synced = []
    real = os.fsync
    monkeypatch.setattr(os, "fsync", lambda handle: (synced.append(handle), real(handle)))
    with Journal(path) as journal:
        synced.clear()
        journal.append({"n": 4})
        assert len(synced) == 1


def test_what_json_cannot_hold_is_refused_before_anything_is_written(path):
    before = path.read_bytes()
    with Journal(path) as journal, pytest.raises(ValueError):
        journal.append({"score": float("nan")})
    assert path.read_bytes() == before
