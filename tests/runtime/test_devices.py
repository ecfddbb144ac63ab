"""Decoders whose blocks are spread over devices: what meets is brought to one place.

Fake tensors stand for tensors of devices that this machine has not; mixing two devices raises.
"""

import pytest
import torch
from torch._subclasses.fake_tensor import FakeTensorMode

from vicoset.runtime.gather import Kept, gather_axis, gather_states

HERE, THERE = torch.device("cpu"), torch.device("xpu:0")
BATCH, LENGTH, LEFT, HEADS, WIDTH = 2, 9, 6, 4, 8


@pytest.fixture(autouse=True)
def devices():
    with FakeTensorMode():
        yield


def kept(device):
    index = torch.zeros(BATCH, LEFT, dtype=torch.long, device=device)
    return Kept(index, torch.ones(BATCH, LEFT, dtype=torch.bool, device=device))


def test_two_devices_do_not_mix():
    with pytest.raises(RuntimeError, match="two devices"):
        torch.ones(2, device=HERE) + torch.ones(2, device=THERE)


def test_gathers_happen_where_the_tensor_is():
    cache = torch.ones(BATCH, HEADS, LENGTH, WIDTH, device=THERE)
    assert gather_axis(cache, kept(HERE), 2, 0).device == THERE
    states = torch.ones(BATCH, LENGTH, WIDTH, device=THERE)
    assert gather_states(states, kept(HERE)).device == THERE
    seen = torch.ones(BATCH, LENGTH, device=THERE)
    assert gather_axis(seen, kept(HERE), 1, 0).device == THERE


def test_a_gather_behind_one_on_another_device():
    second = Kept(torch.zeros(BATCH, 3, dtype=torch.long, device=THERE), None)
    assert second.after(kept(HERE)).index.device == THERE
