"""The two bundled architectures, as the stock classes' own configurations."""

from __future__ import annotations

from typing import Any

from vicoset.tiny import words

WIDTH, BLOCKS, HEADS, KEY_HEADS, INNER = 256, 8, 4, 2, 512
THETA, SECTIONS = 300.0, (1, 3, 28)  # rotary frequencies: 3 pairs for rows, 28 for columns
TOWER_WIDTH, TOWER_DEPTH, TOWER_HEADS, TOWER_INNER = 128, 3, 2, 320
CLIP_DEPTH = 4  # the projector reads the last block but one, as LLaVA-1.5 does
FAMILIES = ("qwen", "llava")
QWEN_TEMPLATE = (
    "{% for message in messages %}<|im_start|>{{ message['role'] }}\n"
    "{% if message['content'] is string %}{{ message['content'] }}{% else %}"
    "{% for part in message['content'] %}{% if part['type'] == 'image' %}"
    "<|vision_start|><|image_pad|><|vision_end|>{% elif part['type'] == 'text' %}"
    "{{ part['text'] }}{% endif %}{% endfor %}{% endif %}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)
LLAVA_TEMPLATE = (
    "{% for message in messages %}{% if message['role'] == 'user' %}USER: "
    "{% else %}ASSISTANT:{% endif %}"
    "{% if message['content'] is string %}{{ message['content'] }}{% else %}"
    "{% for part in message['content'] %}{% if part['type'] == 'image' %}"
    "<image>\n{% elif part['type'] == 'text' %}{{ part['text'] }}{% endif %}{% endfor %}"
    "{% endif %}{% if message['role'] == 'user' %} {% else %}</s>{% endif %}{% endfor %}"
    "{% if add_generation_prompt %}ASSISTANT:{% endif %}"
)


def config(family: str) -> Any:
    """The configuration of a family.

    Args:
        family: one of ``FAMILIES``.
    """
    return _qwen() if family == "qwen" else _llava()


def empty(family: str) -> Any:
    """A model with random weights, float32.

    Args:
        family: one of ``FAMILIES``.
    """
    import transformers

    name = {"qwen": "Qwen2_5_VLForConditionalGeneration", "llava": "LlavaForConditionalGeneration"}
    made = getattr(transformers, name[family])(config(family))
    return made.float().eval()


def _text(**more: Any) -> dict[str, Any]:
    return {
        "hidden_size": WIDTH,
        "num_hidden_layers": BLOCKS,
        "num_attention_heads": HEADS,
        "num_key_value_heads": KEY_HEADS,
        "intermediate_size": INNER,
        "vocab_size": len(words.VOCABULARY),
        "max_position_embeddings": 4096,
        "tie_word_embeddings": False,
        "rms_norm_eps": 1e-6,
        "pad_token_id": words.number_of(words.PAD),
        **more,
    }


def _qwen() -> Any:
    from transformers import Qwen2_5_VLConfig

    rope = {"rope_type": "default", "rope_theta": THETA, "mrope_section": list(SECTIONS)}
    end = words.number_of(words.END)
    text = _text(
        rope_parameters=rope, eos_token_id=end, bos_token_id=None, use_sliding_window=False
    )
    tower = {
        "depth": TOWER_DEPTH,
        "hidden_size": TOWER_WIDTH,
        "intermediate_size": TOWER_INNER,
        "num_heads": TOWER_HEADS,
        "out_hidden_size": WIDTH,
        "window_size": 112,
        "patch_size": 14,
        "spatial_merge_size": 2,
        "temporal_patch_size": 2,
        "fullatt_block_indexes": [TOWER_DEPTH - 1],
    }
    start, stop, image, video = map(words.number_of, words.VISION)
    stock: Any = Qwen2_5_VLConfig
    return stock(
        text_config=text,
        vision_config=tower,
        image_token_id=image,
        video_token_id=video,
        vision_start_token_id=start,
        vision_end_token_id=stop,
        eos_token_id=end,
        pad_token_id=words.number_of(words.PAD),
        tie_word_embeddings=False,
    )


def _llava() -> Any:
    from transformers import CLIPVisionConfig, LlamaConfig, LlavaConfig

    end = words.number_of("</s>")
    rope = {"rope_type": "default", "rope_theta": 10_000.0}
    text = LlamaConfig(**_text(rope_parameters=rope, eos_token_id=end, bos_token_id=None))
    tower = CLIPVisionConfig(
        hidden_size=TOWER_WIDTH,
        intermediate_size=2 * TOWER_WIDTH,
        num_hidden_layers=CLIP_DEPTH,
        num_attention_heads=TOWER_HEADS,
        image_size=336,
        patch_size=14,
        projection_dim=TOWER_WIDTH,
    )
    stock: Any = LlavaConfig
    return stock(
        vision_config=tower,
        text_config=text,
        image_token_id=words.number_of("<image>"),
        vision_feature_layer=-2,
        vision_feature_select_strategy="default",
        image_seq_length=576,
        eos_token_id=end,
        pad_token_id=words.number_of(words.PAD),
        tie_word_embeddings=False,
    )
