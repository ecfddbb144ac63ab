"""Tiny random models and prompts that are made the same way on every supported transformers.

They share nothing with the other tests: what those use follows the newest library only.
"""

from __future__ import annotations

import functools
import inspect
import random
import warnings
from typing import Any

import torch
import transformers

VERSION = tuple(int(part) for part in transformers.__version__.split(".")[:2])
FAMILIES = ("qwen2_5_vl", "llava")
BATCH = (2, 1, 0)  # images of each row; unequal texts, so the batch is padded on the left
PAD, IMAGE, VIDEO, START, END = 0, 150, 151, 152, 153
DEPTH = 4
GRIDS = ((4, 6), (6, 6), (4, 4))  # of patches; 2 x 2 of them make a visual token
SQUARE = 16  # visual tokens of an image of LLaVA

_TEXT = {
    "vocab_size": 200,
    "hidden_size": 64,
    "intermediate_size": 96,
    "num_hidden_layers": DEPTH,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "max_position_embeddings": 4096,
    "pad_token_id": PAD,
    "bos_token_id": 1,
    "eos_token_id": 2,
}


def model_of(family: str, attn: str = "sdpa", dtype: torch.dtype = torch.float32) -> Any:
    """A model with random weights; its decoder is scaled so that attention is not flat."""
    torch.manual_seed(0)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        kind, config = {"qwen2_5_vl": _qwen, "llava": _llava}[family]()
        model: Any = kind._from_config(config, attn_implementation=attn, dtype=dtype)
    decoder = "language_model.layers."
    with torch.no_grad():
        for name, weight in model.named_parameters():
            if decoder in name and weight.ndim == 2:
                weight.mul_(6.0)
    model.eval()
    model.generation_config.eos_token_id = None
    model.generation_config.pad_token_id = PAD
    return model


model_once = functools.cache(model_of)


def _qwen() -> tuple[Any, Any]:
    vision = {
        "depth": 2,
        "hidden_size": 32,
        "num_heads": 2,
        "patch_size": 4,
        "spatial_merge_size": 2,
        "temporal_patch_size": 2,
        "in_channels": 3,
        "intermediate_size": 48,
        "out_hidden_size": 64,
        "window_size": 16,
        "fullatt_block_indexes": [1],
    }
    rope = {"type": "mrope", "rope_type": "default", "mrope_section": [2, 3, 3]}
    config = transformers.Qwen2_5_VLConfig(
        text_config={**_TEXT, "rope_scaling": rope},
        vision_config=vision,
        image_token_id=IMAGE,
        video_token_id=VIDEO,
        vision_start_token_id=START,
        vision_end_token_id=END,
    )
    return transformers.Qwen2_5_VLForConditionalGeneration, config


def _llava() -> tuple[Any, Any]:
    vision = {
        "model_type": "clip_vision_model",
        "hidden_size": 32,
        "intermediate_size": 48,
        "num_hidden_layers": 2,
        "num_attention_heads": 2,
        "image_size": 20,
        "patch_size": 5,
    }
    config = transformers.LlavaConfig(
        text_config={"model_type": "llama", **_TEXT},
        vision_config=vision,
        image_token_index=IMAGE,
        image_seq_length=SQUARE,
    )
    return transformers.LlavaForConditionalGeneration, config


def rows_of(model: Any, images: tuple[int, ...]) -> list[dict[str, Any]]:
    """One prompt a row, with as many images as asked for; texts are of unequal length."""
    return [_row(model, count, number) for number, count in enumerate(images)]


def _row(model: Any, images: int, number: int) -> dict[str, Any]:
    rng, generator = random.Random(number), torch.Generator().manual_seed(number)
    qwen = model.config.model_type == "qwen2_5_vl"
    ids, pixels, grids = _words(rng, 3 + number), [], []
    for image in range(images):
        height, width = GRIDS[(number + image) % len(GRIDS)]
        if qwen:
            ids += [START, *[IMAGE] * (height * width // 4), END]
            pixels.append(torch.randn(height * width, 96, generator=generator))
            grids.append([1, height, width])
        else:
            ids += [IMAGE] * SQUARE
            pixels.append(torch.randn(1, 3, 20, 20, generator=generator))
        ids += _words(rng, 2)
    ids += _words(rng, 6 + 2 * number)
    return {"ids": ids, "pixels": pixels, "grids": grids}


def _words(rng: random.Random, count: int) -> list[int]:
    return [rng.randrange(10, 140) for _ in range(count)]


def prompt_of(model: Any, rows: list[dict[str, Any]]) -> dict[str, Any]:
    """Inputs of a batch, padded on the left; arguments that this library lacks are left out."""
    longest = max(len(row["ids"]) for row in rows)
    gaps = [longest - len(row["ids"]) for row in rows]
    ids = torch.tensor([[PAD] * gap + row["ids"] for gap, row in zip(gaps, rows, strict=True)])
    mask = torch.tensor([[0] * gap + [1] * (longest - gap) for gap in gaps])
    inputs: dict[str, Any] = {"input_ids": ids, "attention_mask": mask}
    if "mm_token_type_ids" in inspect.signature(type(model).forward).parameters:
        inputs["mm_token_type_ids"] = (ids == IMAGE).long()
    pixels = [part for row in rows for part in row["pixels"]]
    grids = [grid for row in rows for grid in row["grids"]]
    if pixels:
        inputs["pixel_values"] = torch.cat(pixels).to(model.dtype)
    if grids:
        inputs["image_grid_thw"] = torch.tensor(grids)
    return inputs


def prompt(model: Any, *images: int) -> dict[str, Any]:
    """Inputs of a batch whose rows have these numbers of images."""
    return prompt_of(model, rows_of(model, images or (1,)))


def generate(model: Any, inputs: dict[str, Any], steps: int = 5, **options: Any) -> Any:
    """Greedy unless told otherwise; the tokens and the logits of every step."""
    with torch.no_grad():
        return model.generate(
            **inputs,
            max_new_tokens=steps,
            **{"do_sample": False, **options},
            return_dict_in_generate=True,
            output_logits=True,
        )


def logits(model: Any, inputs: dict[str, Any]) -> torch.Tensor:
    """[B, L or L', vocabulary] of one forward."""
    with torch.no_grad():
        found: torch.Tensor = model(**inputs).logits
    return found


def same_run(found: Any, wanted: Any, tolerance: float = 0.0) -> None:
    """The same tokens, and logits that differ by at most the tolerance at every step."""
    assert found.sequences.tolist() == wanted.sequences.tolist()
    for mine, theirs in zip(found.logits, wanted.logits, strict=True):
        assert float((mine - theirs).abs().max()) <= tolerance
