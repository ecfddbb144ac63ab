"""Writing pictures: refused before the work when it cannot succeed, whole or not at all."""

from __future__ import annotations

import io
import os
from pathlib import Path

from PIL import Image

from vicoset.errors import UnwritableError

SUFFIXES = (".png", ".jpg", ".jpeg", ".webp", ".pdf")


def check_target(path: str | os.PathLike[str]) -> Path:
    """The path of a picture that can be written, as far as that can be known before.

    Args:
        path: of the file.
    """
    target = Path(path)
    if target.suffix.lower() not in SUFFIXES:
        nearest = target.with_suffix(".png") if target.name else "picture.png"
        raise UnwritableError(
            f"picture {target} ends in {target.suffix or 'no suffix'!r}; allowed are "
            f"{', '.join(SUFFIXES)}. Write {nearest}."
        )
    if target.is_dir():
        raise UnwritableError(f"picture {target} is a directory; allowed is the name of a file.")
    check_folder(target, "picture")
    return target


def check_folder(target: Path, what: str) -> None:
    """Refuse a file whose folder is missing, or may not be written to.

    Args:
        target: of the file.
        what: it is, for the message.
    """
    folder = target.parent
    if not folder.is_dir():
        raise UnwritableError(
            f"the folder {folder} of {what} {target} is not there; allowed are folders that exist. "
            f"Make it with mkdir -p {folder}."
        )
    if not os.access(target if target.exists() else folder, os.W_OK):
        raise UnwritableError(
            f"{what} {target} may not be written; allowed are places of your own. Name another one."
        )


def save(image: Image.Image, path: str | os.PathLike[str]) -> Path:
    """Write a picture; what stood there before stays when it cannot be written.

    Args:
        image: to write.
        path: as :func:`check_target` allows it.
    """
    target = check_target(path)
    kind = Image.registered_extensions()[target.suffix.lower()]
    data = io.BytesIO()
    image.save(data, kind)
    beside = target.with_name(f".{target.name}.{os.getpid()}")
    try:
        beside.write_bytes(data.getvalue())
        beside.replace(target)
    except OSError as error:
        beside.unlink(missing_ok=True)
        raise UnwritableError(
            f"picture {target} could not be written ({error.strerror or error}); name another "
            "place, or make room."
        ) from error
    return target
