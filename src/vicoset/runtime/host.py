"""What is made without a device is the host's, whatever default device the user has set."""

from __future__ import annotations

import functools
from collections.abc import Callable
from contextlib import nullcontext
from typing import ParamSpec, TypeVar

import torch

P = ParamSpec("P")
R = TypeVar("R")


def on_host(method: Callable[P, R]) -> Callable[P, R]:
    """The same, with the host as default device; layouts and records are made there."""

    @functools.wraps(method)
    def inside(*args: P.args, **kwargs: P.kwargs) -> R:
        plain = torch.get_default_device().type == "cpu"
        with nullcontext() if plain else torch.device("cpu"):
            return method(*args, **kwargs)

    return inside
