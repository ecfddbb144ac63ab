"""What a benchmark takes for yes and for no: MME, POPE in three conventions, HallusionBench, AMBER.

The conventions differ on the same answer, so each has a name and none is "the" parser.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

from vicoset.errors import UnknownNameError
from vicoset.evaluate.scorers.vqa import without_punctuation

OTHER = "other"


def mme(answer: str) -> str:
    """MME as lmms-eval reads it: a letter, or "yes" or "no" among the first four letters.

    So "Not sure" is a no, and "I think yes" is neither.

    Args:
        answer: of the model.
    """
    text = answer.lower().strip().replace(".", "")
    if len(text) == 1:
        return {"y": "yes", "n": "no"}.get(text, OTHER)
    start = text[:4]
    return "yes" if "yes" in start else "no" if "no" in start else OTHER


def pope_lmms(answer: str) -> str:
    """POPE as lmms-eval reads it: the answer itself; "yes." equals no reference.

    Args:
        answer: of the model.
    """
    return answer.lower().strip()


def pope_llava(answer: str) -> str:
    """POPE as LLaVA's evaluation reads it: no if the first sentence says No, not or no, else yes.

    Args:
        answer: of the model.
    """
    words = answer.split(".")[0].replace(",", "").split(" ")
    return "no" if {"No", "not", "no"} & set(words) else "yes"


def pope_vlmevalkit(answer: str) -> str:
    """POPE as VLMEvalKit reads it: exactly one of the words yes and no.

    Args:
        answer: of the model.
    """
    found = {"yes", "no"} & set(without_punctuation(answer.lower()).split())
    return found.pop() if len(found) == 1 else OTHER


def hallusion(answer: str) -> str:
    """HallusionBench by rule: yes wherever "yes" occurs, else no.

    Args:
        answer: of the model.
    """
    return "yes" if "yes" in answer.lower() else "no"


def amber(answer: str) -> str:
    """AMBER's discriminative answers: yes where "yes" occurs, else no where "no" occurs.

    Args:
        answer: of the model.
    """
    text = answer.lower()
    return "yes" if "yes" in text else "no" if "no" in text else OTHER


POPE_PARSERS: dict[str, Callable[[str], str]] = {
    "lmms": pope_lmms,
    "llava": pope_llava,
    "vlmevalkit": pope_vlmevalkit,
}


def pope_parser(name: str) -> Callable[[str], str]:
    """The parser of a name.

    Args:
        name: ``lmms``, ``llava`` or ``vlmevalkit``.
    """
    if name not in POPE_PARSERS:
        raise UnknownNameError(
            f"parser={name!r}; allowed are {', '.join(POPE_PARSERS)}. lmms is lmms-eval's, strict."
        )
    return POPE_PARSERS[name]


def disagreement(pairs: Iterable[tuple[str, str]]) -> dict[str, int | dict[str, int]]:
    """How the parsers of POPE differ on answers.

    Args:
        pairs: answer of the model and gold, yes or no.

    Returns:
        ``answers``; ``correct`` by parser; ``verdict_differs``, answers on which not all parsers
        agree whether they are right; ``reading_differs``, by pair of parsers, answers that they
        read as different words (anything but yes and no counts as one word).
    """
    names = list(POPE_PARSERS)
    correct = dict.fromkeys(names, 0)
    between = {f"{a}/{b}": 0 for i, a in enumerate(names) for b in names[i + 1 :]}
    answers = differs = 0
    for answer, gold in pairs:
        answers += 1
        read = {name: parse(answer) for name, parse in POPE_PARSERS.items()}
        read = {name: word if word in ("yes", "no") else OTHER for name, word in read.items()}
        verdicts = {name: word == gold.lower().strip() for name, word in read.items()}
        differs += len(set(verdicts.values())) > 1
        for name, right in verdicts.items():
            correct[name] += right
        for pair in between:
            one, other = pair.split("/")
            between[pair] += read[one] != read[other]
    return {
        "answers": answers,
        "correct": correct,
        "verdict_differs": differs,
        "reading_differs": between,
    }
