"""A control plane in memory, on virtual time."""

from random import Random

import pytest

from lcm.control_plane.context import ControlPlane
from lcm.control_plane.store.memory import MemoryStore
from lcm.control_plane.templates import Templates
from lcm.control_plane.workers import Workers
from lcm.core.chance import RandomIds
from lcm.simulator.virtual_time import VirtualClock


@pytest.fixture
def plane() -> ControlPlane:
    store = MemoryStore()
    return ControlPlane(
        store,
        Workers(store),
        Templates(store),
        VirtualClock(),
        RandomIds(Random(1)),
        ("us-east-1",),
        "us-east-1",
    )
