"""Two small models trained from nothing, their benchmark, and how both were made."""

from vicoset.tiny.load import directory, load_tiny

__all__ = ["directory", "load_tiny"]
