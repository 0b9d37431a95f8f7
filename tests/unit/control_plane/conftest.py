"""A control plane in memory, on virtual time."""

from random import Random

import pytest

from lcm.control_plane.access.sealing import SecretBox
from lcm.control_plane.access.secrets import Vault
from lcm.control_plane.context import ControlPlane
from lcm.control_plane.store.memory import MemoryStore
from lcm.core.ids import RandomIds
from support.virtual_time import VirtualClock


@pytest.fixture
def plane() -> ControlPlane:
    store = MemoryStore()
    return ControlPlane.over(
        store,
        clock=VirtualClock(),
        ids=RandomIds(Random(1)),
        regions=("us-east-1",),
        default_region="us-east-1",
        vault=Vault(store, SecretBox.of(bytes(32))),
    )
