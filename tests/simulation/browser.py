"""A browser that follows the event stream: its copy must become equal to the records (I14)."""

import asyncio
import json
from typing import Any, Final

from lcm.control_plane.streaming.encoding import EventFilter
from lcm.core.timeouts import timeout
from lcm.domain.lifecycle import TERMINATED
from lcm.rest.schemas import WorkerView
from simulation.world.calls import Violation
from simulation.world.world import World

FIRST: Final = ("reset", "connected", "worker.snapshot", "lablet.sessions.snapshot")
"""What a stream begins with, all of it under the id of the newest event."""


class Browser:
    """Reconnects whenever the control plane goes away, with the last event id."""

    def __init__(self, world: World) -> None:
        self._world = world
        self.replica: dict[str, dict[str, Any]] = {}
        self._last_id: str | None = None

    async def run(self) -> None:
        while True:
            plane = self._world.plane
            if plane.parts is None or not plane.is_alive:
                await self._world.clock.sleep(1.0)
                continue
            incarnation = plane.incarnation
            chunks = plane.parts.hub.stream(self._last_id, EventFilter(is_batched=True))
            while plane.incarnation == incarnation and plane.is_alive:
                try:
                    async with timeout(1.5 * self._world.knobs.heartbeat_seconds):
                        chunk = await anext(chunks)
                except (TimeoutError, StopAsyncIteration):
                    break
                except BaseException as error:
                    if isinstance(error, asyncio.CancelledError):
                        raise
                    break  # the snapshot could not be read: the connection broke
                if plane.incarnation == incarnation:
                    self._take(chunk)

    def _take(self, chunk: bytes) -> None:
        for part in chunk.decode().split("\n\n"):
            if part:
                fields = dict(line.split(": ", 1) for line in part.splitlines())
                self._apply(fields["event"], json.loads(fields["data"]), fields.get("id"))

    def _apply(self, event: str, data: dict[str, Any], event_id: str | None) -> None:
        if event in ("reset", "connected") and (event == "reset" or self._last_id is None):
            self.replica.clear()
        if event_id is not None:
            self._require_growing(event_id, fresh=event in FIRST)
            self._last_id = event_id
        for watch in self._world.on_event:
            watch(event, data)
        worker = data.get("worker")
        if worker is not None:
            known = self.replica.get(worker["id"])
            if known is None or worker["version"] >= known["version"]:
                self.replica[worker["id"]] = worker

    def _require_growing(self, event_id: str, *, fresh: bool) -> None:
        boot, _, number = event_id.rpartition("-")
        last_boot, _, last = (self._last_id or "").rpartition("-")
        if boot == last_boot and (int(number) < int(last) or (int(number) == int(last) and not fresh)):
            self._world.fail(Violation("I14Monotonic", f"event {event_id} after {self._last_id}"))

    def differences(self) -> list[str]:
        """Live workers whose copy differs from the record."""
        wrong = []
        for worker in self._world.disk.peek_all():
            if worker.status is not TERMINATED:
                copy = self.replica.get(worker.id)
                truth = WorkerView.of(worker)
                if copy is None or (copy["version"], copy["status"]) != (truth.version, truth.status.value):
                    wrong.append(f"{worker.name}: {copy and copy['version']} instead of {truth.version}")
        return wrong
