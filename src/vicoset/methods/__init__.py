"""Methods: selectors and realisers, one file each; importing the room registers them.

Every module of the room is imported, so a new method is one file with one registration.
"""

import importlib
import pkgutil

from vicoset.methods.drop import Drop
from vicoset.methods.gmc import GMC
from vicoset.methods.random import Random
from vicoset.methods.transport import Transport

for _module in pkgutil.iter_modules(__path__):
    importlib.import_module(f"{__name__}.{_module.name}")

__all__ = ["GMC", "Drop", "Random", "Transport"]
