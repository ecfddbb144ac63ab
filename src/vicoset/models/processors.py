"""Reading a checkpoint's processor, also on machines without torchvision.

The stock processors of the Qwen-VL and GLM-4.1V families insist on a video processor, and all
video processors need torchvision. The image-only ones made here run the stock classes' own code
with the two parts that images need, and save directories that the stock classes read as theirs.
"""

from __future__ import annotations

import functools
import importlib.util
import json
import os
from pathlib import Path
from typing import Any

from vicoset.errors import UnreadableError, UnsupportedError

STOCK = ("Qwen2VLProcessor", "Qwen2_5_VLProcessor", "Qwen3VLProcessor", "Glm4vProcessor")
_PARTS = ("image_processor", "tokenizer")
_VIDEO = ("video_preprocessor_config.json", "preprocessor_config.json")


class ImageOnly:
    """What an image-only processor does differently: videos are refused, image files are read."""

    def __call__(self, images: Any = None, text: Any = None, videos: Any = None, **kw: Any) -> Any:
        """The stock call, for text and images."""
        if videos is not None:
            raise UnsupportedError(
                f"this {type(self).__name__} was made without a video processor; allowed are text "
                "and images. Install torchvision and load the directory again to process videos."
            )
        return super().__call__(images=_read(images), text=text, **kw)  # type: ignore[misc]

    def __reduce__(self) -> Any:
        """Its class is made when called for, so copies and other processes make it again."""
        own: Any = self
        return _rebuilt, (
            type(self).__name__,
            own.image_processor,
            own.tokenizer,
            own.chat_template,
        )


@functools.cache
def image_only(stock: str) -> type[Any]:
    """The image-only class of a stock processor class, under the stock class's name.

    Args:
        stock: one of ``STOCK``.
    """
    if stock not in STOCK:
        raise UnsupportedError(
            f"{stock} has no image-only form; allowed are {', '.join(STOCK)}. Install torchvision "
            "to use the stock class."
        )
    import transformers

    base: Any = getattr(transformers, stock, None)
    if base is None:
        raise UnsupportedError(
            f"transformers {transformers.__version__} has no {stock}; a newer release has it."
        )

    def __init__(
        self: Any,
        image_processor: Any = None,
        tokenizer: Any = None,
        chat_template: Any = None,
        **kwargs: Any,
    ) -> None:
        # The library pairs the parts with the names of this signature, so the third one is unused.
        base.__init__(self, image_processor, tokenizer, None, chat_template=chat_template, **kwargs)

    body = {"__init__": __init__, "__doc__": f"{stock} without videos.", "attributes": [*_PARTS]}
    return type(stock, (ImageOnly, base), {**body, "__module__": __name__})


def image_only_processor(
    directory: str | os.PathLike[str] | None = None,
    *,
    image_processor: Any = None,
    tokenizer: Any = None,
    chat_template: Any = None,
    stock: str | None = None,
) -> Any:
    """A processor for text and images that needs no torchvision.

    Args:
        directory: written by ``save_pretrained`` of this processor or of the stock one; or give
            the parts.
        image_processor: such as ``Qwen2VLImageProcessorPil``.
        tokenizer: with the family's image and video tokens.
        chat_template: instead of the directory's own.
        stock: name of the stock class; read from the directory, else ``Qwen2_5_VLProcessor``.
    """
    if directory is not None:
        if image_processor is not None or tokenizer is not None:
            raise UnsupportedError(
                "a directory came together with parts; allowed is one of the two. Leave out "
                "image_processor= and tokenizer=."
            )
        found = image_only(stock or stock_of(directory))
        processor = found.from_pretrained(os.fspath(directory), local_files_only=True)
        if chat_template is not None:
            processor.chat_template = chat_template
        return processor
    if image_processor is None or tokenizer is None:
        missing = "tokenizer" if image_processor is not None else "image_processor"
        raise UnsupportedError(
            f"an image-only processor got no {missing}=; allowed are a directory, or "
            "image_processor= and tokenizer= together."
        )
    return _rebuilt(stock or "Qwen2_5_VLProcessor", image_processor, tokenizer, chat_template)


def stock_of(directory: str | os.PathLike[str]) -> str:
    """Name of the stock processor class of a directory; empty if nothing says it."""
    from transformers.models.auto import processing_auto

    for name in ("processor_config.json", "preprocessor_config.json", "tokenizer_config.json"):
        found = json_of(directory, name).get("processor_class")
        if found:
            return str(found)
    kind = json_of(directory, "config.json").get("model_type", "")
    names: dict[str, Any] = vars(processing_auto)["PROCESSOR_MAPPING_NAMES"]
    return str(names.get(kind) or "")


def without_videos(directory: str | os.PathLike[str]) -> str | None:
    """Why a directory's processor can be loaded for images only; None if the stock one loads.

    Args:
        directory: of a checkpoint.
    """
    if stock_of(directory) not in STOCK:
        return None
    if not has_torchvision():
        return "torchvision is not installed"
    described = "video_processor" in json_of(directory, "processor_config.json")
    if described or any((Path(directory) / name).is_file() for name in _VIDEO):
        return None
    return "the directory describes no video processor"


def has_torchvision() -> bool:
    """Whether video processors can be made on this machine."""
    return importlib.util.find_spec("torchvision") is not None


def read_image(source: Any) -> Any:
    """An RGB image, upright, from a path; images come back as they are.

    Args:
        source: a path, or an image of Pillow.
    """
    from PIL import Image, ImageOps, UnidentifiedImageError

    if isinstance(source, Image.Image):
        return source
    path = Path(source)
    if not path.is_file():
        what = "a directory" if path.is_dir() else "not there"
        raise UnreadableError(
            f"image {path} is {what}; allowed is a readable file. Check the path."
        )
    try:
        with Image.open(path) as image:
            return ImageOps.exif_transpose(image).convert("RGB")
    except UnidentifiedImageError:
        raise UnreadableError(
            f"{path} ({path.stat().st_size} bytes) is no image that Pillow knows; allowed are "
            "formats such as PNG, JPEG and WebP. Convert it, or check that it was copied whole."
        ) from None
    except (OSError, ValueError, SyntaxError, Image.DecompressionBombError) as error:
        raise UnreadableError(
            f"{path} cannot be decoded ({error}); allowed are complete image files. Check that it "
            "was copied whole."
        ) from error


def json_of(directory: str | os.PathLike[str], name: str) -> dict[str, Any]:
    """A JSON object of a directory; empty if the file is not there.

    Args:
        directory: of a checkpoint.
        name: of the file.
    """
    path = Path(directory) / name
    if not path.is_file():
        return {}
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
    except ValueError as error:
        raise UnreadableError(
            f"{path} is no JSON ({error}); allowed is the file that save_pretrained writes. Check "
            "that the checkpoint was copied whole."
        ) from error
    return found if isinstance(found, dict) else {}


def _read(images: Any) -> Any:
    """The same nesting with image files read; URLs and encoded images are the library's matter."""
    if isinstance(images, (list, tuple)):
        return [_read(image) for image in images]
    if isinstance(images, os.PathLike) or (isinstance(images, str) and _names_a_file(images)):
        return read_image(images)
    return images


def _names_a_file(text: str) -> bool:
    from PIL import Image

    if text.startswith(("http://", "https://", "data:")):
        return False
    return os.path.isfile(text) or Path(text[-16:]).suffix.lower() in Image.registered_extensions()


def _rebuilt(stock: str, image_processor: Any, tokenizer: Any, chat_template: Any) -> Any:
    return image_only(stock)(image_processor, tokenizer, chat_template=chat_template)
