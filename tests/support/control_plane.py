"""A control plane without HTTP, event stream or publisher."""

from lcm.control_plane.access.sealing import SecretBox
from lcm.control_plane.access.secrets import SecretStore
from lcm.control_plane.api.services import ControlPlane
from lcm.control_plane.main import build_control_plane, subscribe
from lcm.control_plane.policies import Policies
from lcm.control_plane.replication.publisher import Publisher
from lcm.control_plane.store.port import Store
from lcm.core.clock import Clock
from lcm.core.ids import Ids

ONE_REGION = Policies(regions=("us-east-1",), default_region="us-east-1")


def control_plane_over(
    store: Store,
    *,
    clock: Clock,
    ids: Ids,
    policies: Policies = ONE_REGION,
    publisher: Publisher | None = None,
) -> ControlPlane:
    """Return the groups over a store, subscribed to each other and, if given, to a publisher."""
    secrets = SecretStore(store, SecretBox.of(bytes(32)))
    plane = build_control_plane(store, secrets=secrets, policies=policies, clock=clock, ids=ids)
    subscribe(plane, publisher=publisher)
    return plane
