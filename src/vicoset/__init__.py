"""Visual coresets: training-free compression of visual tokens inside vision-language decoders.

Importing this package patches nothing and loads neither torch nor transformers; the public names
load what they need when they are first used.
"""

from __future__ import annotations

from importlib.metadata import PackageNotFoundError, version
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from vicoset.api import Run, compress, downsample, load
    from vicoset.plan import Keep, Plan, Stage, plan_named

__all__ = [
    "Keep",
    "Plan",
    "Run",
    "Stage",
    "__version__",
    "compress",
    "downsample",
    "load",
    "plan_named",
]

try:
    __version__ = version("vicoset")
except PackageNotFoundError:  # a source tree that is on the path without being installed
    __version__ = "0.0.0+source"

_HOMES = {
    "Run": "vicoset.api",
    "compress": "vicoset.api",
    "downsample": "vicoset.api",
    "load": "vicoset.api",
    "Keep": "vicoset.plan",
    "Plan": "vicoset.plan",
    "Stage": "vicoset.plan",
    "plan_named": "vicoset.plan",
}


def __getattr__(name: str) -> Any:
    """A public name, loaded at its first use."""
    if name not in _HOMES:
        raise AttributeError(f"module 'vicoset' has no attribute {name!r}")
    from importlib import import_module

    return getattr(import_module(_HOMES[name]), name)


def __dir__() -> list[str]:
    """The public names."""
    return sorted(__all__)
