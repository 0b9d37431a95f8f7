"""The newest epoch of each service, in memory: a check that costs no store call.

Records are protected by the fence inside their own commit. This check is for what is never
committed: samples by the hundred a second.
"""

from collections.abc import Callable
from datetime import datetime

import msgspec

from lcm.control_plane.store.port import Fence, Store
from lcm.domain.errors import Fenced
from lcm.domain.idle import ControllerTerms


class Leadership(msgspec.Struct, frozen=True, kw_only=True):
    """The leader of a service, and the newest claimed election of each coordination store."""

    cluster_id: str
    instance_id: str
    newest_elections: dict[str, int] = {}
    terms: ControllerTerms | None = None
    """What the leader stated when it claimed its epoch."""
    since: datetime | None = None
    """When it claimed its epoch; None if an older version granted it."""


class Epochs:
    """The control plane grants every epoch, so it knows the newest without a read.

    With several control planes each receives the grants of the others; without their feed it reads the store.
    """

    def __init__(self, store: Store) -> None:
        self._store = store
        self._newest: dict[tuple[str, str], int] = {}
        self._listeners: list[Callable[[Fence], None]] = []
        self.disconnected_peers: set[str] = set()
        """Control planes that may have granted an epoch which is not known here."""

    def subscribe(self, listener: Callable[[Fence], None]) -> None:
        self._listeners.append(listener)

    def granted(self, fence: Fence) -> None:
        self._newest[fence.kind, fence.id] = fence.version
        for listener in self._listeners:
            listener(fence)

    def learn(self, fence: Fence) -> None:
        """Take over an epoch that another control plane granted."""
        if fence.version > self._newest.get((fence.kind, fence.id), 0):
            self._newest[fence.kind, fence.id] = fence.version

    def invalidate(self, fence: Fence) -> None:
        """Forget the newest epoch: the next is being claimed, and its confirmation may get lost."""
        self._newest.pop((fence.kind, fence.id), None)

    def invalidate_all(self) -> None:
        self._newest.clear()

    async def require_newest(self, fence: Fence) -> None:
        """Raise Fenced for any epoch but the newest. Only an unknown epoch costs a read."""
        if not self.disconnected_peers and self._newest.get((fence.kind, fence.id)) == fence.version:
            return
        document = await self._store.get(fence.kind, fence.id)
        if document is None or document.version != fence.version:
            raise Fenced("a newer leader exists; stop acting and campaign again")
        self._newest[fence.kind, fence.id] = fence.version
