"""Tiny checkpoints on disk: a byte-level tokenizer, image processors of Pillow, random models."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch
import transformers
from PIL import Image
from tokenizers import Tokenizer, decoders, models, pre_tokenizers

from tests import zoo, zoo_models
from vicoset.models.families import decoder_of
from vicoset.models.processors import image_only_processor

PAD, END = "<|endoftext|>", "<|im_end|>"
QWEN = {
    "image": "<|image_pad|>",
    "video": "<|video_pad|>",
    "start": "<|vision_start|>",
    "stop": "<|vision_end|>",
}
TEMPLATE = """\
{%- for message in messages -%}
<|im_start|>{{ message['role'] }}
{% for part in message['content'] -%}
{%- if part['type'] == 'image' -%}<|vision_start|><|image_pad|><|vision_end|>
{%- elif part['type'] == 'video' -%}<|vision_start|><|video_pad|><|vision_end|>
{%- else -%}{{ part['text'] }}{%- endif -%}
{%- endfor -%}<|im_end|>
{% endfor -%}
{%- if add_generation_prompt -%}<|im_start|>assistant
{% endif -%}
"""
LLAVA_TEMPLATE = TEMPLATE.replace("<|vision_start|><|image_pad|><|vision_end|>", "<image>")


def tokenizer() -> Any:
    """Bytes, and one token for each special word."""
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    core = Tokenizer(models.BPE(vocab={byte: i for i, byte in enumerate(alphabet)}, merges=[]))
    core.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    core.decoder = decoders.ByteLevel()
    # Releases before 5.0 insist on the family's own class.
    older = transformers.__version__.startswith("4.")
    kind: Any = transformers.Qwen2TokenizerFast if older else transformers.PreTrainedTokenizerFast
    return kind(
        tokenizer_object=core,
        pad_token=PAD,
        eos_token=END,
        additional_special_tokens=["<|im_start|>", END, *QWEN.values(), "<image>"],
        model_input_names=["input_ids", "attention_mask"],
        padding_side="left",
    )


def of_pillow(name: str, **options: Any) -> Any:
    """An image processor that needs no torchvision: the class named so, or the slow one of 4.x."""
    return getattr(transformers, f"{name}Pil", getattr(transformers, name, None))(**options)


def raster_images() -> Any:
    """The image processor of the families with multimodal positions; 8 x 8 pixels a token."""
    return of_pillow(
        "Qwen2VLImageProcessor",
        patch_size=4,
        merge_size=2,
        temporal_patch_size=2,
        min_pixels=4 * 64,
        max_pixels=64 * 64,
    )


def qwen_processor(stock: str = "Qwen2_5_VLProcessor") -> Any:
    return image_only_processor(
        image_processor=raster_images(),
        tokenizer=tokenizer(),
        chat_template=TEMPLATE,
        stock=stock,
    )


def llava_processor() -> Any:
    side = {"height": 30, "width": 30}
    return transformers.LlavaProcessor(
        of_pillow("CLIPImageProcessor", size={"shortest_edge": 30}, crop_size=side),
        tokenizer(),
        patch_size=5,
        num_additional_image_tokens=1,
        vision_feature_select_strategy="default",
        chat_template=LLAVA_TEMPLATE,
    )


def model(family: str, **more: Any) -> Any:
    """A random model that knows the tokenizer's special words."""
    words = tokenizer()
    number = words.convert_tokens_to_ids
    torch.manual_seed(0)
    kind, config = zoo_models.BUILDERS[family]({"vocab_size": len(words) + 1, **more})
    if family == "llava":
        config.image_token_id = number("<image>")
    else:
        config.image_token_id, config.video_token_id = number(QWEN["image"]), number(QWEN["video"])
        config.vision_start_token_id = number(QWEN["start"])
        config.vision_end_token_id = number(QWEN["stop"])
    made = kind._from_config(config, attn_implementation="sdpa", dtype=torch.float32)
    zoo.sharpen(decoder_of(made))
    made.generation_config.eos_token_id = None
    made.generation_config.pad_token_id = number(PAD)
    return made.eval()


def save(family: str, directory: Path) -> Path:
    """A checkpoint of a family with its processor."""
    model(family).save_pretrained(directory)
    (llava_processor() if family == "llava" else qwen_processor()).save_pretrained(directory)
    return directory


def picture(width: int = 48, height: int = 32, seed: int = 0) -> Image.Image:
    noise = torch.randint(0, 256, (height, width, 3), generator=torch.Generator().manual_seed(seed))
    return Image.fromarray(noise.to(torch.uint8).numpy())


def question(text: str, *images: Any) -> list[dict[str, Any]]:
    """One user message: images, then text."""
    parts: list[dict[str, Any]] = [{"type": "image", "image": image} for image in images]
    return [{"role": "user", "content": [*parts, {"type": "text", "text": text}]}]


def inputs(processor: Any, *chats: list[dict[str, Any]]) -> Any:
    """A batch of chats as tensors."""
    return processor.apply_chat_template(
        list(chats) if len(chats) > 1 else chats[0],
        add_generation_prompt=True,
        tokenize=True,
        return_dict=True,
        return_tensors="pt",
        padding=True,
    )
