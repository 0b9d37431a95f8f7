"""What the routes work with; main.py puts it together."""

from dataclasses import dataclass

from lcm.control_plane.access.identity import Identity
from lcm.control_plane.policies import Policies
from lcm.control_plane.records.groups import Caches, Records
from lcm.control_plane.replication.feed import Feed
from lcm.control_plane.streaming.hub import EventHub


@dataclass(frozen=True)
class ControlPlane:
    """The groups from which a route gives each command and query what it names."""

    records: Records
    caches: Caches
    policies: Policies
    feed: Feed
    """What is committed and reported here, for the other control planes."""


@dataclass(frozen=True)
class Services:
    """Everything the routes use, on the application's state."""

    control_plane: ControlPlane
    hub: EventHub
    identity: Identity
