"""The optimiser: Muon for the matrices of the blocks, AdamW for the rest."""

from __future__ import annotations

from typing import Any

import torch

LOUD = 5.0  # biases of queries and keys learn this many times faster
MATRIX, REST = 0.01, 2e-3  # learning rates


class Optimiser:
    """Both optimisers as one.

    Attributes:
        parts: Muon and AdamW.
    """

    def __init__(self, model: Any, more: tuple[torch.nn.Parameter, ...] = ()) -> None:
        matrices, loud, rest = [], [], [*more]
        for name, value in model.named_parameters():
            if not value.requires_grad:
                continue
            block = ".layers." in name or ".blocks." in name
            if block and value.dim() == 2:
                matrices.append(value)
            elif name.endswith(("q_proj.bias", "k_proj.bias")):
                loud.append(value)
            else:
                rest.append(value)
        groups: list[dict[str, Any]] = [
            {"params": rest, "scale": 1.0},
            {"params": loud, "scale": LOUD},
        ]
        groups = [group for group in groups if group["params"]]
        self.parts: tuple[torch.optim.Optimizer, ...] = (
            torch.optim.Muon(matrices, lr=MATRIX, momentum=0.95, weight_decay=0.0),
            torch.optim.AdamW(groups, lr=REST, betas=(0.9, 0.97), weight_decay=0.0, fused=True),
        )

    def step(self, share: float) -> None:
        """Apply the gradients and forget them.

        Args:
            share: of the learning rates.
        """
        for part, rate in zip(self.parts, (MATRIX, REST), strict=True):
            for group in part.param_groups:
                group["lr"] = rate * share * group.get("scale", 1.0)
            part.step()
            part.zero_grad(set_to_none=True)

    def state(self) -> list[dict[str, Any]]:
        """What a checkpoint needs."""
        return [part.state_dict() for part in self.parts]

    def load(self, state: list[dict[str, Any]]) -> None:
        """Go on where a checkpoint stopped.

        Args:
            state: from ``state()``.
        """
        for part, kept in zip(self.parts, state, strict=True):
            part.load_state_dict(kept)


def share_of(step: int, steps: int, warm: int = 30, tail: float = 0.0, last: float = 0.0) -> float:
    """Share of the learning rate: rises over the first steps, falls over the last ones.

    Args:
        step: from 0 on.
        steps: of the phase.
        warm: steps of the rise.
        tail: part of the phase in which it falls.
        last: what it falls to.
    """
    rise = min(1.0, (step + 1) / warm)
    fall = min(1.0, (steps - step) / (tail * steps)) if tail else 1.0
    return rise * (last + (1 - last) * fall)
