"""The lablet controller as it is wired: elected, woken by the keys of sessions, one of several."""

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import datetime, timedelta
from typing import Any

from msgspec.structs import replace

from lcm.control_plane.commands.claim_leadership import claim_leadership, fence_for
from lcm.core.health import Health
from lcm.core.hosted_service import run_services
from lcm.core.telemetry import Telemetry
from lcm.domain.lablet.states import (
    FAILED,
    INSTANTIATING,
    PENDING_SCHEDULING,
    READY,
    RUNNING,
    TERMINATED,
    SessionStatus,
)
from lcm.domain.launch import WorkerId
from lcm.domain.telemetry import LabChange
from lcm.lablet_controller.admin import lablet_operations
from lcm.lablet_controller.main import LabletController, assemble_lablets, election_of
from lcm.lablet_controller.settings import LabletControllerSettings
from lcm.rest.lablet_client import LabletClient
from lcm.rest.plane_clock import PlaneClock
from lcm.rest.schemas import LABLET_CONTROLLER, LeadershipClaim
from lcm.simulator.cml.lab import Lab
from lcm.simulator.cml.topology import import_file, read_file
from lcm.web.operations import KeyCheck, MetricsPage
from support.asgi import request
from support.lablet_bench import LAB, LabletBench
from support.people import KEYS

WORKERS = "worker-controller"
SETTINGS = LabletControllerSettings()


class Site(LabletBench):
    """Controllers that run, beside the publisher of the keys that wake them."""

    is_followed = True
    """Whether a worker controller reports the events of labs."""

    @asynccontextmanager
    async def running(self, controllers: int = 1, **booking: Any) -> AsyncIterator["Site"]:
        await self.open(**booking)
        self.controllers = [self._controller(f"c{number}") for number in range(controllers)]
        services = [controller.service for controller in self.controllers]
        async with asyncio.TaskGroup() as tasks:
            running = [tasks.create_task(run_services(self.kv, self.parts.publisher, *services))]
            if self.is_followed:
                running.append(tasks.create_task(self._report_labs()))
            yield self
            for task in running:
                task.cancel()

    async def _report_labs(self) -> None:
        """As the worker controller does: each change of a node, and labs that are deleted."""
        claim = LeadershipClaim(service=WORKERS, cluster_id="etcd", revision=1, instance_id="w")
        fence = fence_for(WORKERS, (await claim_leadership(self.records, claim)).epoch)
        known: dict[str, dict[str, str]] = {}
        while True:
            now = self.clock.now()
            self.cml.labs.advance(now.timestamp())
            seen = {
                lab.id: {node.id: str(node.state) for node in lab.nodes.values()}
                for lab in self.cml.labs.all()
            }
            for lab_id in known.keys() | seen.keys():
                changed = seen.get(lab_id, {}).items() - known.get(lab_id, {}).items()
                changes = [_change(lab_id, "node", node_id, state, now) for node_id, state in sorted(changed)]
                if lab_id not in seen:
                    changes = [_change(lab_id, "lab", lab_id, "deleted", now)]
                if changes:
                    await self.records.labs.change("w1", lab_id, changes, fence=fence)
            known = seen
            await self.clock.sleep(0.01)

    def _controller(self, name: str) -> LabletController:
        telemetry, health = Telemetry(), Health(self.clock)
        election = election_of(
            SETTINGS, self.kv, clock=self.clock, telemetry=telemetry, health=health, instance_id=name
        )
        plane_clock = PlaneClock(self.clock)
        client = LabletClient(self, KEYS.controller, LABLET_CONTROLLER, lambda: election.epoch, plane_clock)
        return assemble_lablets(
            SETTINGS,
            election,
            control_plane=client,
            labs=self.labs,
            kv=self.kv,
            clock=self.clock,
            plane_clock=plane_clock,
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
            service,
            controller.stats,
            service.loop.health,
            MetricsPage(service.loop.telemetry, self.clock),
            KeyCheck(KEYS.controller, self.clock),
        )
        _, body = await request(operations.app(), "GET", path, {"X-API-Key": KEYS.controller}, None)
        return json.loads(body)


def _states(lab: Lab) -> dict[str, str]:
    return {node.id: str(node.state) for node in lab.nodes.values()}


def _change(lab_id: str, kind: str, element_id: str, event: str, at: datetime) -> LabChange:
    return LabChange(
        worker_id=WorkerId("w1"), lab_id=lab_id, element_type=kind, element_id=element_id, event=event, at=at
    )


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
        await site.until(PENDING_SCHEDULING, within=90)


async def seconds_until_ready(site: Site) -> float:
    """From the moment at which the last node has booted."""
    await site.until(INSTANTIATING)
    while not (labs := site.cml.labs.all()) or not _has_booted(labs[0]):
        await site.clock.sleep(0.001)
        site.cml.labs.advance(site.clock.now().timestamp())
    since = site.clock.monotonic()
    while (await site.session()).ready_at is None:
        await site.clock.sleep(0.001)
    return site.clock.monotonic() - since


def _has_booted(lab: Lab) -> bool:
    return set(_states(lab).values()) == {"BOOTED"}


async def test_a_session_is_ready_milliseconds_after_its_last_node_has_booted() -> None:
    async with Site().running() as site:
        assert await seconds_until_ready(site) < 0.1


async def test_without_events_of_its_lab_a_session_is_ready_at_the_next_poll() -> None:
    site = Site()
    site.is_followed = False
    async with site.running():
        assert 0.5 < await seconds_until_ready(site) <= 5.1


async def test_a_lab_is_removed_milliseconds_after_its_last_node_has_stopped() -> None:
    async with Site().running() as site:
        await site.until(RUNNING)
        await site.end()
        [lab] = site.cml.labs.all()
        while "BOOTED" in _states(lab).values():
            await site.clock.sleep(0.001)
            site.cml.labs.advance(site.clock.now().timestamp())
        assert await site.until(TERMINATED) < 0.5


async def test_a_lab_that_is_deleted_outside_ends_its_session_at_once() -> None:
    async with Site().running() as site:
        await site.until(RUNNING)
        await site.clock.sleep(10)
        [lab] = site.cml.labs.all()
        now = site.clock.now().timestamp()
        site.cml.labs.stop(lab, now, "x")
        site.cml.labs.advance(now + 60)
        site.cml.labs.wipe(lab, now + 60, "x")
        site.cml.labs.delete(lab)
        assert await site.until(FAILED) < 0.5


async def test_a_lab_without_a_session_wakes_no_controller() -> None:
    async with Site().running() as site:
        await site.until(RUNNING)
        await site.clock.sleep(1)
        listing = await site.kv.list_prefix("/lcm/instances/")
        keys = {item.key for item in listing.items}
        foreign = import_file(
            site.cml.labs, read_file(LAB.encode()), site.clock.now().timestamp(), owner_id="x", title="mine"
        )
        before = len(site.calls)
        site.cml.labs.start(foreign, site.clock.now().timestamp(), "x")
        await site.clock.sleep(40)
        assert {item.key for item in (await site.kv.list_prefix("/lcm/instances/")).items} == keys
        assert site.calls[before:] == []


async def test_the_time_that_labs_take_to_boot_is_measured() -> None:
    async with Site().running() as site:
        await site.until(RUNNING)
        [controller] = site.controllers
        metrics = controller.service.loop.telemetry.render().decode()
        assert "lcm_lab_start_duration_seconds_count 1.0" in metrics
