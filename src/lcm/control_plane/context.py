"""What commands and queries work with; made once in main.py and passed in."""

from dataclasses import dataclass

from lcm.control_plane.store.port import Store
from lcm.control_plane.templates import Templates
from lcm.control_plane.vault import Vault
from lcm.control_plane.workers import Workers
from lcm.core.chance import Ids
from lcm.core.clock import Clock


@dataclass(frozen=True)
class ControlPlane:
    """The records, the time, and what is configured."""

    store: Store
    workers: Workers
    templates: Templates
    clock: Clock
    ids: Ids
    regions: tuple[str, ...]
    default_region: str
    vault: Vault
