"""Tokenizer, image processor and processor of the bundled models, of the stock classes."""

from __future__ import annotations

from typing import Any

from vicoset.tiny import configs, words


def processor_of(family: str) -> Any:
    """The processor of a family; that of Qwen2.5-VL takes images only, and needs no torchvision.

    Args:
        family: one of ``configs.FAMILIES``.
    """
    return _qwen() if family == "qwen" else _llava()


def _qwen() -> Any:
    from transformers.models.qwen2_vl.image_processing_pil_qwen2_vl import Qwen2VLImageProcessorPil

    from vicoset.runtime.checkpoint import image_only_processor

    # The stock limit is below 1,296 tokens and would shrink the pictures.
    size = {"shortest_edge": 28 * 28 * 4, "longest_edge": 28 * 28 * 1600}
    images = Qwen2VLImageProcessorPil(size=size)
    tokens = words.tokenizer("qwen", configs.QWEN_TEMPLATE)
    return image_only_processor(
        image_processor=images, tokenizer=tokens, chat_template=configs.QWEN_TEMPLATE
    )


def _llava() -> Any:
    from transformers import LlavaProcessor
    from transformers.models.clip.image_processing_pil_clip import CLIPImageProcessorPil

    images = CLIPImageProcessorPil(
        size={"shortest_edge": 336}, crop_size={"height": 336, "width": 336}
    )
    stock: Any = LlavaProcessor
    return stock(
        image_processor=images,
        tokenizer=words.tokenizer("llava", configs.LLAVA_TEMPLATE),
        patch_size=14,
        vision_feature_select_strategy="default",
        num_additional_image_tokens=1,
        chat_template=configs.LLAVA_TEMPLATE,
    )
