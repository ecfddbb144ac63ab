"""Visual coresets: training-free compression of visual tokens inside vision-language decoders.

Importing this package patches nothing and loads neither torch nor transformers.
"""

from importlib.metadata import PackageNotFoundError, version

__all__ = ["__version__"]

try:
    __version__ = version("vicoset")
except PackageNotFoundError:  # a source tree that is on the path without being installed
    __version__ = "0.0.0+source"
