"""The lablet controller as it is wired: elected, woken by the keys of sessions, one of several."""

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import timedelta
from typing import Any

from msgspec.structs import replace

from lcm.control_plane.replication.publisher import Publisher
from lcm.core.health import Health
from lcm.core.hosted_service import run_services
from lcm.core.kv.memory import MemoryKv
from lcm.core.telemetry import Telemetry
from lcm.domain.lablet.states import READY, RUNNING, TERMINATED, SessionStatus
from lcm.lablet_controller.admin import lablet_operations
from lcm.lablet_controller.main import LabletController, assemble_lablets, election_of
from lcm.lablet_controller.settings import LabletControllerSettings
from lcm.rest.lablet_client import LabletClient
from lcm.rest.schemas import LABLET_CONTROLLER
from support.asgi import request
from support.lablet_bench import LabletBench
from support.people import KEYS

SETTINGS = LabletControllerSettings()


class Site(LabletBench):
    """Controllers that run, beside a publisher of the keys that wake them."""

    @asynccontextmanager
    async def running(self, controllers: int = 1, **booking: Any) -> AsyncIterator["Site"]:
        await self.open(**booking)
        self.kv = MemoryKv(self.clock, self.ids)
        publisher = Publisher(self.store, self.kv, clock=self.clock, health=Health(self.clock))
        self.records.sessions.subscribe(publisher.on_session_commit)
        self.controllers = [self._controller(f"c{number}") for number in range(controllers)]
        services = [controller.service for controller in self.controllers]
        async with asyncio.TaskGroup() as tasks:
            task = tasks.create_task(run_services(self.kv, publisher, *services))
            yield self
            task.cancel()

    def _controller(self, name: str) -> LabletController:
        telemetry, health = Telemetry(), Health(self.clock)
        election = election_of(
            SETTINGS, self.kv, clock=self.clock, telemetry=telemetry, health=health, instance_id=name
        )
        client = LabletClient(self, KEYS.controller, LABLET_CONTROLLER, lambda: election.epoch)
        return assemble_lablets(
            SETTINGS,
            election,
            control_plane=client,
            labs=self.labs,
            kv=self.kv,
            clock=self.clock,
            telemetry=telemetry,
            health=health,
        )

    async def until(self, status: SessionStatus, *, within: float = 300) -> float:
        """Wait for a status; return after how many seconds."""
        since = self.clock.monotonic()
        while (await self.session()).status is not status:
            assert self.clock.monotonic() - since < within, (await self.session()).status
            await self.clock.sleep(0.1)
        return self.clock.monotonic() - since

    async def ask(self, controller: LabletController, path: str) -> Any:
        service = controller.service
        operations = lablet_operations(
            service, controller.stats, service.loop.health, service.loop.telemetry, KEYS.controller
        )
        _, body = await request(operations.app(), "GET", path, {"X-API-Key": KEYS.controller}, None)
        return json.loads(body)


async def test_an_end_is_carried_out_when_its_key_changes_not_at_the_next_poll() -> None:
    async with Site().running() as site:
        await site.until(RUNNING)
        [controller] = site.controllers
        health = await site.ask(controller, "/health")
        assert (health["instances_managed"], health["instances_running"]) == (1, 1)
        await site.clock.sleep(10)
        await site.end()
        await site.clock.sleep(0.5)
        assert (await site.session()).end_reason is not None
        assert (await site.session()).status != RUNNING
        assert await site.until(TERMINATED) < 30
        stats = await site.ask(controller, "/admin/stats")
        assert (stats["labs_imported"], stats["labs_started"], stats["labs_deleted"]) == (1, 1, 1)
        assert (site.titles(), stats["instances_managed"]) == ([], 0)


async def test_of_two_controllers_one_leads_and_the_other_finishes_its_work() -> None:
    async with Site().running(controllers=2) as site:
        await site.until(RUNNING)
        [leader] = [each for each in site.controllers if each.service.election.is_leader]
        leader.service.election.resign()
        await site.clock.sleep(1)
        await site.end()
        await site.until(TERMINATED)
        assert (site.titles(), (await site.worker()).claims) == ([], ())
        names = [name for name, _ in site.labs.calls]
        assert (names.count("import_lab"), names.count("delete_lab")) == (1, 1)


async def test_a_booked_session_runs_exactly_when_its_timeslot_begins() -> None:
    site = Site()
    async with site.running(timeslot=site.slot(in_minutes=20)):
        await site.until(READY, within=1_000)
        await site.until(RUNNING, within=1_000)
        session = await site.session()
        assert session.started_at is not None
        assert session.timeslot is not None
        assert timedelta() <= session.started_at - session.timeslot.start < timedelta(seconds=0.5)


async def test_a_worker_that_is_lost_gives_its_session_back_to_the_scheduler() -> None:
    async with Site().running() as site:
        await site.until(RUNNING)
        await site.change_worker(lambda worker: replace(worker, status="terminated", claims=()))
        await site.until(SessionStatus.PENDING_SCHEDULING, within=90)
