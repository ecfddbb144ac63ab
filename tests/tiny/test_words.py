"""The tokenizer gives texts back, knows every word of the benchmark, and agrees with its oracle."""

import pytest

from vicoset.tiny import bench, configs, words

TEMPLATES = {"qwen": configs.QWEN_TEMPLATE, "llava": configs.LLAVA_TEMPLATE}


@pytest.mark.parametrize("family", configs.FAMILIES)
def test_every_question_and_answer_comes_back(family: str) -> None:
    tokenizer = words.tokenizer(family, TEMPLATES[family])
    unknown = words.number_of(words.UNKNOWN)
    for item in bench.items(family, images=12):
        for text in (item.question, item.answer):
            found = tokenizer(text)["input_ids"]
            assert tokenizer.decode(found) == text
            assert unknown not in found
            assert words.encode(text) == found


def test_no_word_twice_and_special_ones_whole() -> None:
    assert len(set(words.VOCABULARY)) == len(words.VOCABULARY)
    tokenizer = words.tokenizer("qwen", configs.QWEN_TEMPLATE)
    for number, word in enumerate(words.VOCABULARY):
        assert tokenizer.convert_tokens_to_ids(word) == number == words.number_of(word)
    for word in words.SPECIAL:
        assert len(tokenizer(word)["input_ids"]) == 1, word


@pytest.mark.parametrize("text", ["Bonjour le monde!", "a#b", "naïve Σ", "two  blanks", "QX:407\n"])
def test_other_texts_are_unknown_words_at_worst(text: str) -> None:
    tokenizer = words.tokenizer("llava", configs.LLAVA_TEMPLATE)
    found = tokenizer(text)["input_ids"]
    assert found and found == words.encode(text)
    if words.number_of(words.UNKNOWN) not in found:
        assert tokenizer.decode(found) == text


def test_end_and_padding() -> None:
    for family, end in (("qwen", words.END), ("llava", "</s>")):
        tokenizer = words.tokenizer(family, TEMPLATES[family])
        assert (tokenizer.eos_token, tokenizer.pad_token) == (end, words.PAD)
        assert tokenizer.padding_side == "left"
