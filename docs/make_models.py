"""Write docs/models.md: `make docs-models`.

Every certified family has to pass a small contract on tiny random models first: at K = N, forced
through the whole path, logits and tokens are bit-identical to the untouched model's; without
transport, logits are those of the dense model with the dropped columns masked.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import torch
import transformers
from torch import Tensor

from tests import zoo
from vicoset.methods import registry
from vicoset.models import families
from vicoset.plan import Keep, Plan, Stage, plan_named
from vicoset.runtime.engine import Engine

PAGE = Path(__file__).with_name("models.md")
TOLERANCE = 1e-5
ROWS = [1, 2, 0]  # images of the rows of a left-padded batch
KEEP = 5
EVERYTHING = Keep(fraction=1.0)

HEAD = """\
# Model families

<!-- `make docs-models` writes this page; edit docs/make_models.py or the families instead. -->

A family is certified when the contract below holds for it. It was run on transformers {version},
with torch on a CPU, in fp32, with both attention kernels where the library has both.

{families}

Any-resolution newlines, tile markers, row breaks and frame timestamps are *structural*: they stay
in the sequence like text, and are neither clients nor queries. Positions stay the original ones.
Where a decoder adds features of the vision tower between blocks (Qwen3-VL), a carrier receives the
feature of its own position.

The contract, on random models with {depth} blocks, real pixels through the vision tower, one prompt
and a left-padded batch of {rows} images, before block {boundaries}:

- **Identity.** With `K = N`, forced through selection, gather and cache, logits and generated
  tokens are bit-identical to the untouched model's.
- **Mask-out oracle.** With a random support and the `drop` realiser, the logits at all positions
  that stay are those of the dense model whose blocks from the boundary on do not see the dropped
  columns, within {tolerance} in fp32.

`make test` runs a larger contract on the same models: bf16, every prefix mode, several stages,
decoding, beams and caches. Random models say that the mechanics are right. They say nothing about
the quality of answers.

## Not certified

A model type that is in neither table raises `UncertifiedModelError`, which names the closest
certified family. `compress(model, ..., allow_uncertified=True)` runs it all the same. Families of
the table above keep their own layout then. Others get a guess:

> {generic}

## Refused

These model types raise `UnsupportedError`, with or without `allow_uncertified`.

{refused}

Decoders of any family are refused where their blocks or kernels rule it out:

| what | why |
| --- | --- |
| a boundary at or behind a block with linear attention, convolution or a state space | its state \
has no entries per position that could be gathered or read |
| a prompt longer than a sliding or chunked window | its cache has dropped entries by then, and \
behind a boundary the window would count compact positions |
| `attn_implementation="flex_attention"` | its block masks cannot be gathered |

Calls that are refused for every family are listed in [Footguns](footguns.md#what-is-refused).
"""


class Passed(NamedTuple):
    """What the contract ran on: decoders and attention kernels."""

    decoders: list[str]
    kernels: list[str]


@dataclass
class Noted:
    """The random selector, which writes down where the tokens lay that it chose from."""

    name, query_aware = "noted", False

    def __post_init__(self) -> None:
        self.inner = registry.selector("random")
        self.needs = self.inner.needs
        self.places: list[Tensor] = []

    def select(self, scene: Any, keep: int) -> Any:
        self.places.append(scene.visual)
        return self.inner.select(scene, keep)


def forward(model: Any, inputs: dict[str, Any]) -> Tensor:
    with torch.no_grad():
        logits: Tensor = model(**inputs).logits
    return logits


def generate(model: Any, inputs: dict[str, Any]) -> Tensor:
    # A random model may write an image token, which no vision tower has features for.
    visual = list(families.family_of(model).visual_ids(model.config))
    with torch.no_grad():
        tokens: Tensor = model.generate(
            **inputs, max_new_tokens=4, do_sample=False, suppress_tokens=visual
        )
    return tokens


@contextmanager
def attached(model: Any, plan: Plan, keep: Keep, force: bool = False) -> Iterator[Engine]:
    engine = Engine(model, plan, keep, force=force)
    engine.attach()
    try:
        yield engine
    finally:
        engine.detach()


@contextmanager
def blind(model: Any, gone: Tensor, boundary: int) -> Iterator[None]:
    """The model with the `gone` [B, L] columns masked in the blocks from a boundary on."""

    def hide(block: Any, args: Any, kwargs: dict[str, Any]) -> tuple[Any, dict[str, Any]]:
        mask, length = kwargs.get("attention_mask"), gone.shape[1]
        if mask is None:
            mask = torch.ones(length, length, dtype=torch.bool).tril()[None, None]
        low = False if mask.dtype == torch.bool else torch.finfo(mask.dtype).min
        mask = mask.expand(len(gone), -1, -1, -1).masked_fill(gone[:, None, None], low)
        return args, {**kwargs, "attention_mask": mask}

    blocks = families.layers_of(model)[boundary:]
    handles = [block.register_forward_pre_hook(hide, with_kwargs=True) for block in blocks]
    try:
        yield
    finally:
        for handle in handles:
            handle.remove()


def identity(model: Any, inputs: dict[str, Any], boundary: int) -> bool:
    """Whether K = N changes nothing, not even a bit."""
    plan = plan_named(f"gmc@{boundary}", len(families.layers_of(model)))
    logits, tokens = forward(model, inputs), generate(model, inputs)
    with attached(model, plan, EVERYTHING, force=True) as engine:
        same = torch.equal(forward(model, inputs), logits)
        same = same and torch.equal(generate(model, inputs), tokens)
    went_through = any(record.stages for record in engine.records)
    return same and went_through


def deletion(model: Any, inputs: dict[str, Any], boundary: int) -> bool:
    """Whether deleting tokens is the same as not seeing them."""
    noted = Noted()
    plan = Plan("noted", (Stage(boundary, noted, registry.realiser("drop")),))
    with attached(model, plan, Keep(tokens=KEEP)) as engine:
        compact = forward(model, inputs)
    gone = torch.zeros_like(inputs["input_ids"], dtype=torch.bool)
    rows = [row for row, record in enumerate(engine.records) if record.stages]
    for row, places in zip(rows, noted.places, strict=True):
        gone[row, places] = True
        gone[row, places[engine.records[row].stages[0].indices]] = False
    with blind(model, gone, boundary):
        dense = forward(model, inputs)
    stays = inputs["attention_mask"].bool() & ~gone
    errors = []
    for row, kept in enumerate(stays):
        own = dense[row][kept]
        errors.append(float((compact[row, -len(own) :] - own).abs().max()))
    return bool(gone.any()) and max(errors) <= TOLERANCE


def contract(model: Any, name: str) -> list[str]:
    """What a tiny model breaks; empty when it passes."""
    broken = []
    for images in (1, ROWS):
        inputs = zoo.prompt(model, name, images)
        for boundary in boundaries_of(model):
            for promise in (identity, deletion):
                if not promise(model, inputs, boundary):
                    broken.append(f"{name}: {promise.__name__}, images {images}, p = {boundary}")
    return broken


def boundaries_of(model: Any) -> list[int]:
    """First, H2 and last."""
    return [0, 2, len(families.layers_of(model)) - 1]


def certify() -> dict[str, Passed]:
    """Family name -> what passed. Raises SystemExit when a certified family does not."""
    passed: dict[str, Passed] = {}
    broken: list[str] = []
    for name in zoo.FAMILIES:
        for attn in ("sdpa", "eager"):
            model = zoo.tiny(name, attn)
            text = model.config.get_text_config()
            if text._attn_implementation != attn:
                continue
            broken += [f"{line}, {attn}" for line in contract(model, name)]
            entry = passed.setdefault(families.family_of(model).name, Passed([], []))
            for found, value in ((entry.decoders, text.model_type), (entry.kernels, attn)):
                if value not in found:
                    found.append(value)
    wanted = {family.name for family in families.FAMILIES if family.certified}
    broken += [f"{name}: certified without a tiny model" for name in sorted(wanted - set(passed))]
    if broken:
        raise SystemExit(
            "the contract is broken, docs/models.md stays as it is:\n" + "\n".join(broken)
        )
    return passed


def table(head: list[str], rows: list[list[str]]) -> str:
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join(f"| {' | '.join(cells)} |" for cells in lines)


def codes(names: tuple[str, ...] | list[str]) -> str:
    return ", ".join(f"`{name}`" for name in names)


def page(passed: dict[str, Passed], version: str) -> str:
    """The page for contract results on a version of transformers."""
    rows = []
    for family in families.FAMILIES:
        ran = passed.get(family.name)
        certified = family.certified and ran is not None
        rows.append(
            [
                family.name,
                codes(family.model_types),
                f"yes, {' and '.join(ran.kernels)}" if certified and ran else "no",
                codes(ran.decoders) if certified and ran else "",
                family.notes,
            ]
        )
    head = ["family", "`model_type`", "certified", "decoders run", "what its layout decides"]
    why = [[f"`{kind}`", reason] for kind, reason in families.REFUSED.items()]
    return HEAD.format(
        version=version,
        families=table(head, rows),
        refused=table(["`model_type`", "why"], why),
        generic=families.GENERIC.notes,
        tolerance=f"{TOLERANCE:.0e}".replace("e-0", "e-"),
        depth=len(families.layers_of(zoo.tiny(zoo.FAMILIES[0]))),
        rows=", ".join(map(str, ROWS[:-1])) + f" and {ROWS[-1]}",
        boundaries="0, 2 and the last",
    )


def main() -> None:
    torch.set_num_threads(1)
    transformers.logging.set_verbosity_error()
    PAGE.write_text(page(certify(), transformers.__version__), encoding="utf-8")


if __name__ == "__main__":
    main()
