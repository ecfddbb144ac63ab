"""Tiny models, contexts and generations that the contract tests share."""

from __future__ import annotations

import functools
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, ClassVar

import torch
from torch import Tensor

from tests import zoo
from tests.zoo import prompt
from tests.zoo_parts import IMAGE, VIDEO
from vicoset.methods import Drop, registry
from vicoset.models.families import decoder_of, layers_of
from vicoset.plan import Keep, Plan, Stage, plan_named
from vicoset.runtime.engine import Engine, depth_of

EAGER_ONLY = {"paligemma2"}  # the library refuses sdpa for its decoder
KERNELS = [
    (family, attn)
    for family in zoo.FAMILIES
    for attn in ("sdpa", "eager")
    if attn == "eager" or family not in EAGER_ONLY
]
SOME = [("qwen2_5_vl", "sdpa"), ("qwen2_5_vl", "eager"), ("llava", "sdpa"), ("llava", "eager")]
ONE_EACH = [(family, "eager" if family in EAGER_ONLY else "sdpa") for family in zoo.FAMILIES]
DTYPES = [torch.float32, torch.bfloat16]
BOUNDARIES = (0, 1, 2, 3, 4)  # first, H1, H2, middle and last of the five blocks
VISUAL_IDS = [IMAGE, VIDEO]  # a random model may write one, which no vision tower has features for
ROWS = [1, 2, 0]  # images of the rows of a batch: unequal, and one without


@functools.cache
def model_of(family: str, attn: str = "sdpa", dtype: torch.dtype = torch.float32) -> Any:
    """One model of a kind for all tests; every test leaves it as it was."""
    return zoo.tiny(family, attn, dtype)


@contextmanager
def compressed(
    model: Any, plan: str | Plan = "gmc-h2", keep: Any = 6, **options: Any
) -> Iterator[Engine]:
    """An attached engine, detached at the end."""
    if isinstance(plan, str):
        plan = plan_named(plan, depth_of(model))
    engine = Engine(model, plan, Keep.parse(keep), **options)
    engine.attach()
    try:
        yield engine
    finally:
        engine.detach()


@dataclass(frozen=True)
class Watched:
    """A selector that remembers what it chose from, row by row, and what it chose."""

    inner: str
    name: ClassVar[str] = "watched"
    query_aware: ClassVar[bool] = True
    places: ClassVar[dict[int, Tensor]] = {}
    drawn: ClassVar[list[tuple[int, Tensor]]] = []

    @property
    def needs(self) -> frozenset[str]:
        return registry.selector(self.inner).needs

    def select(self, scene: Any, keep: int) -> Any:
        found = registry.selector(self.inner).select(scene, keep)
        self.places[scene.seed] = scene.visual
        self.drawn.append((scene.seed, found.indices))
        return found


def watched(selector: str, boundary: int) -> Plan:
    """A plan that drops what a watched selector does not choose."""
    Watched.places.clear()
    Watched.drawn.clear()
    return Plan("watched", (Stage(boundary, Watched(selector), Drop()),))


def two_stages(first: str = "gmc-h1", second: str = "gmc@3", keep: int = 4) -> Plan:
    """A plan of two boundaries: the run's budget at the first, `keep` tokens at the second."""
    one, two = (plan_named(name, 5).stages[0] for name in (first, second))
    return Plan("two", (one, Stage(two.boundary, two.selector, two.realiser, Keep(tokens=keep))))


def logits(model: Any, inputs: dict[str, Any], **options: Any) -> Tensor:
    """Logits of a forward over the whole prompt."""
    with torch.no_grad():
        found: Tensor = model(**inputs, **options).logits
    return found


def generate(model: Any, inputs: dict[str, Any], tokens: int = 6, **options: Any) -> Any:
    """A greedy generation with its logits."""
    with torch.no_grad():
        return model.generate(
            **inputs,
            **{
                "max_new_tokens": tokens,
                "do_sample": False,
                "return_dict_in_generate": True,
                "output_logits": True,
                "suppress_tokens": VISUAL_IDS,
                **options,
            },
        )


def new_tokens(out: Any, inputs: dict[str, Any]) -> list[list[int]]:
    """What a generation wrote behind its prompt."""
    sequences = out if isinstance(out, Tensor) else out.sequences
    return sequences[:, inputs["input_ids"].shape[1] :].tolist()


def same(left: Any, right: Any) -> bool:
    """Whether two generations have the same tokens and bit-identical logits."""
    return torch.equal(left.sequences, right.sequences) and all(
        torch.equal(a, b) for a, b in zip(left.logits, right.logits, strict=True)
    )


__all__ = [
    "BOUNDARIES",
    "DTYPES",
    "KERNELS",
    "ONE_EACH",
    "ROWS",
    "SOME",
    "Watched",
    "compressed",
    "decoder_of",
    "generate",
    "layers_of",
    "logits",
    "model_of",
    "new_tokens",
    "prompt",
    "same",
    "two_stages",
    "watched",
]
