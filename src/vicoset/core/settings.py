"""The numbers of the method, one name each; defaults from the paper (tab:cond-config)."""

from __future__ import annotations

import math
from dataclasses import dataclass, fields

from vicoset.errors import SettingError

ROW_MASSES = ("balanced", "uniform")


@dataclass(frozen=True)
class Settings:
    """Every constant of the grounded message coreset.

    Attributes:
        probe_rank: r, columns of the Gaussian-QR probe P.
        probe_seed: seed of the probe.
        max_queries: most prompt queries T that are read; the terminal one is always among them.
        terminal_weight: weight of the terminal query beside 1 for every other.
        current_mass: mass of the current view when there is history; the rest is history's.
        head_clusters: most clusters of heads.
        head_dispersion: added to a head's dispersion before it is inverted.
        row_mass: ``"balanced"`` weighs grounded rows by head and query, ``"uniform"`` alike.
        appearance_mass: nominal mass of the appearance bank.
        appearance_temperature: tau_v.
        spatial_mass: nominal mass of the spatial bank.
        spatial_temperature: tau_s, of spatial clients and of the assignment's spatial term.
        landmark_side: spatial landmarks per image side (16 x 16; 4 x 8 x 8 with a time axis).
        batch: b, tokens that enter together.
        pool_factor: candidates per entering token; the pool holds pool_factor * batch.
        responsibility_temperature: tau_r of the responsibility softmax.
        assignment_weight: weight of the spatial term of the assignment.
        assignment_margin: cosine margin under which a token counts as ambiguous.
        gate_scale: mean margin at which the sample gate s_x opens.
        gate_power: steepness of that gate.
        population_strength: alpha, how far masses may follow grounded energy.
        transport_strength: tau_j, 1 moves carriers all the way to their centroid, 0 leaves them.
        long_prefix: N above which the bounded settings below hold.
        long_dimensions: width of the Rademacher projection of appearance states.
        long_seed: seed of that projection.
        long_clients: most appearance clients.
        long_batch: b of the solver.
    """

    probe_rank: int = 4
    probe_seed: int = 0
    max_queries: int = 128
    terminal_weight: float = 2.0
    current_mass: float = 0.5
    head_clusters: int = 4
    head_dispersion: float = 0.05
    row_mass: str = "balanced"
    appearance_mass: float = 0.5
    appearance_temperature: float = 0.2
    spatial_mass: float = 0.25
    spatial_temperature: float = 0.02
    landmark_side: int = 16
    batch: int = 16
    pool_factor: int = 4
    responsibility_temperature: float = 0.1
    assignment_weight: float = 0.5
    assignment_margin: float = 0.05
    gate_scale: float = 0.08
    gate_power: float = 8.0
    population_strength: float = 0.5
    transport_strength: float = 1.0
    long_prefix: int = 4096
    long_dimensions: int = 128
    long_seed: int = 104729
    long_clients: int = 4096
    long_batch: int = 512

    def __post_init__(self) -> None:
        """Refuse values outside the range in which the method is defined."""
        if self.row_mass not in ROW_MASSES:
            raise SettingError(
                f"row_mass={self.row_mass!r}; allowed are {', '.join(map(repr, ROW_MASSES))}."
            )
        for field in fields(self):
            value = getattr(self, field.name)
            if field.name == "row_mass":
                continue
            low, high = _RANGES.get(field.name, (1, math.inf))
            if isinstance(value, bool) or not isinstance(value, (int, float)):
                raise SettingError(f"{field.name}={value!r}; allowed are numbers.")
            if isinstance(field.default, int) and not isinstance(value, int):
                raise SettingError(
                    f"{field.name}={value}; allowed are whole numbers from {low} on, as int. "
                    f"The paper's value is {field.default}."
                )
            if not low <= value <= high or math.isinf(value):
                raise SettingError(
                    f"{field.name}={value}; allowed are {low} to {high}. "
                    f"The paper's value is {field.default}."
                )

    def solver_batch(self, tokens: int) -> int:
        """The batch b for a population of N tokens."""
        return self.long_batch if tokens > self.long_prefix else self.batch


_TINY = 1e-6
_RANGES: dict[str, tuple[float, float]] = {
    "probe_seed": (0, math.inf),
    "terminal_weight": (_TINY, math.inf),
    "current_mass": (0.0, 1.0),
    "head_dispersion": (_TINY, math.inf),
    "appearance_mass": (0.0, math.inf),
    "appearance_temperature": (_TINY, math.inf),
    "spatial_mass": (0.0, math.inf),
    "spatial_temperature": (_TINY, math.inf),
    "responsibility_temperature": (_TINY, math.inf),
    "assignment_weight": (0.0, math.inf),
    "assignment_margin": (_TINY, math.inf),
    "gate_scale": (_TINY, math.inf),
    "gate_power": (_TINY, math.inf),
    "population_strength": (0.0, 1.0),
    "transport_strength": (0.0, 1.0),
    "long_seed": (0, math.inf),
}
