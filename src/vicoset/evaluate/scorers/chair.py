"""CHAIR (Rohrbach et al., 2018), as OPERA's scorer counts it.

It counts the objects that a caption names and its image does not show. The words come from the
metric's own ``synonyms.txt``, a file of its released data. What turns a caption into lemmas has two
forms: "official" is the released pipeline on NLTK's data, "nouns" is a rule of ours that needs
nothing, and whose figures are not comparable with published ones.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

from vicoset.errors import UnknownNameError, UnreadableError, UnsupportedError

Lemmas = Callable[[str], list[str]]

MODES = ("nouns", "official")
_RESOURCES = {
    "punkt_tab": "tokenizers/punkt_tab",
    "averaged_perceptron_tagger_eng": "taggers/averaged_perceptron_tagger_eng",
    "wordnet": "corpora/wordnet",
}
_KEPT_DOUBLES = (
    *("motor bike", "motor cycle", "air plane", "traffic light", "street light", "traffic signal"),
    *("stop light", "fire hydrant", "stop sign", "parking meter", "suit case", "sports ball"),
    *("baseball bat", "baseball glove", "tennis racket", "wine glass", "hot dog", "cell phone"),
    *("mobile phone", "teddy bear", "hair drier", "potted plant", "laptop computer"),
    *("stove top oven", "home plate", "train track"),
)
_ANIMALS = (
    *("bird", "cat", "dog", "horse", "sheep", "cow", "elephant", "bear", "zebra", "giraffe"),
    *("animal", "cub"),
)
# What two neighbouring words stand for; "baby bird" is no person.
DOUBLES: dict[str, str] = {
    **{words: words for words in _KEPT_DOUBLES},
    **{f"{young} {animal}": animal for animal in _ANIMALS for young in ("baby", "adult")},
    **{f"passenger {vehicle}": vehicle for vehicle in ("jet", "train")},
    **{"bow tie": "tie", "toilet seat": "toilet", "wine glas": "wine glass"},
}
# Endings of plural nouns, after WordNet's rules of detachment.
_ENDINGS = (
    *(("ses", "s"), ("xes", "x"), ("zes", "z"), ("ches", "ch"), ("shes", "sh"), ("men", "man")),
    *(("ves", "f"), ("ves", "fe"), ("ies", "y"), ("s", "")),
)
_IRREGULAR = {"geese": "goose", "mice": "mouse"}
_TOKEN = re.compile(r"[^\W_]+(?:['-][^\W_]+)*|[^\w\s]")


class Mentions(NamedTuple):
    """What a caption says.

    Attributes:
        objects: classes, in order, each as often as it is named.
        length: words after pairs were merged.
    """

    objects: list[str]
    length: int


@dataclass(frozen=True)
class Synonyms:
    """The words of the 80 classes.

    Attributes:
        classes: word to class.
    """

    classes: Mapping[str, str]

    @classmethod
    def read(cls, path: str | os.PathLike[str]) -> Synonyms:
        """The table of a ``synonyms.txt``: a class a line, its name first, parted by ", ".

        Args:
            path: of the file.
        """
        if not Path(path).is_file():
            raise UnreadableError(
                f"{path} is not there; allowed is the metric's own table of words. Copy "
                "data/synonyms.txt of github.com/LisaAnne/Hallucination to that place."
            )
        # Parted exactly as the metric does it: an entry with a second blank never matches there.
        lines = Path(path).read_text(encoding="utf-8").splitlines()
        rows = [line.strip().split(", ") for line in lines if line.strip()]
        return cls({word: row[0] for row in rows for word in row})

    def mentions(self, lemmas: Sequence[str]) -> Mentions:
        """The objects among a caption's lemmas.

        Args:
            lemmas: in order.
        """
        words: list[str] = []
        place = 0
        while place < len(lemmas):
            pair = DOUBLES.get(" ".join(lemmas[place : place + 2]))
            words.append(pair or lemmas[place])
            place += 2 if pair else 1
        seat_of_toilet = "toilet" in words and "seat" in words
        named = [word for word in words if not (seat_of_toilet and word == "seat")]
        return Mentions([self.classes[w] for w in named if w in self.classes], len(words))


def lemmas_of(mode: str, synonyms: Synonyms) -> Lemmas:
    """What turns a caption into lemmas.

    Args:
        mode: ``nouns`` or ``official``.
        synonyms: whose words ``nouns`` knows.
    """
    if mode not in MODES:
        raise UnknownNameError(
            f"mode={mode!r}; allowed are {', '.join(MODES)}. nouns needs no further data, official "
            "is comparable with published figures."
        )
    return _official() if mode == "official" else _nouns(synonyms)


def statistics(found: Mentions, truth: Sequence[str]) -> dict[str, float]:
    """What the rates are sums of.

    Args:
        found: of the caption.
        truth: the image's classes.
    """
    there = set(truth)
    wrong = sum(name not in there for name in found.objects)
    return {
        "captions": 1.0,
        "wrong_captions": float(wrong > 0),
        "mentions": float(len(found.objects)),
        "wrong_mentions": float(wrong),
        "objects": float(len(there)),
        "recalled": float(len(there & set(found.objects))),
        "words": float(found.length),
    }


def _nouns(synonyms: Synonyms) -> Lemmas:
    known = {part for word in (*synonyms.classes, *DOUBLES) for part in (word, *word.split())}

    def singular(word: str) -> str:
        if word in known:
            return word
        stems = [word[: -len(old)] + new for old, new in _ENDINGS if word.endswith(old)]
        stems.append(_IRREGULAR.get(word, word))
        return next((stem for stem in stems if stem in known), word)

    return lambda caption: [singular(word) for word in _TOKEN.findall(caption.lower())]


def _official() -> Lemmas:
    """NLTK's tokenizer, tagger and WordNet, as the released scorer calls them."""
    try:
        import nltk
        from nltk.stem import WordNetLemmatizer
    except ImportError:
        raise UnsupportedError(
            "mode='official' needs the package nltk, which is not installed; install nltk and its "
            f"data {', '.join(_RESOURCES)}, or use mode='nouns'."
        ) from None
    missing = [name for name, place in _RESOURCES.items() if not _has(nltk, place)]
    if missing:
        raise UnsupportedError(
            f"mode='official' needs the NLTK data {', '.join(missing)}, not found on NLTK's paths. "
            f"Run `python -m nltk.downloader {' '.join(missing)}`, or use mode='nouns'."
        )
    lemmatise = WordNetLemmatizer().lemmatize
    parts = {"J": "a", "V": "v", "N": "n", "R": "r"}  # of a tag's first letter; nouns else

    def lemmas(caption: str) -> list[str]:
        tagged: list[Any] = nltk.pos_tag(nltk.word_tokenize(caption.lower()))
        return [lemmatise(word, pos=parts.get(tag[:1], "n")) for word, tag in tagged]

    return lemmas


def _has(nltk: Any, place: str) -> bool:
    for name in (place, f"{place}.zip"):
        try:
            nltk.data.find(name)
        except LookupError:
            continue
        return True
    return False
