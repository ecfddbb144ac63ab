"""Configurations of the tiny models."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tests.zoo_parts import (
    END,
    FILM_END,
    FILM_START,
    GEMMA,
    GEMMA3_BLOCKS,
    GLM_ROPE,
    IMAGE,
    MARKERS,
    MROPE,
    PINPOINTS,
    START,
    VIDEO,
    Built,
    raster_tower,
    square_tower,
    text_part,
)


def qwen2_vl(text: dict[str, Any]) -> Built:
    from transformers import Qwen2VLConfig, Qwen2VLForConditionalGeneration

    vision = raster_tower(64, embed_dim=32, mlp_ratio=2)
    del vision["intermediate_size"], vision["out_hidden_size"]
    config = Qwen2VLConfig(
        text_config=text_part(text, rope_scaling=dict(MROPE)),
        vision_config=vision,
        image_token_id=IMAGE,
        video_token_id=VIDEO,
        **MARKERS,
    )
    return Qwen2VLForConditionalGeneration, config


def qwen2_5_vl(text: dict[str, Any]) -> Built:
    from transformers import Qwen2_5_VLConfig, Qwen2_5_VLForConditionalGeneration

    config = Qwen2_5_VLConfig(
        text_config=text_part(text, rope_scaling=dict(MROPE)),
        vision_config=raster_tower(
            window_size=16,
            fullatt_block_indexes=[1],
            tokens_per_second=2,
            out_hidden_size=text.get("hidden_size", 64),
        ),
        image_token_id=IMAGE,
        video_token_id=VIDEO,
        **MARKERS,
    )
    return Qwen2_5_VLForConditionalGeneration, config


def qwen3_vl(text: dict[str, Any]) -> Built:
    from transformers import Qwen3VLConfig, Qwen3VLForConditionalGeneration

    config = Qwen3VLConfig(
        text_config=text_part(text, head_dim=16, rope_scaling={**MROPE, "mrope_interleaved": True}),
        vision_config=raster_tower(deepstack_visual_indexes=[0, 1], num_position_embeddings=64),
        image_token_id=IMAGE,
        video_token_id=VIDEO,
        **MARKERS,
    )
    return Qwen3VLForConditionalGeneration, config


def qwen3_vl_moe(text: dict[str, Any]) -> Built:
    from transformers import Qwen3VLMoeConfig, Qwen3VLMoeForConditionalGeneration

    config = Qwen3VLMoeConfig(
        text_config=text_part(
            text,
            head_dim=16,
            num_experts=2,
            num_experts_per_tok=1,
            moe_intermediate_size=48,
            rope_scaling={**MROPE, "mrope_interleaved": True},
        ),
        vision_config=raster_tower(deepstack_visual_indexes=[0, 1], num_position_embeddings=64),
        image_token_id=IMAGE,
        video_token_id=VIDEO,
        **MARKERS,
    )
    return Qwen3VLMoeForConditionalGeneration, config


def glm4v(text: dict[str, Any]) -> Built:
    from transformers import Glm4vConfig, Glm4vForConditionalGeneration

    config = Glm4vConfig(
        text_config=text_part(
            text,
            rope_scaling=dict(GLM_ROPE),
        ),
        vision_config=raster_tower(image_size=32),
        image_token_id=IMAGE,
        video_token_id=VIDEO,
        image_start_token_id=START,
        image_end_token_id=END,
        video_start_token_id=FILM_START,
        video_end_token_id=FILM_END,
    )
    return Glm4vForConditionalGeneration, config


def llava(text: dict[str, Any]) -> Built:
    from transformers import LlavaConfig, LlavaForConditionalGeneration

    config = LlavaConfig(
        text_config=text_part({"model_type": "llama", **text}),
        vision_config=square_tower(30, 5, "clip_vision_model"),
        image_token_index=IMAGE,
        image_seq_length=36,
    )
    return LlavaForConditionalGeneration, config


def llava_mistral(text: dict[str, Any]) -> Built:
    return llava({"model_type": "mistral", "sliding_window": None, **text})


def vipllava(text: dict[str, Any]) -> Built:
    from transformers import VipLlavaConfig, VipLlavaForConditionalGeneration

    config = VipLlavaConfig(
        text_config=text_part({"model_type": "llama", **text}),
        vision_config=square_tower(30, 5, "clip_vision_model"),
        image_token_index=IMAGE,
        image_seq_length=36,
        vision_feature_layers=[-2, -1],
    )
    return VipLlavaForConditionalGeneration, config


def llava_next(text: dict[str, Any]) -> Built:
    from transformers import LlavaNextConfig, LlavaNextForConditionalGeneration

    config = LlavaNextConfig(
        text_config=text_part({"model_type": "llama", **text}),
        vision_config=square_tower(24, 6, "clip_vision_model"),
        image_token_index=IMAGE,
        image_grid_pinpoints=PINPOINTS,
    )
    return LlavaNextForConditionalGeneration, config


def llava_onevision(text: dict[str, Any]) -> Built:
    from transformers import LlavaOnevisionConfig, LlavaOnevisionForConditionalGeneration

    config = LlavaOnevisionConfig(
        text_config=text_part({"model_type": "qwen2", **text}),
        vision_config=square_tower(24, 6, vision_use_head=False),
        image_token_index=IMAGE,
        video_token_index=VIDEO,
        image_grid_pinpoints=PINPOINTS,
        vision_aspect_ratio="anyres_max_2",
    )
    return LlavaOnevisionForConditionalGeneration, config


def internvl(text: dict[str, Any]) -> Built:
    from transformers import InternVLConfig, InternVLForConditionalGeneration

    config = InternVLConfig(
        text_config=text_part({"model_type": "qwen2", **text}),
        vision_config=square_tower(32, 4, "internvl_vision"),
        image_token_id=IMAGE,
        image_seq_length=16,
    )
    return InternVLForConditionalGeneration, config


def idefics3(text: dict[str, Any]) -> Built:
    from transformers import Idefics3Config, Idefics3ForConditionalGeneration

    config = Idefics3Config(
        text_config=text_part({"model_type": "llama", **text}),
        vision_config=square_tower(32, 4, "idefics3_vision"),
        image_token_id=IMAGE,
        scale_factor=2,
        pad_token_id=0,
    )
    return Idefics3ForConditionalGeneration, config


def smolvlm(text: dict[str, Any]) -> Built:
    from transformers import SmolVLMConfig, SmolVLMForConditionalGeneration

    config = SmolVLMConfig(
        text_config=text_part({"model_type": "llama", **text}),
        vision_config=square_tower(32, 4, "smolvlm_vision"),
        image_token_id=IMAGE,
        scale_factor=2,
        pad_token_id=0,
    )
    return SmolVLMForConditionalGeneration, config


def gemma3(text: dict[str, Any]) -> Built:
    from transformers import Gemma3Config, Gemma3ForConditionalGeneration

    config = Gemma3Config(
        text_config=text_part(
            text, **GEMMA, layer_types=GEMMA3_BLOCKS[: text.get("num_hidden_layers", 5)]
        ),
        vision_config=square_tower(32, 4, vision_use_head=False),
        mm_tokens_per_image=16,
        boi_token_index=START,
        eoi_token_index=END,
        image_token_index=IMAGE,
    )
    return Gemma3ForConditionalGeneration, config


def paligemma2(text: dict[str, Any]) -> Built:
    from transformers import PaliGemmaConfig, PaliGemmaForConditionalGeneration

    config = PaliGemmaConfig(
        text_config=text_part({"model_type": "gemma2", **text}, **GEMMA),
        vision_config=square_tower(24, 6, projection_dim=64, vision_use_head=False),
        image_token_index=IMAGE,
        projection_dim=64,
        hidden_size=64,
    )
    return PaliGemmaForConditionalGeneration, config


def mistral3(text: dict[str, Any]) -> Built:
    from transformers import Mistral3Config, Mistral3ForConditionalGeneration

    config = Mistral3Config(
        text_config=text_part(
            {"model_type": "mistral", "sliding_window": None, **text}, head_dim=16
        ),
        vision_config=square_tower(64, 4, "pixtral", head_dim=16),
        image_token_index=IMAGE,
        spatial_merge_size=2,
    )
    return Mistral3ForConditionalGeneration, config


def aya_vision(text: dict[str, Any]) -> Built:
    from transformers import AyaVisionConfig, AyaVisionForConditionalGeneration

    config = AyaVisionConfig(
        text_config=text_part(
            {"model_type": "cohere2", "sliding_window": 2048, **text}, head_dim=16
        ),
        vision_config=square_tower(32, 4, vision_use_head=False),
        image_token_index=IMAGE,
        downsample_factor=2,
    )
    return AyaVisionForConditionalGeneration, config


def llama4(text: dict[str, Any]) -> Built:
    from transformers import Llama4Config, Llama4ForConditionalGeneration

    vision = square_tower(32, 4, "llama4_vision_model", vision_output_dim=64)
    vision |= {"intermediate_size": 128, "projector_input_dim": 64, "projector_output_dim": 64}
    config = Llama4Config(
        text_config=text_part(
            text,
            head_dim=16,
            intermediate_size_mlp=96,
            num_local_experts=2,
            num_experts_per_tok=1,
            attention_chunk_size=2048,
        ),
        vision_config=vision,
        boi_token_index=START,
        eoi_token_index=END,
        image_token_index=IMAGE,
    )
    return Llama4ForConditionalGeneration, config


BUILDERS: dict[str, Callable[[dict[str, Any]], Built]] = {
    function.__name__: function
    for function in (
        *(qwen2_vl, qwen2_5_vl, qwen3_vl, qwen3_vl_moe, glm4v),
        *(llava, llava_mistral, vipllava, llava_next, llava_onevision),
        *(internvl, idefics3, smolvlm, aya_vision, llama4),
        *(gemma3, paligemma2, mistral3),
    )
}
