"""What some methods demand of a model or a call beyond the parts of a scene, asked early."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple, Protocol, runtime_checkable


class Offer(NamedTuple):
    """What a context has.

    Attributes:
        heads: query heads of a decoder block.
        class_width: width of the vision tower's states where a class token stands in front of
            them; None elsewhere.
        companions: models that the user gave to ``compress``, by name.
    """

    heads: int
    class_width: int | None
    companions: Mapping[str, Any]


@runtime_checkable
class Demanding(Protocol):
    """What a method adds to refuse a model or a call early."""

    def check_offer(self, offer: Offer) -> None:
        """Raise when the method cannot run there; the message says what can."""
