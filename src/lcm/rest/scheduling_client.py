"""What the resource scheduler reads of the control plane and requests from it."""

from collections.abc import Sequence

import msgspec

from lcm.domain.lablet.decision import DecisionRecord
from lcm.domain.lablet.snapshot import Snapshot
from lcm.domain.worker import Worker
from lcm.rest.client import ControlPlaneClient
from lcm.rest.lablets import (
    PlacementOrder,
    PlacementOrders,
    PlacementResult,
    PlacementResults,
    SessionRejected,
    Waiting,
    WaitingReport,
    WindowsMoved,
)
from lcm.rest.scheduling import PlacementReport
from lcm.rest.schemas import ScaleUpRequest, WorkerRecords


class SchedulingClient(ControlPlaneClient):
    """The client of the resource scheduler."""

    _known: Snapshot | None = None

    async def get_snapshot(self) -> Snapshot:
        """The one before, if nothing has changed since."""
        known = self._known
        tag = {"If-None-Match": f'"{known.revision}"'} if known is not None else {}
        body = await self._call("GET", "/scheduling/snapshot", headers=tag)
        if known is not None and not body:
            return known
        self._known = found = _snapshot.decode(body)
        return found

    async def schedule(self, orders: Sequence[PlacementOrder]) -> tuple[PlacementResult, ...]:
        body = await self._call("POST", "/lablet-sessions/schedule", PlacementOrders(orders=tuple(orders)))
        return msgspec.json.decode(body, type=PlacementResults).results

    async def report_waiting(self, items: Sequence[Waiting]) -> None:
        await self._call("POST", "/lablet-sessions/waiting", WaitingReport(items=tuple(items)))

    async def reject(self, session_id: str, reason: str) -> None:
        await self._call("POST", f"/lablet-sessions/{session_id}/reject", SessionRejected(reason=reason))

    async def move_windows(self) -> WindowsMoved:
        body = await self._call("POST", "/lablet-sessions/move-windows")
        return msgspec.json.decode(body, type=WindowsMoved)

    async def report_placements(self, items: Sequence[DecisionRecord]) -> None:
        await self._call("POST", "/placements", PlacementReport(items=tuple(items)))

    async def scale_up(self, request: ScaleUpRequest) -> list[Worker]:
        body = await self._call("POST", "/workers/scale-up", request)
        return msgspec.json.decode(body, type=WorkerRecords).items

    async def start_worker(self, worker_id: str) -> None:
        await self._call("POST", f"/workers/{worker_id}/start")

    async def cancel_drain(self, worker_id: str) -> None:
        await self._call("POST", f"/workers/{worker_id}/cancel-drain")


_snapshot = msgspec.json.Decoder(Snapshot)
