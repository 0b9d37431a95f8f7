"""A control plane in memory, on virtual time."""

from random import Random

import pytest

from lcm.control_plane.api.services import ControlPlane
from lcm.control_plane.store.memory import MemoryStore
from lcm.core.ids import RandomIds
from support.control_plane import control_plane_over
from support.virtual_time import VirtualClock


@pytest.fixture
def plane() -> ControlPlane:
    store = MemoryStore()
    return control_plane_over(
        store,
        clock=VirtualClock(),
        ids=RandomIds(Random(1)),
    )
