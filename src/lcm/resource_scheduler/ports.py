"""What the scheduler needs from outside."""

from collections.abc import Sequence
from typing import Protocol

from lcm.domain.lablet.decision import DecisionRecord
from lcm.domain.lablet.snapshot import Snapshot
from lcm.domain.worker import Worker
from lcm.rest.lablets import PlacementOrder, PlacementResult, Waiting, WindowsMoved
from lcm.rest.schemas import ScaleUpRequest


class ControlPlane(Protocol):
    """The records and the requests; every write carries the leader's epoch."""

    async def claim_leadership(self, cluster_id: str, revision: int, instance_id: str) -> int: ...

    async def get_snapshot(self) -> Snapshot: ...

    async def schedule(self, orders: Sequence[PlacementOrder]) -> tuple[PlacementResult, ...]: ...

    async def report_waiting(self, items: Sequence[Waiting]) -> None: ...

    async def reject(self, session_id: str, reason: str) -> None: ...

    async def move_windows(self) -> WindowsMoved: ...

    async def scale_up(self, request: ScaleUpRequest) -> list[Worker]: ...

    async def report_placements(self, items: Sequence[DecisionRecord]) -> None: ...

    async def start_worker(self, worker_id: str) -> None: ...

    async def cancel_drain(self, worker_id: str) -> None: ...
