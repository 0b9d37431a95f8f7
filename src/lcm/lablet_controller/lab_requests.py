"""Carries out what people and the leak sweep request of labs: starts, stops, removals.

What the stop of a worker requests is begun here too, and carried out by `extraction.py`.

The requests are recorded on the labs, so that whichever instance leads goes on with them. Every change goes
through `gate.py`, which asks once more whether it is still right.
"""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import datetime
from typing import Final

import structlog

from lcm.cml.sessions import CmlServer
from lcm.core.clock import Clock
from lcm.core.health import Health
from lcm.domain.errors import Conflict, Fenced, LabRefused, LcmError, NotFound
from lcm.domain.lablet.listed_lab import LabAction, LabRequest
from lcm.domain.observation import Absent, Known
from lcm.domain.telemetry import LabRecord
from lcm.domain.worker import Worker
from lcm.lablet_controller.decisions import AT_REST, POLL_SECONDS, STUCK_SECONDS, is_usable
from lcm.lablet_controller.extraction import ConfigExtraction
from lcm.lablet_controller.gate import LabGate, RequestRefused
from lcm.lablet_controller.ports import CmlLabs, ControlPlane, ElementState
from lcm.lablet_controller.stats import Stats
from lcm.rest.lab_reports import LabGone, LabRequestOutcome

log = structlog.get_logger(__name__)

LOOK_SECONDS: Final = 3.0
LABS_AT_A_TIME: Final = 5
STEPS_AT_ONCE: Final = 6
"""Stop, wipe and delete follow each other at once if CML is quick."""
STOP_AGAIN_SECONDS: Final = 120.0
STOPS_AS_A_WHOLE: Final = 3
"""After so many requests the nodes of the lab are stopped one by one."""
STUCK_AFTER: Final = 3
"""After so many failures a removal is tried less often."""


@dataclass
class _Try:
    """How far this instance is with a request."""

    since: float
    next_at: float = 0.0
    failures: int = 0
    stops: int = 0
    stopped_at: float = float("-inf")


_Key = tuple[str, str, datetime]


@dataclass
class LabRequests:
    """For the time of one leadership."""

    control_plane: ControlPlane
    labs: CmlLabs
    gate: LabGate
    server_of: Callable[[Worker], CmlServer | None]
    clock: Clock
    health: Health
    stats: Stats
    action_timeout_seconds: float
    extraction: ConfigExtraction
    look_seconds: float = LOOK_SECONDS
    _tries: dict[_Key, _Try] = field(default_factory=dict)

    def reset(self) -> None:
        """Drop what an earlier leadership tried."""
        self._tries.clear()
        self.extraction.reset()

    async def run(self) -> None:
        try:
            async with asyncio.TaskGroup() as extractions:
                while True:
                    self.health.tick("lab-requests", self.look_seconds)
                    try:
                        await self.run_pass(extractions)
                    except Fenced:
                        raise
                    except LcmError as error:
                        log.warning("requests about labs not read", error=str(error))
                    await self.clock.sleep(self.look_seconds)
        finally:
            self.health.forget("lab-requests")

    async def run_pass(self, extractions: asyncio.TaskGroup) -> None:
        """Try every request whose time has come, a few at a time; begin what stops of workers wait for."""
        found = await self.control_plane.get_lab_work()
        self.extraction.begin(found.configs_wanted, extractions)
        labs = found.items
        work = {_key(lab, lab.request): lab for lab in labs if lab.request is not None}
        self._tries = {key: tried for key, tried in self._tries.items() if key in work}
        places = asyncio.Semaphore(LABS_AT_A_TIME)

        async def carry_out(key: _Key, lab: LabRecord) -> None:
            tried = self._tries.setdefault(key, _Try(self.clock.monotonic()))
            if self.clock.monotonic() < tried.next_at:
                return
            async with places:
                await self._try(lab, tried)

        async with asyncio.TaskGroup() as tasks:
            for key, lab in work.items():
                tasks.create_task(carry_out(key, lab))

    async def _try(self, lab: LabRecord, tried: _Try) -> None:
        assert lab.request is not None
        tried.next_at = self.clock.monotonic() + POLL_SECONDS
        try:
            server = await self._server(lab)
            if lab.request.action is LabAction.REMOVE:
                await self._remove(lab, server, tried)
            else:
                await self._switch(lab, lab.request.action, server)
        except Fenced:
            raise
        except RequestRefused as refused:
            await self._report(lab, str(refused), is_over=True)
        except Conflict as changed:
            log.info("request about lab decided again", lab_id=lab.lab_id, reason=str(changed))
        except LcmError as error:
            await self._note_failure(lab, tried, error)

    async def _server(self, lab: LabRecord) -> CmlServer:
        worker = await self.control_plane.fetch_single_resource(lab.worker_id)
        server = self.server_of(worker) if worker is not None and is_usable(worker) else None
        if server is None:
            raise NotFound("CML of the worker cannot be used now")
        return server

    async def _switch(self, lab: LabRecord, action: LabAction, server: CmlServer) -> None:
        if action is LabAction.START:
            await self.gate.start_unowned(lab, server)
        else:
            await self.gate.stop_unowned(lab, server)
        self.stats.labs["started" if action is LabAction.START else "stopped"] += 1
        await self._report(lab)

    async def _remove(self, lab: LabRecord, server: CmlServer, tried: _Try) -> None:
        """Stop, wipe and delete as far as CML has come, then prove that the lab is gone."""
        for _ in range(STEPS_AT_ONCE):
            seen = await self.labs.get_lab(server, lab.lab_id)
            if isinstance(seen, Absent):
                await self._report_gone(lab, server)
                return
            if not isinstance(seen, Known) or not await self._remove_further(lab, server, tried):
                return

    async def _remove_further(self, lab: LabRecord, server: CmlServer, tried: _Try) -> bool:
        """The next change; False if CML needs time."""
        nodes = await self.labs.nodes(server, lab.lab_id)
        running = [node.id for node in nodes if node.state not in AT_REST]
        if running:
            await self._stop(lab, server, running, tried)
            return False
        if any(node.state is ElementState.STOPPED for node in nodes):
            await self.gate.wipe_unowned(lab, server)
            return True
        await self.gate.delete_unowned(lab, server)
        return True

    async def _stop(self, lab: LabRecord, server: CmlServer, running: list[str], tried: _Try) -> None:
        now = self.clock.monotonic()
        if now - tried.stopped_at < STOP_AGAIN_SECONDS:
            return
        tried.stops, tried.stopped_at = tried.stops + 1, now
        if tried.stops <= STOPS_AS_A_WHOLE:
            await self.gate.stop_unowned(lab, server)
            return
        for node_id in running:
            await self.gate.stop_node_unowned(lab, server, node_id)

    async def _report_gone(self, lab: LabRecord, server: CmlServer) -> None:
        assert lab.request is not None
        gone = LabGone(instance_id=server.instance_id or "", asked_at=lab.request.asked_at)
        await self.control_plane.report_lab_gone(lab.worker_id, lab.lab_id, gone)
        self.stats.labs["removed"] += 1
        log.warning(
            "lab removed", worker_id=lab.worker_id, lab_id=lab.lab_id, title=lab.title, by=lab.request.by
        )

    async def _note_failure(self, lab: LabRecord, tried: _Try, error: LcmError) -> None:
        """A removal is tried for ever; a start or stop ends with what CML answers, or with its time."""
        assert lab.request is not None
        tried.failures += 1
        is_removal = lab.request.action is LabAction.REMOVE
        if is_removal and tried.failures >= STUCK_AFTER:
            tried.next_at = self.clock.monotonic() + STUCK_SECONDS
        is_late = self.clock.monotonic() - tried.since >= self.action_timeout_seconds
        is_over = not is_removal and (isinstance(error, LabRefused) or is_late)
        if is_over or (is_removal and str(error)[:1_000] != lab.request.error):
            await self._report(lab, str(error), is_over=is_over)

    async def _report(self, lab: LabRecord, error: str = "", *, is_over: bool = False) -> None:
        assert lab.request is not None
        outcome = LabRequestOutcome(asked_at=lab.request.asked_at, error=error[:1_000], is_over=is_over)
        await self.control_plane.report_lab_outcome(lab.worker_id, lab.lab_id, outcome)


def _key(lab: LabRecord, request: LabRequest) -> _Key:
    return lab.worker_id, lab.lab_id, request.asked_at
