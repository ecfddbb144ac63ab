"""One deterministic, offline, single-threaded setting for every test."""

import os

os.environ["HF_HUB_OFFLINE"] = "1"  # read once, when transformers is imported

import pytest
import torch
from hypothesis import settings

settings.register_profile(
    "default", derandomize=True, deadline=None, max_examples=200, print_blob=True
)
settings.register_profile("thorough", settings.get_profile("default"), max_examples=2000)
settings.load_profile(os.environ.get("VICOSET_HYPOTHESIS_PROFILE", "default"))

torch.set_num_threads(1)
torch.use_deterministic_algorithms(True)


def pytest_runtest_setup(item: pytest.Item) -> None:
    """Seed torch, so that no test depends on those that ran before it."""
    torch.manual_seed(0)
