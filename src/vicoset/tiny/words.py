"""The words of the bundled models: one vocabulary, and the tokenizer made of it."""

from __future__ import annotations

import re
from typing import Any

from vicoset.tiny.draw.atlas import DIGITS, LETTERS, SHAPES
from vicoset.tiny.scenes.objects import COLOURS, plural

SPACE = "\u2581"  # stands for a blank, so that a text comes back as it was
UNKNOWN, PAD = "<|unknown|>", "<|endoftext|>"
START, END = "<|im_start|>", "<|im_end|>"
VISION = ("<|vision_start|>", "<|vision_end|>", "<|image_pad|>", "<|video_pad|>")
LLAVA = ("<image>", "USER:", "ASSISTANT:", "</s>")
SPECIAL = (PAD, UNKNOWN, START, END, *VISION, *LLAVA)
_LEADING = ("What", "Read", "How", "Which", "Is", "Can", "Count", "user", "assistant", "system")
_INNER = (
    *("is", "the", "value", "of", "does", "say", "in", "row", "column", "bar", "high", "taller"),
    *("higher", "or", "there", "a", "you", "see", "many", "are", "left", "right", "above", "below"),
    *COLOURS,
    *SHAPES,
    *map(plural, SHAPES),
)
_SIGNS = ("?", ",", ".", ":", "\n", SPACE)
VOCABULARY: tuple[str, ...] = (
    *SPECIAL,
    *_SIGNS,
    *LETTERS,
    *DIGITS,
    *_LEADING,
    *(SPACE + word for word in _INNER),
    *("yes", "no"),
)
_PIECE = rf"{SPACE}[a-z]+|[A-Z]?[a-z]+|{SPACE}|[A-Z]|[0-9]|\n|[^{SPACE}A-Za-z0-9\n]"
_NUMBERS = {word: number for number, word in enumerate(VOCABULARY)}


def number_of(word: str) -> int:
    """The token of a piece of text; that of ``UNKNOWN`` for what the models never saw."""
    return _NUMBERS.get(word, _NUMBERS[UNKNOWN])


def encode(text: str) -> list[int]:
    """The tokens of a text without special tokens, as the tokenizer gives them.

    Args:
        text: any.
    """
    return [number_of(piece) for piece in re.findall(_PIECE, text.replace(" ", SPACE))]


def tokenizer(family: str, template: str) -> Any:
    """The tokenizer of a family.

    Args:
        family: "qwen" or "llava".
        template: of a chat.
    """
    from tokenizers import (
        AddedToken,
        Regex,
        Tokenizer,
        decoders,
        models,
        normalizers,
        pre_tokenizers,
    )
    from transformers import PreTrainedTokenizerFast

    made: Any = Tokenizer(models.WordLevel(vocab=dict(_NUMBERS), unk_token=UNKNOWN))
    made.normalizer = normalizers.Replace(" ", SPACE)
    made.pre_tokenizer = pre_tokenizers.Split(Regex(_PIECE), "removed", invert=True)
    made.decoder = decoders.Sequence([decoders.Fuse(), decoders.Replace(SPACE, " ")])
    made.add_special_tokens([AddedToken(word, normalized=False, special=True) for word in SPECIAL])
    end = {"qwen": END, "llava": "</s>"}[family]
    named = {"image_token": "<image>" if family == "llava" else VISION[2]}
    if family == "qwen":
        named |= {
            "video_token": VISION[3],
            "vision_bos_token": VISION[0],
            "vision_eos_token": VISION[1],
        }
    stock: Any = PreTrainedTokenizerFast
    return stock(
        tokenizer_object=made,
        unk_token=UNKNOWN,
        pad_token=PAD,
        eos_token=end,
        extra_special_tokens=named,
        clean_up_tokenization_spaces=False,
        padding_side="left",
        model_max_length=4096,
        chat_template=template,
    )
