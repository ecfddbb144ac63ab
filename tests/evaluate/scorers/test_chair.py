"""CHAIR's words: pairs, plurals, the toilet's seat, and NLTK where it would be asked."""

import sys
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest

from tests.evaluate.data import SYNONYMS
from vicoset.errors import UnknownNameError, UnsupportedError
from vicoset.evaluate.scorers import chair


@pytest.fixture
def synonyms(tmp_path: Path) -> chair.Synonyms:
    (tmp_path / "synonyms.txt").write_text(SYNONYMS + "\nwine glass\nknife, knive\n")
    return chair.Synonyms.read(tmp_path / "synonyms.txt")


@pytest.mark.parametrize(
    ("caption", "objects", "length"),
    [
        ("Two dogs and a kitten.", ["dog", "cat"], 6),
        ("A baby dog near an adult cat", ["dog", "cat"], 5),
        ("The seat of the toilet", ["toilet"], 5),
        ("A toilet seat", ["toilet"], 2),
        ("A seat, two chairs", ["chair", "chair"], 5),
        ("wine glasses, wine glass", ["wine glass", "wine glass"], 3),
        ("Buses and a bus", ["bus", "bus"], 4),
        ("women, men and people", ["person"] * 3, 5),
        ("a bow tie", ["tie"], 2),
        ("three knives", ["knife"], 2),
        ("dogged catty chairman", [], 3),
        ("", [], 0),
    ],
)
def test_nouns(synonyms: chair.Synonyms, caption: str, objects: list[str], length: int) -> None:
    found = synonyms.mentions(chair.lemmas_of("nouns", synonyms)(caption))
    assert found == (objects, length)


def test_words_are_parted_as_the_metric_does(tmp_path: Path) -> None:
    """The released file has entries with a second blank, which the released code never matches."""
    (tmp_path / "synonyms.txt").write_text("cake,  cheesecake, cupcake\n")
    assert set(chair.Synonyms.read(tmp_path / "synonyms.txt").classes) == {
        "cake",
        " cheesecake",
        "cupcake",
    }


def test_statistics() -> None:
    stats = chair.statistics(chair.Mentions(["dog", "dog", "cat"], 9), ["cat", "bus"])
    assert stats == {
        "captions": 1,
        "wrong_captions": 1,
        "mentions": 3,
        "wrong_mentions": 2,
        "objects": 2,
        "recalled": 1,
        "words": 9,
    }


def fake_nltk(missing: str) -> dict[str, Any]:
    def find(name: str) -> None:
        if missing and missing in name:
            raise LookupError(name)

    nltk: Any = ModuleType("nltk")
    nltk.data = SimpleNamespace(find=find)
    nltk.word_tokenize = str.split
    nltk.pos_tag = lambda words: [(w, "VBG" if w.endswith("ing") else "NNS") for w in words]
    stem: Any = ModuleType("nltk.stem")

    class WordNetLemmatizer:
        def lemmatize(self, word: str, pos: str) -> str:
            return {"v": word.removesuffix("ing"), "n": word.removesuffix("s")}[pos]

    stem.WordNetLemmatizer = WordNetLemmatizer
    return {"nltk": nltk, "nltk.stem": stem}


def test_official_calls_nltk(synonyms: chair.Synonyms, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, module in fake_nltk("").items():
        monkeypatch.setitem(sys.modules, name, module)
    assert chair.lemmas_of("official", synonyms)("Dogs seating") == ["dog", "seat"]


@pytest.mark.parametrize("missing", ["punkt_tab", "averaged_perceptron_tagger_eng", "wordnet"])
def test_official_names_what_is_missing(
    synonyms: chair.Synonyms, monkeypatch: pytest.MonkeyPatch, missing: str
) -> None:
    for name, module in fake_nltk(missing).items():
        monkeypatch.setitem(sys.modules, name, module)
    with pytest.raises(UnsupportedError, match=f"data {missing}, not found.*nltk.downloader"):
        chair.lemmas_of("official", synonyms)


def test_unknown_mode(synonyms: chair.Synonyms) -> None:
    with pytest.raises(UnknownNameError, match="nouns, official"):
        chair.lemmas_of("verbs", synonyms)
