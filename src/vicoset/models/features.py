"""Reading what the vision tower returned, without running it a second time."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import adaptive_avg_pool2d

MODALITIES = ("image", "video")
VIEW = 16
_MARK = "_vicoset_watch"


def lengths_of(features: Any) -> list[int] | None:
    """Visual tokens of each piece of a feature output.

    Args:
        features: what ``get_image_features`` returned: an output with ``pooler_output``, or that
            itself: a list of ``[n, d]`` tensors or one ``[pieces, n, d]`` tensor.

    Returns:
        Tokens per piece, or None if the output does not say.
    """
    pooled = getattr(features, "pooler_output", features)
    if isinstance(pooled, tuple) and pooled and isinstance(pooled[0], (list, tuple)):
        pooled = pooled[0]  # Qwen3-VL before transformers 5: (features, features for early blocks)
    if isinstance(pooled, Tensor):
        return [pooled.shape[1]] * pooled.shape[0] if pooled.ndim == 3 else None
    if isinstance(pooled, (list, tuple)) and all(isinstance(part, Tensor) for part in pooled):
        return [len(part) if part.ndim == 2 else part.shape[-2] for part in pooled]
    return None


def lengths_from(kwargs: Mapping[str, Any], modality: str = "image") -> list[int] | None:
    """Visual tokens of each piece, from features that ``generate`` encoded before the forward.

    Args:
        kwargs: keyword arguments of a forward; ``mm_encoder_outputs`` from transformers 5.18 on.
        modality: "image" or "video".
    """
    encoded = kwargs.get("mm_encoder_outputs")
    if not isinstance(encoded, Mapping) or encoded.get(modality) is None:
        return None
    return lengths_of(encoded[modality])


class Watch:
    """What the vision tower was asked and how much it returned, last call of each modality.

    Attributes:
        calls: modality -> (arguments by name, tokens per piece).
        views: ``[pieces, C, S, S]`` small views of the last images, if they came as tiles.
    """

    def __init__(self) -> None:
        """Nothing seen, nothing wrapped."""
        self.calls: dict[str, tuple[dict[str, Any], list[int] | None]] = {}
        self.views: Tensor | None = None
        self._inside = False
        self._undo: list[Callable[[], None]] = []

    @property
    def lengths(self) -> list[int] | None:
        """Visual tokens of each image piece of the last call, None if there was none."""
        return self.seen("image")[1]

    @property
    def video_lengths(self) -> list[int] | None:
        """Visual tokens of each video of the last call, None if there was none."""
        return self.seen("video")[1]

    def seen(self, modality: str) -> tuple[dict[str, Any], list[int] | None]:
        """Arguments by name (without the pixels) and tokens per piece of the last call."""
        return self.calls.get(modality, ({}, None))

    def clear(self) -> None:
        """Forget the calls."""
        self.calls.clear()
        self.views = None

    def close(self) -> None:
        """Give the model its own functions back."""
        while self._undo:
            self._undo.pop()()
        self.clear()

    def __enter__(self) -> Watch:
        """This watch; the functions are wrapped already."""
        return self

    def __exit__(self, *exception: object) -> None:
        """Close, whatever happened."""
        self.close()

    def wrap(self, owner: Any, modality: str) -> None:
        """Record the calls of ``owner.get_<modality>_features`` from now on."""
        name = f"get_{modality}_features"
        function = getattr(owner, name)
        own = vars(owner).get(name)

        @functools.wraps(function)
        def watched(*args: Any, **kwargs: Any) -> Any:
            if self._inside:  # videos of some families are encoded by the image function
                return function(*args, **kwargs)
            self._inside = True
            try:
                result = function(*args, **kwargs)
            finally:
                self._inside = False
            given = _named(function, args, kwargs)
            if modality == "image":
                self.views = small_views(given.get("pixel_values"))
            given = {key: value for key, value in given.items() if "pixel_values" not in key}
            self.calls[modality] = (given, lengths_of(result))
            return result

        def undo() -> None:
            if own is None:
                delattr(owner, name)
            else:
                setattr(owner, name, own)

        setattr(watched, _MARK, self)
        setattr(owner, name, watched)
        self._undo.append(undo)


def watch_image_features(model: Any) -> Watch:
    """Record what the vision tower returns, until the returned watch is closed.

    The functions are wrapped on the instance that the model's own code calls: the inner model
    where there is one, else the model itself.
    """
    watch = Watch()
    for modality in MODALITIES:
        owner = _owner(model, modality)
        if owner is not None:
            watch.wrap(owner, modality)
    return watch


def watch_of(model: Any) -> Watch | None:
    """The watch that records this model now."""
    owner = _owner(model, "image")
    found = getattr(getattr(owner, "get_image_features", None), _MARK, None)
    return found if isinstance(found, Watch) else None


def argument(model: Any, kwargs: Mapping[str, Any], name: str, modality: str = "image") -> Any:
    """An argument of the vision side, from the forward or, if it was consumed, from the watch.

    Args:
        model: the top-level model.
        kwargs: keyword arguments of the forward.
        name: such as ``image_sizes``.
        modality: whose call to look at.
    """
    if kwargs.get(name) is not None:
        return kwargs[name]
    watch = watch_of(model)
    return None if watch is None else watch.seen(modality)[0].get(name)


def owner_of(model: Any) -> Any:
    """The module whose ``get_image_features`` the model's own code calls."""
    return _owner(model, "image")


def _owner(model: Any, modality: str) -> Any:
    name = f"get_{modality}_features"
    inner = getattr(model, "model", None)
    for candidate in (inner, model):
        if callable(getattr(candidate, name, None)):
            return candidate
    return None


def _named(
    function: Callable[..., Any], args: tuple[Any, ...], kwargs: Mapping[str, Any]
) -> dict[str, Any]:
    try:
        bound = dict(inspect.signature(function).bind_partial(*args, **kwargs).arguments)
    except (TypeError, ValueError):
        bound = dict(kwargs)
    extra = bound.pop("kwargs", None)
    bound.update(extra if isinstance(extra, dict) else {})
    return bound


def small_views(pixels: Any) -> Tensor | None:
    """Small views ``[n, C, S, S]`` of pixels ``[n, C, H, W]``; None for anything else."""
    if not isinstance(pixels, Tensor) or pixels.ndim != 4 or min(pixels.shape) < 1:
        return None
    with torch.no_grad():
        return adaptive_avg_pool2d(pixels.detach().float(), VIEW)
