"""Methods: selectors and realisers, one file each; importing the room registers them."""

from vicoset.methods.drop import Drop
from vicoset.methods.gmc import GMC
from vicoset.methods.random import Random
from vicoset.methods.transport import Transport

__all__ = ["GMC", "Drop", "Random", "Transport"]
