"""Decisions: what compression does to the ranking of the next token under a shared history.

``full``, ``compact`` and ``null`` are the logits [..., V] of the uncompressed model, of the compact
run and of a model without the image, all in front of the same text.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor

from vicoset.audit.checks import Check, check
from vicoset.core.bounds import (
    Inequality,
    flip_risk,
    margin_lemma,
    observed_no_flip,
    pair_stability,
)
from vicoset.core.bounds.decision import centred_distortion, winner_candidates

TOP = 32
EPSILON = 1e-8  # eq:cond-vie


class Prior(NamedTuple):
    """What needs a model without the image.

    Attributes:
        token: the null's winner.
        vie: visual-innovation error.
        innovation: ||W^(1/2) nu^F||, what the image does to Full's ranking.
        candidates: |C|, the anti-prior set.
        distortion: d_C on that set.
        escape: whether the compact winner lies outside of it.
    """

    token: int
    vie: float
    innovation: float
    candidates: int
    distortion: float
    escape: bool


@dataclass(frozen=True)
class Decision:
    """One position of an answer.

    Attributes:
        position: t, 0 for the decision at the end of the prompt.
        token: Full's winner.
        compact_token: the compact run's.
        prior: what is related to a model without the image; None without one.
        ratio: rho of the no-flip certificate; inf where two tokens share Full's top.
        margin: Gamma, Full's lead over the second token of the vocabulary.
        distortion: D on the winners' set, Top_32 of Full and of the compact run.
        certified: whether rho < 1 by more than rounding, so that the winner cannot have changed.
        checks: the statements that were looked at.
    """

    position: int
    token: int
    compact_token: int
    prior: Prior | None
    ratio: float
    margin: float
    distortion: float
    certified: bool
    checks: tuple[Check, ...]

    @property
    def flip(self) -> bool:
        """Whether the winner changed."""
        return self.token != self.compact_token


def anti_prior_candidates(full: Tensor, null: Tensor, top: int = TOP) -> Tensor:
    """C^AP [..., V] bool: the ``top`` tokens of Full and of the null (eq:cond-vie-candidates).

    The set is fixed before the compact logits are looked at.
    """
    return winner_candidates(full, null, top)


def centred(logits: Tensor, candidates: Tensor) -> Tensor:
    """H_C z: the logits minus their mean over the candidates, 0 elsewhere, [..., V]."""
    count = candidates.sum(-1, keepdim=True)
    mean = torch.where(candidates, logits, 0.0).sum(-1, keepdim=True) / count
    return torch.where(candidates, logits - mean, 0.0)


def anti_prior_weights(full: Tensor, null: Tensor, candidates: Tensor) -> Tensor:
    """The diagonal of W_F0 on the candidates, 0 elsewhere, [..., V] (eq:cond-vie-weights)."""
    a, b = centred(full, candidates), centred(null, candidates)
    weights = 1.0 + torch.sigmoid(-a * b) * (a - b).abs()
    return torch.where(candidates, weights, 0.0)


def innovation_error(
    full: Tensor, compact: Tensor, null: Tensor, top: int = TOP
) -> tuple[Tensor, Tensor]:
    """VIE [...] and its denominator ||W^(1/2) nu^F|| [...] before the floor (eq:cond-vie)."""
    candidates = anti_prior_candidates(full, null, top)
    root = anti_prior_weights(full, null, candidates).sqrt()
    image = torch.linalg.vector_norm(root * centred(full - null, candidates), dim=-1)
    change = torch.linalg.vector_norm(root * centred(full - compact, candidates), dim=-1)
    return change / image.clamp_min(EPSILON), image


def decision(
    position: int, full: Tensor, compact: Tensor, null: Tensor | None = None, top: int = TOP
) -> Decision:
    """Everything about one position, in float64.

    Args:
        position: t.
        full: [V].
        compact: [V].
        null: [V], or None.
        top: how many candidates each side brings.
    """
    full, compact = full.double(), compact.double()
    winners = winner_candidates(full, compact, top)
    certificate = observed_no_flip(full, compact, winners)
    listed = winners.nonzero()[:, 0]
    checks = [
        check("margins move by at most sqrt(2) D", margin_lemma(full[listed], compact[listed])),
        check("certified pairs keep their order", pair_stability(full[listed], compact[listed])),
        check("certified winners do not flip", certificate),
    ]
    prior = None
    if null is not None:
        prior, risk = _prior(full, compact, null.double(), top)
        checks.append(check("a flip is an escape or a thin margin", risk))
    return Decision(
        position=position,
        token=int(full.argmax()),
        compact_token=int(compact.argmax()),
        prior=prior,
        ratio=float(certificate.terms["rho"]),
        margin=float(certificate.terms["margin"]),
        distortion=float(certificate.terms["distortion"]),
        certified=bool(certificate.lhs),
        checks=tuple(checks),
    )


def _prior(full: Tensor, compact: Tensor, null: Tensor, top: int) -> tuple[Prior, Inequality]:
    candidates = anti_prior_candidates(full, null, top)
    vie, innovation = innovation_error(full, compact, null, top)
    distortion = float(centred_distortion(full, compact, candidates))
    # Any threshold will do; just above d_C it says most.
    risk = flip_risk(full, compact, candidates, 1.0625 * distortion + EPSILON)
    found = Prior(
        token=int(null.argmax()),
        vie=float(vie),
        innovation=float(innovation),
        candidates=int(candidates.sum()),
        distortion=distortion,
        escape=not bool(candidates[compact.argmax()]),
    )
    return found, risk
