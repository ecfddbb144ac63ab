"""Input checks: shapes and dtypes are free to look at, values cost a device read."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from functools import wraps
from typing import ParamSpec, TypeVar

import torch
from torch import Tensor

from vicoset.errors import DtypeError, ImageError, IndexRangeError, NonFiniteError, ShapeError

P = ParamSpec("P")
R = TypeVar("R")
FLOATS = (torch.bfloat16, torch.float16, torch.float32, torch.float64)


def compute_dtype(dtype: torch.dtype, name: str = "tensor") -> torch.dtype:
    """The dtype to compute in: float64 stays, every other float becomes float32."""
    if dtype not in FLOATS:
        allowed = ", ".join(str(f).removeprefix("torch.") for f in FLOATS)
        got = str(dtype).removeprefix("torch.")
        raise DtypeError(
            f"{name} is {got}; allowed are {allowed}. "
            f"Dequantise or cast it first, e.g. {name}.to(torch.bfloat16)."
        )
    return torch.float64 if dtype == torch.float64 else torch.float32


def lift(tensor: Tensor, name: str) -> Tensor:
    """The tensor in its compute dtype (no copy when it is there already)."""
    return tensor.to(compute_dtype(tensor.dtype, name))


def full_precision(function: Callable[P, R]) -> Callable[P, R]:
    """Keep autocast out: it would hand matrix products to half precision behind our back."""

    @wraps(function)
    def run(*args: P.args, **kwargs: P.kwargs) -> R:
        tensors = (a for a in (*args, *kwargs.values()) if isinstance(a, Tensor))
        kind = next(tensor.device.type for tensor in tensors)
        if not torch.amp.is_autocast_available(kind):
            return function(*args, **kwargs)
        with torch.autocast(kind, enabled=False):
            return function(*args, **kwargs)

    return run


def shape(tensor: Tensor, name: str, letters: str, **sizes: int) -> dict[str, int]:
    """Check a tensor against a shape written in letters and return the letters' sizes.

    Args:
        tensor: the tensor to check.
        name: its name in the message.
        letters: axis names separated by blanks, e.g. ``"H T N"``.
        **sizes: sizes already fixed by other tensors.

    Returns:
        ``sizes`` with the axes of this tensor added.
    """
    axes = letters.split()
    wanted = "[" + ", ".join(f"{a}={sizes[a]}" if a in sizes else a for a in axes) + "]"
    got = list(tensor.shape)
    if len(axes) != len(got):
        raise ShapeError(
            f"{name} has shape {got}; expected {len(axes)} axes {wanted}. "
            f"Pass one sample without a batch axis, axes in this order."
        )
    for axis, size in zip(axes, got, strict=True):
        if sizes.setdefault(axis, size) != size:
            raise ShapeError(
                f"{name} has shape {got}; expected {wanted}. Axis {axis} is {size} here "
                f"and {sizes[axis]} in the tensors before it; slice or recompute one of the two."
            )
    return sizes


def finite(tensors: Mapping[str, Tensor]) -> None:
    """Raise when a named tensor holds NaN or infinity, and say where the first one is."""
    for name, tensor in tensors.items():
        if not tensor.numel() or all(map(math.isfinite, torch.aminmax(tensor.detach()))):
            continue  # one pass without a temporary: NaN and infinity both reach the extremes
        bad = (~torch.isfinite(tensor)).nonzero()
        if len(bad):
            first = tuple(int(i) for i in bad[0])
            raise NonFiniteError(
                f"{name} holds {len(bad)} non-finite values out of {tensor.numel()}, the first at "
                f"{first} ({tensor[first].item()}); only finite values are allowed. Look for an "
                f"overflow before this point (float16 ends at 65504; bfloat16 or float32 do not)."
            )


def image_ids(ids: Tensor, images: int) -> None:
    """Raise unless ids are 0..images-1 and every image owns at least one token."""
    if ids.dtype not in (torch.int64, torch.int32):
        raise DtypeError(
            f"image_ids is {str(ids.dtype).removeprefix('torch.')}; allowed are int64 and int32. "
            "Cast it with image_ids.long()."
        )
    if images < 1 or not ids.numel():
        raise ImageError(
            f"{ids.numel()} visual tokens came in images={images}; at least one of each is needed. "
            "Requests without an image need no compression."
        )
    low, high = int(ids.min()), int(ids.max())
    if low < 0 or high >= images:
        raise ImageError(
            f"image_ids run from {low} to {high} for images={images}; allowed are 0..{images - 1}. "
            f"Number the images from 0, or pass images={high + 1}."
        )
    counts = torch.bincount(ids, minlength=images)
    empty = (counts == 0).nonzero()[:, 0].tolist()
    if empty:
        raise ImageError(
            f"image {empty[0]} has no visual token (token counts per image: {counts.tolist()}); "
            f"every image needs at least one. Number only the images that own tokens, "
            f"here images={images - len(empty)}."
        )


def indices(index: Tensor, name: str, size: int) -> None:
    """Raise unless an index vector is ascending, unique and inside ``0..size-1``."""
    if index.dtype not in (torch.int64, torch.int32):
        raise DtypeError(
            f"{name} is {str(index.dtype).removeprefix('torch.')}; allowed are int64 and int32. "
            f"Cast it with {name}.long()."
        )
    if not index.numel():
        raise IndexRangeError(f"{name} is empty; at least one index is needed.")
    low, high = int(index.min()), int(index.max())
    if low < 0 or high >= size:
        raise IndexRangeError(f"{name} runs from {low} to {high}; allowed are 0..{size - 1}.")
    if not bool((index[1:] > index[:-1]).all()):
        raise IndexRangeError(
            f"{name} is not strictly ascending; allowed are unique indices in source order. "
            f"Pass {name}.unique()."
        )
