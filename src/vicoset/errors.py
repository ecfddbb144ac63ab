"""The errors of vicoset. Every message says what came, what is allowed and the nearest fix."""

from __future__ import annotations


class VicosetError(Exception):
    """Root of every error that vicoset raises on purpose."""


class BudgetError(VicosetError, ValueError):
    """A budget that names no number of visual tokens to keep."""


class ShapeError(VicosetError, ValueError):
    """Tensors whose shapes do not belong together."""


class DtypeError(VicosetError, TypeError):
    """A tensor of a dtype the mathematics is not defined for."""


class NonFiniteError(VicosetError, ValueError):
    """NaN or infinity where a finite number is needed."""


class ImageError(VicosetError, ValueError):
    """Image ids that do not describe a partition of the visual tokens."""


class IndexRangeError(VicosetError, ValueError):
    """Positions or indices that point outside the sequence or are not unique."""


class SettingError(VicosetError, ValueError):
    """A setting outside the range in which the method is defined."""


class UnsupportedError(VicosetError, NotImplementedError):
    """A model, cache or call that cannot be compressed without going silently wrong."""


class RuntimeStateError(VicosetError, RuntimeError):
    """A context that is used twice, from two threads, or after the model has changed under it."""


class PlanError(VicosetError, ValueError):
    """A plan that no decoder could run, or not this one."""


class UnknownNameError(VicosetError, LookupError):
    """A name under which nothing is registered."""


class MethodError(VicosetError, ValueError):
    """A method that is incomplete, registered twice, or given a scene it cannot read."""


class UncertifiedModelError(VicosetError, ValueError):
    """A model family whose rows nobody has certified."""


class PositionError(VicosetError, ValueError):
    """Multimodal positions that do not describe the grids of the images."""


class UnreadableError(VicosetError, OSError):
    """A directory or a file that cannot be read as what it should be."""


class UnwritableError(VicosetError, OSError):
    """A file that cannot be written where it should be."""


class PairingError(VicosetError, ValueError):
    """Runs whose samples cannot be joined one to one: missing, doubled or contradicting ids."""


class StatisticsError(VicosetError, ValueError):
    """A comparison that the records do not allow: no denominator, no such method, no numbers."""


class JournalError(VicosetError, OSError):
    """A journal that is damaged, in use by another process, or cannot be written."""


class RunError(VicosetError, ValueError):
    """Runs or samples that are missing, doubled, or do not belong together."""
