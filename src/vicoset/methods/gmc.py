"""The grounded message coreset: tokens that jointly cover what the prompt reads, sees and spans."""

from __future__ import annotations

import functools
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import torch
from torch import Tensor

from vicoset.core import messages
from vicoset.core.clients import Clients
from vicoset.core.coreset import Grounding, Population, Reading, clients_of, ground
from vicoset.core.coverage import bank_report, ratio
from vicoset.core.reach import smallest_support
from vicoset.core.settings import Settings
from vicoset.core.support import Support, select_support
from vicoset.errors import MethodError, SettingError
from vicoset.methods.base import (
    VIEWS,
    About,
    Scene,
    Selection,
    View,
    attention_of,
    check_finite,
    check_keep,
    check_views,
)
from vicoset.methods.covering import Target
from vicoset.methods.presets import single
from vicoset.methods.registry import register_selector

SWITCHES = ("message", "history", "appearance", "spatial")


@register_selector
@dataclass(frozen=True)
class GMC:
    """Grounded message coreset selection; its numbers are the scene's settings.

    The switches are interventions. One that is off takes its clients out of the objective and
    changes nothing else: head weights, the energy that masses follow and the other banks stay. Of
    the grounded views that are left, the others take the whole grounded mass, as they do where a
    boundary has no history.

    Attributes:
        message: clients of the current view.
        history: clients of the historical views.
        appearance: clients of the image's own variety.
        spatial: clients of its geometry.
        probe_rank: r, in place of the settings' number.
        probe_seed: of the probe, in place of the settings' number.
    """

    message: bool = True
    history: bool = True
    appearance: bool = True
    spatial: bool = True
    probe_rank: int | None = None
    probe_seed: int | None = None
    name: ClassVar[str] = "gmc"
    query_aware: ClassVar[bool] = True
    needs: ClassVar[frozenset[str]] = frozenset({VIEWS})
    about: ClassVar[About] = About(
        title="GMC",
        source="Grounded Message Coreset Pruning, the paper of this package",
        acts="before block 1, 2 or 16",
        reads="native attention and projected values of the current block and two before it, "
        "states, coordinates",
        merges=True,
        budget="tokens behind the boundary",
        notes=(
            "support by facility location over grounded, appearance and spatial clients; carriers "
            "by realiser transport",
            "docs/core.md lists the decisions that the paper leaves open",
            "images: the clients of all together, a carrier for each first",
        ),
        checked=(
            "core against an independent float64 implementation",
            "scenes in models against core, tensor by tensor",
        ),
    )

    def __post_init__(self) -> None:
        """Refuse numbers that no probe has, and an objective without clients."""
        self._numbers(Settings())
        for name in SWITCHES:
            if not isinstance(getattr(self, name), bool):
                raise SettingError(f"{name}={getattr(self, name)!r}; allowed are True and False.")
        if not any(getattr(self, name) for name in SWITCHES):
            raise SettingError(
                f"all of {', '.join(SWITCHES)} are off, so there is nothing to cover; leave one on."
            )

    def _numbers(self, settings: Settings) -> Settings:
        """The settings with this selector's own numbers in their place."""
        own: dict[str, Any] = {"probe_rank": self.probe_rank, "probe_seed": self.probe_seed}
        return replace(settings, **{k: v for k, v in own.items() if v is not None})

    def select(self, scene: Scene, keep: int) -> Selection:
        """Cover the grounded, appearance and spatial clients with ``keep`` tokens."""
        check_keep(scene, keep)
        grounding, clients = self.objective(scene)
        support = select_support(clients.matrix, keep, *_solver(scene))
        return _selection(scene, grounding, clients, support)

    def select_covering(self, scene: Scene, target: Target) -> Selection:
        """Cover a share of what all tokens cover, with as few of them as the solver needs."""
        check_keep(scene, target.high)
        grounding, clients = self.objective(scene)
        support, reached = smallest_support(
            clients.matrix, target.coverage, target.low, target.high, *_solver(scene)
        )
        found = _selection(scene, grounding, clients, support)
        return found._replace(
            evidence={**found.evidence, "target": target.coverage, "reached": reached}
        )

    def objective(self, scene: Scene) -> tuple[Grounding, Clients]:
        """How the prompt reads the image, and the client matrix that a support has to cover.

        Args:
            scene: with its views.
        """
        check_views(scene, self.name)
        scene = replace(scene, settings=self._numbers(scene.settings))
        readings = [reading_of(scene, view) for view in scene.views]
        check_finite({"states": scene.states, "coordinates": scene.coordinates})
        for view, reading in zip(scene.views, readings, strict=True):
            check_finite({f"{n} of block {view.block}": t for n, t in reading._asdict().items()})
        people = Population(scene.states, scene.coordinates, scene.image_ids, scene.images)
        grounding = ground(readings, scene.settings)
        scene.lap("message")
        return grounding, self._covered(people, grounding, scene.settings)

    def _covered(self, people: Population, grounding: Grounding, settings: Settings) -> Clients:
        """The clients that are switched on."""
        views = grounding.views if self.history else grounding.views[:1]
        changes: dict[str, Any] = {}
        if not self.message:
            views = views if len(views) > 1 else ()
            changes["current_mass"] = 0.0  # of several views: history takes it
        changes |= {f"{n}_mass": 0.0 for n in ("appearance", "spatial") if not getattr(self, n)}
        if not views and not (self.appearance or self.spatial):
            raise MethodError(
                "selector 'gmc' covers history alone here, and a boundary at block 0 has none; "
                "allowed are other switches there. Choose a later boundary."
            )
        return clients_of(people, grounding._replace(views=views), replace(settings, **changes))


def _solver(scene: Scene) -> tuple[Tensor, int, int, int, float]:
    """What the solver takes beside the matrix and K."""
    settings = scene.settings
    batch = settings.solver_batch(len(scene.states))
    temperature = settings.responsibility_temperature
    return scene.image_ids, scene.images, batch, settings.pool_factor, temperature


def _selection(scene: Scene, grounding: Grounding, clients: Clients, support: Support) -> Selection:
    evidence = _queries(scene)
    if scene.audited:
        evidence = {**_coverage(clients, support), **evidence}
    evidence["finite"] = torch.isfinite(scene.states).all() & support.cover.isfinite().all()
    return Selection(support.indices, evidence, grounding)


def reading_of(scene: Scene, view: View) -> Reading:
    """A [H, T, N] and Z [H, N, r] of a view."""
    settings = scene.settings
    probe = _probe(scene.states.shape[1], settings.probe_rank, settings.probe_seed)
    columns = view.output_probe(probe.to(view.values.device))
    return Reading(
        attention=attention_of(scene, view),
        messages=messages.message_coordinates(view.values, columns.to(view.values.device)),
    )


@functools.lru_cache(maxsize=8)
def _probe(width: int, rank: int, seed: int) -> Tensor:
    """P [d, r], the same tensor for all heads, views and samples of a model."""
    return messages.probe(width, rank, seed)


def _coverage(clients: Clients, support: Support) -> dict[str, Any]:
    """F(S), F(V), their ratio, c_B with its q_t, and the banks; tensors, so nothing waits."""
    report = bank_report(clients, support.cover)
    total = report.attainable.sum()
    return {
        "value": support.value,
        "total": total,
        "ratio": ratio(support.value, total),
        "certificate": support.certificate,
        "progress": support.progress,
        "start_value": support.start_value,
        "banks": report.names,
        "bank_numerator": report.covered,
        "bank_denominator": report.attainable,
        "bank_saturation": report.saturation,
        "bank_share": report.share,
        "bank_nominal": report.nominal,
        "bank_deployed": report.deployed,
        "bank_rows": report.rows,
        "bank_active": report.active,
    }


def _queries(scene: Scene) -> dict[str, Any]:
    """How many prompt rows were read, of how many, and whether ``max_queries`` bound."""
    read, potential = len(scene.queries), scene.potential_queries
    if potential is None and read < scene.settings.max_queries:
        potential = read
    found: dict[str, Any] = {"queries_read": read, "blocks": [view.block for view in scene.views]}
    if potential is not None:
        found |= {"queries_potential": potential, "queries_bounded": read < potential}
    return found


single("gmc-h1", "gmc", 1, "transport")
single("gmc-h2", "gmc", 2, "transport")
single("gmc-l16", "gmc", 16, "transport", rescaled=True)
