"""The numbers of the method, and what they may be."""

import math
from dataclasses import FrozenInstanceError, fields

import pytest

from tests.core.helpers import refused
from vicoset.core.settings import Settings
from vicoset.errors import SettingError

PAPER = {
    "probe_rank": 4,
    "probe_seed": 0,
    "max_queries": 128,
    "terminal_weight": 2.0,
    "current_mass": 0.5,
    "head_clusters": 4,
    "head_dispersion": 0.05,
    "row_mass": "balanced",
    "appearance_mass": 0.5,
    "appearance_temperature": 0.2,
    "spatial_mass": 0.25,
    "spatial_temperature": 0.02,
    "landmark_side": 16,
    "batch": 16,
    "pool_factor": 4,
    "responsibility_temperature": 0.1,
    "assignment_weight": 0.5,
    "assignment_margin": 0.05,
    "gate_scale": 0.08,
    "gate_power": 8.0,
    "population_strength": 0.5,
    "transport_strength": 1.0,
    "long_prefix": 4096,
    "long_dimensions": 128,
    "long_seed": 104729,
    "long_clients": 4096,
    "long_batch": 512,
}
NUMBERS = [name for name in PAPER if name != "row_mass"]
COUNTS = [name for name in NUMBERS if isinstance(PAPER[name], int)]


def test_the_defaults_are_the_papers():
    assert {field.name: getattr(Settings(), field.name) for field in fields(Settings)} == PAPER


def test_settings_are_frozen():
    with pytest.raises(FrozenInstanceError):
        Settings().batch = 8


@pytest.mark.parametrize("name", NUMBERS)
@pytest.mark.parametrize("value", [-1, -1e-9, math.nan, math.inf, -math.inf])
def test_numbers_outside_their_range_are_refused(name, value):
    with refused(SettingError, f"{name}={value}", "allowed are", f"value is {PAPER[name]}"):
        Settings(**{name: value})


@pytest.mark.parametrize("name", NUMBERS)
@pytest.mark.parametrize("value", [True, None, "4", [4]])
def test_what_is_no_number_is_refused(name, value):
    with refused(SettingError, f"{name}={value!r}", "allowed are numbers"):
        Settings(**{name: value})


@pytest.mark.parametrize("name", COUNTS)
@pytest.mark.parametrize("value", [1.5, 16.0])
def test_counts_and_seeds_are_whole_numbers(name, value):
    with refused(SettingError, f"{name}={value}", "whole numbers", f"value is {PAPER[name]}"):
        Settings(**{name: value})


@pytest.mark.parametrize("name", [n for n in NUMBERS if not n.endswith("seed")])
def test_what_is_divided_by_or_counted_is_not_zero(name):
    if name in ("current_mass", "appearance_mass", "spatial_mass", "assignment_weight"):
        Settings(**{name: 0.0})
    elif name in ("population_strength", "transport_strength"):
        Settings(**{name: 0.0})
        with refused(SettingError, f"{name}=1.01", "0.0 to 1.0"):
            Settings(**{name: 1.01})
    else:
        with refused(SettingError, f"{name}=0", "allowed are"):
            Settings(**{name: 0})


@pytest.mark.parametrize("value", ["even", "Balanced", "", None, 1])
def test_an_unknown_row_mass_is_refused(value):
    with refused(SettingError, f"row_mass={value!r}", "'balanced', 'uniform'"):
        Settings(row_mass=value)


def test_the_solver_batch_follows_the_prefix():
    settings = Settings(batch=3, long_batch=7, long_prefix=100)
    assert [settings.solver_batch(n) for n in (1, 100, 101)] == [3, 3, 7]
    assert [Settings().solver_batch(n) for n in (4096, 4097)] == [16, 512]
