"""The native scorer: an answer is right when it is the reference but for blanks and case."""

from __future__ import annotations


def normalised(text: str) -> str:
    """The text without any blank and in lower case: ``4 0 7`` is ``407``, ``Yes`` is ``yes``.

    A value that was written a character a token comes back with or without blanks between them,
    depending on the tokenizer's decoder, so blanks cannot be part of an answer. Nothing else is
    forgiven: no punctuation, no further words, no leading zeros.

    Args:
        text: an answer or a reference.
    """
    return "".join(text.split()).lower()


def correct(raw: str, answer: str) -> bool:
    """Whether an answer is the reference.

    Args:
        raw: as the model gave it, special tokens left out.
        answer: the reference.
    """
    return normalised(raw) == normalised(answer)
