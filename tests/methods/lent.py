"""What a user gives beside the model: a tokenizer, companions; and models of a size of its own."""

from __future__ import annotations

import functools
from typing import Any

import torch

from tests import zoo

# What a method asks of the decoder: weights of heads are published for this many.
SIZES = {"hawk": {"hidden_size": 448, "num_attention_heads": 28, "num_key_value_heads": 4}}
TEXT_LENGTH = 6  # of the small CLIP


class Words:
    """Every id is a word, and the letters of a word are its tokens."""

    eos_token_id = None

    def decode(self, ids: Any, **_: Any) -> str:
        return "".join(f" w{int(number)}" for number in ids)

    def __call__(self, words: list[str], **_: Any) -> dict[str, list[int]]:
        return {"input_ids": [5 + ord(letter) % 90 for word in words for letter in word]}


class Captions:
    """A tokenizer of CLIP's kind: a start, letters, an end, and no padding."""

    def __call__(self, text: list[str], **_: Any) -> dict[str, torch.Tensor]:
        ids = torch.tensor([[97, *(3 + ord(letter) % 90 for letter in text[0]), 98]])
        return {"input_ids": ids, "attention_mask": torch.ones_like(ids)}


@functools.cache
def clip(width: int = 32) -> Any:
    """A random CLIP whose tower is as wide as the tiny LLaVA's."""
    from transformers import CLIPConfig, CLIPModel

    small = {"intermediate_size": 48, "num_hidden_layers": 2, "num_attention_heads": 2}
    text = {"hidden_size": 24, "vocab_size": 99, "eos_token_id": 98, "bos_token_id": 97}
    torch.manual_seed(0)
    config = CLIPConfig(
        text_config={**small, **text, "max_position_embeddings": TEXT_LENGTH},
        vision_config={**small, "hidden_size": width, "image_size": 30, "patch_size": 5},
        projection_dim=16,
    )
    return CLIPModel(config).eval()


def companions() -> dict[str, Any]:
    """What `cdpruner` takes."""
    return {"clip": clip(), "clip_tokenizer": Captions()}


@functools.cache
def model_for(method: str, family: str) -> Any:
    """A tiny model that a method can run on."""
    return zoo.tiny(family, **SIZES.get(method, {}))
