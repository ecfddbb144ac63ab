"""ApET: tokens that ten others cannot reconstruct stay, those ten stay too, the rest is merged."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from vicoset.core import checks
from vicoset.core.derived import FINAL, Derived
from vicoset.errors import SettingError
from vicoset.methods.base import TOWER, About, Scene, Selection
from vicoset.methods.greedy import steady, unit
from vicoset.methods.images import Part, merged, merges_features, others
from vicoset.methods.nearest import nearest, outermost
from vicoset.methods.presets import (
    Recipe,
    Step,
    moved,
    register_preset,
    rescaled,
    single,
)
from vicoset.methods.registry import register_selector

BLOCKS, BOUNDARIES = 32, (0, 16)  # as released, for decoders of 32 blocks
FIRST = ((32 / 576, 96 / 576), (64 / 576, 192 / 576), (96 / 576, 288 / 576))  # K and K_1 of N
RIDGE = 1e-5  # on the diagonal of the basis tokens' Gram matrix
_NOTES = (
    "the first basis token is the one with the largest norm; the released code draws it, and five "
    "draws share about 40 of 64 tokens on random data",
    "at most K // 2 slots are given to basis tokens, for budgets below 20; a basis token that is "
    "kept anyway stays in its own place",
    "share=0.5 blends as the released Qwen2.5-VL code does, whose stage inside the decoder is "
    "commented out; share=1 is the LLaVA code",
    "the ridge solution is taken by singular values, which duplicates do not upset",
    "the plan apet has both stages, 3 K tokens at the input and K before block 16, as in the "
    "released scripts; tables name its average: '128' is 192 and 64. apet-1 is one stage at the "
    "input, apet-l16 one at the second boundary",
    "images: each gets its share of K, as per crop in the released code",
)


@dataclass(frozen=True)
class _ApET:
    """The core of a stage.

    Attributes:
        basis: b, tokens that the others are reconstructed from.
        share: weight of a basis token in the slot that it takes, in [0, 1].
    """

    basis: int = 10
    share: float = 1.0

    def __post_init__(self) -> None:
        """Refuse what is no number of tokens and what is no share."""
        basis: object = self.basis
        if isinstance(basis, bool) or not isinstance(basis, int) or basis < 1:
            raise SettingError(
                f"basis={self.basis!r}; allowed are whole numbers from 1 on. Pass basis=10."
            )
        if not 0.0 <= self.share <= 1.0:
            raise SettingError(
                f"share={self.share!r}; allowed are numbers in [0, 1]. Pass share=1.0, or 0.5 to "
                "blend."
            )

    def of_image(self, rows: Tensor, keep: int) -> Part:
        """One image's tokens and its recovery map.

        Args:
            rows: X [n, d] in the compute dtype.
            keep: K of the image.
        """
        sizes = rows.norm(dim=1)
        chosen = outermost(rows, sizes, min(self.basis, len(rows)))
        errors = reconstruction_errors(rows, rows.index_select(0, chosen))
        ranked = steady(errors / sizes.amax().clamp_min(torch.finfo(sizes.dtype).tiny)).nan_to_num(
            nan=-1.0
        )
        order = ranked.argsort(descending=True, stable=True)[:keep]
        plain = order[~torch.isin(order, chosen)]  # kept and no basis token, best first
        absent = chosen[~torch.isin(chosen, order)]
        there = keep - len(plain)  # basis tokens that their error keeps
        moving = absent[: max(0, min(self.basis, keep // 2) - there)]
        slots = plain[len(plain) - len(moving) :].sort().values
        hosts = plain[: len(plain) - len(moving)].sort().values
        kept = order.sort().values
        hosts = hosts if len(hosts) else kept[~torch.isin(kept, slots)]
        return self._mapped(rows, kept, moving, slots, hosts)

    def _mapped(
        self, rows: Tensor, kept: Tensor, moving: Tensor, slots: Tensor, hosts: Tensor
    ) -> Part:
        """Basis tokens into their slots, dropped tokens into the mean of their nearest host."""
        dropped = others(kept, len(rows))
        ones = rows.new_ones(len(slots))
        if not len(dropped):
            return Part(kept, slots[:0], slots[:0], ones[:0])
        directions = unit(rows)
        _, owner = nearest(directions[dropped], directions[hosts])
        counts = ones.new_zeros(len(hosts)).index_add(0, owner, ones.new_ones(len(owner)))
        joined = counts.nonzero().flatten()
        mean = 1.0 / (1.0 + counts)
        entries = [
            (slots, moving, self.share * ones),
            (slots, slots, (1.0 - self.share) * ones),
            (hosts[joined], hosts[joined], mean[joined]),
            (hosts[owner], dropped, mean[owner]),
        ]
        target, source, weight = (torch.cat(column) for column in zip(*entries, strict=True))
        return Part(kept, torch.searchsorted(kept, target), source, weight)


@register_selector
@dataclass(frozen=True)
class ApET(_ApET):
    """One stage of ApET on what the vision tower hands to the projector.

    Models whose merger takes whole groups (Qwen), and boundaries inside the decoder: on the states,
    as ``apet-states``.
    """

    name: ClassVar[str] = "apet"
    query_aware: ClassVar[bool] = False
    needs: ClassVar[frozenset[str]] = frozenset({TOWER})
    about: ClassVar[About] = About(
        title="ApET",
        source="ApET: Approximation-Error Guided Token Compression for Efficient VLMs, CVPR 2026",
        acts="vision tower's output, before the projector, and before block 16",
        reads="vision tower: features before the projector (LLaVA); states (Qwen, and stage two)",
        merges=True,
        positions="packed",
        code="MaQianKun0/ApET",
        licence="MIT",
        budget="a layer average of both stages",
        notes=_NOTES,
        checked=(
            "errors are the ridge residual; those of basis tokens are zero",
            "K slots, ten of them basis, exact means",
            "both stages in tiny models",
        ),
    )

    def select(self, scene: Scene, keep: int) -> Selection:
        """Choose per image."""
        features = merges_features(scene)
        rows = checks.lift(scene.tower.features if features else scene.states, "rows")

        def choose(tokens: slice, budget: int) -> Part:
            return self.of_image(rows[tokens], budget)

        kept, merge = merged(scene, keep, choose, features)
        return Selection(kept, {}, merge=merge)


@register_selector
@dataclass(frozen=True)
class ApETStates(_ApET):
    """One stage of ApET on the states, at any boundary of any model."""

    name: ClassVar[str] = "apet-states"
    query_aware: ClassVar[bool] = False
    needs: ClassVar[frozenset[str]] = frozenset()
    about: ClassVar[About] = ApET.about._replace(
        title="ApET (on states)", acts="before block 16", reads="states"
    )

    def select(self, scene: Scene, keep: int) -> Selection:
        """Choose per image."""
        rows = checks.lift(scene.states, "states")

        def choose(tokens: slice, budget: int) -> Part:
            return self.of_image(rows[tokens], budget)

        kept, merge = merged(scene, keep, choose)
        return Selection(kept, {}, merge=merge)


@checks.full_precision
def reconstruction_errors(rows: Tensor, basis: Tensor) -> Tensor:
    """[n]: |x - x S^T (S S^T + ridge I)^-1 S|, the part of a token that the basis does not hold.

    Args:
        rows: X [n, d].
        basis: S [b, d].
    """
    _, sizes, axes = torch.linalg.svd(basis, full_matrices=False)
    held = (rows @ axes.mT) * (sizes.square() / (sizes.square() + RIDGE))
    errors: Tensor = torch.linalg.vector_norm(rows - held @ axes, dim=1)
    return errors


def recipe(depth: int) -> Recipe:
    """Both stages: three times the final K at the input, K at half the depth.

    Args:
        depth: L.
    """
    here = rescaled(BOUNDARIES, BLOCKS, depth)
    steps = (Step(here[0], "apet", Derived(through=FIRST)), Step(here[1], "apet-states", FINAL))
    note = (
        "apet's published names are layer averages: '192', '128' and '64' end with 96, 64 and 32 "
        "tokens; here K is behind the last stage"
    )
    return Recipe(steps, "merge", (note, *moved("apet", BOUNDARIES, BLOCKS, here)))


register_preset("apet", recipe)
single("apet-1", "apet", 0, "merge")
single("apet-l16", "apet-states", 16, "merge", rescaled=True)
