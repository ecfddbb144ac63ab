"""TextVQA's accuracy: EvalAI's normalisation of answers, and agreement with ten people.

After VQA (Antol et al., 2015) and TextVQA (Singh et al., 2019); equal to lmms-eval's
``EvalAIAnswerProcessor`` and ``textvqa_process_results``.
"""

from __future__ import annotations

import re
import statistics
from collections.abc import Sequence

_NUMBERS = "zero one two three four five six seven eight nine ten"
NUMBER_WORDS = {"none": "0", **{word: str(value) for value, word in enumerate(_NUMBERS.split())}}
ARTICLES = frozenset({"a", "an", "the"})
PUNCTUATION = ';/[]"{}()=+\\_->' + "<@`,?!"
_PERIOD = re.compile(r"\.(?!\d)")
_DIGIT_COMMA = re.compile(r"(?<=\d),+(?=\d)")
_MOST_PERIODS = 32  # EvalAI hands re.UNICODE to sub() where the count of replacements stands

# Written forms; the key of each is the form without its apostrophe.
_ONE_APOSTROPHE = """
    ain't aren't can't could've couldn't didn't doesn't don't hadn't hasn't haven't he'd he's how'd
    how'll how's isn't it'd it'll ma'am mightn't might've mustn't must've needn't not've o'clock
    oughtn't shan't should've shouldn't somebody'll somebody's someone'd someone'll someone's
    something'd something'll that's there'd there're there's they'd they'll they're they've 'twas
    wasn't we've weren't what'll what're what's what've when's where'd where's where've who'd who'll
    who's who've why'll why're why's won't would've wouldn't y'all you'd you'll you're you've
"""
# Two apostrophes; the keys are the form without the one or the other.
_TWO_APOSTROPHES = """
    couldn't've hadn't've he'd've it'd've mightn't've she'd've shouldn't've someone'd've
    something'd've there'd've they'd've we'd've who'd've wouldn't've you'd've
"""


def _contractions() -> dict[str, str]:
    """What a word without its apostrophes is written as."""
    table = {form.replace("'", ""): form for form in _ONE_APOSTROPHE.split()}
    for form in _TWO_APOSTROPHES.split():
        first, second = (place for place, letter in enumerate(form) if letter == "'")
        table[form[:first] + form[first + 1 :]] = form
        table[form[:second] + form[second + 1 :]] = form
    # EvalAI's own oddities.
    table.update({"ow's'at": "'ow's'at", "'ows'at": "'ow's'at", "'ow'sat": "'ow's'at"})
    table.update({"somebody'd": "somebodyd", "somebodyd've": "somebody'd've"})
    table.update({"somebody'dve": "somebody'd've", "yall'll": "y'all'll", "y'allll": "y'all'll"})
    for odd in ("yall'd've", "y'alld've", "y'all'dve"):
        table[odd] = "y'all'd've"
    return table


CONTRACTIONS = _contractions()


def without_punctuation(text: str) -> str:
    """Punctuation that touches a blank goes, other punctuation becomes a blank.

    Args:
        text: in lower case.
    """
    grouped = _DIGIT_COMMA.search(text) is not None
    found = text
    for mark in PUNCTUATION:
        touches = f"{mark} " in text or f" {mark}" in text
        found = found.replace(mark, "" if touches or grouped else " ")
    return _PERIOD.sub("", found, count=_MOST_PERIODS)


def normalise(answer: str) -> str:
    """The form in which EvalAI compares answers.

    Args:
        answer: of the model or of a person.
    """
    text = answer.lower().replace(",", "").replace("?", "").replace("'s", " 's").strip()
    text = without_punctuation(text.replace("\n", " ").replace("\t", " ").strip())
    words = [NUMBER_WORDS.get(word, word) for word in text.lower().split()]
    return " ".join(CONTRACTIONS.get(word, word) for word in words if word not in ARTICLES)


def agreement(answer: str, answers: Sequence[str]) -> float:
    """Mean over the leave-one-out sets of people of min(1, equal answers / 3).

    Args:
        answer: normalised.
        answers: of the people, normalised.
    """
    if not answers:
        return 0.0
    equal = [other == answer for other in answers]
    total = sum(equal)
    return float(statistics.mean(min(1.0, float(total - own) / 3) for own in equal))
