"""Pieces of configurations that the tiny models share, and their token ids."""

from __future__ import annotations

from typing import Any

PAD, BOS, MARK = 0, 1, 160
IMAGE, VIDEO, START, END, FILM_START, FILM_END = 150, 151, 152, 153, 154, 155
MROPE = {"type": "mrope", "rope_type": "default", "mrope_section": [2, 3, 3]}
GEMMA = {"head_dim": 16, "sliding_window": 2048, "query_pre_attn_scalar": 16}
GEMMA3_BLOCKS = ["sliding_attention", "sliding_attention", "full_attention"] * 9
GLM_ROPE = {"rope_type": "default", "mrope_section": [2, 3, 3], "partial_rotary_factor": 1.0}
MARKERS = {"vision_start_token_id": START, "vision_end_token_id": END}

PINPOINTS = [[24, 48], [48, 24], [48, 48], [24, 72]]

Built = tuple[Any, Any]


def text_part(given: dict[str, Any], **more: Any) -> dict[str, Any]:
    return {
        "vocab_size": 200,
        "hidden_size": 64,
        "intermediate_size": 96,
        "num_hidden_layers": 5,
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
        "max_position_embeddings": 4096,
        "pad_token_id": 0,
        "bos_token_id": 1,
        "eos_token_id": 2,
        **more,
        **given,
    }


def raster_tower(width: int = 32, **more: Any) -> dict[str, Any]:
    """A vision tower that merges 2 x 2 patches of 4 x 4 pixels."""
    return {
        "depth": 2,
        "hidden_size": width,
        "num_heads": 2,
        "patch_size": 4,
        "spatial_merge_size": 2,
        "temporal_patch_size": 2,
        "in_channels": 3,
        "intermediate_size": 48,
        "out_hidden_size": 64,
        **more,
    }


def square_tower(
    side: int, patch: int, kind: str = "siglip_vision_model", **more: Any
) -> dict[str, Any]:
    """A vision tower on square images."""
    return {
        "model_type": kind,
        "hidden_size": 32,
        "intermediate_size": 48,
        "num_hidden_layers": 2,
        "num_attention_heads": 2,
        "image_size": side,
        "patch_size": patch,
        **more,
    }
