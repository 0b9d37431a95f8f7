"""A CML that cannot be asked is not idle: real monitoring asks, the real idle check judges its answer."""

import asyncio
import random
from collections import Counter
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from datetime import timedelta

import pytest

from lcm.cml.session import Credentials
from lcm.cml.sessions import CmlSessions
from lcm.core.health import Health
from lcm.core.ids import RandomIds
from lcm.domain.errors import Throttled
from lcm.domain.lifecycle import RUNNING, DesiredStatus
from lcm.domain.worker import CmlLogin, Worker
from lcm.rest.schemas import CmlCredentials, IdleCheck
from lcm.worker_controller.monitoring.config import MonitoringConfig
from lcm.worker_controller.monitoring.service import LiveMonitoring, assemble_monitoring
from lcm.worker_controller.running.idle import IdleChecker
from support.core import a_worker
from support.fleet import DirectControlPlane, Fleet
from support.live import W1, CollectingControlPlane, a_target
from support.memory_live import MemoryLiveServer, MemoryLiveServers, MemoryMetrics
from support.virtual_time import VirtualClock

TELEMETRY, LOGIN = "/api/v0/telemetry/events", "/api/v0/authenticate"
TELEMETRY_STATE = "/api/v0/telemetry"
HOST = "10.0.0.1"
OWN = CmlLogin(username="admin", secret_ref="ref-1")


@dataclass
class Scene:
    """A worker that is idle for two hours, under real monitoring; the next check may pause it."""

    clock: VirtualClock
    cml: MemoryLiveServer
    servers: MemoryLiveServers
    logins: CollectingControlPlane
    monitoring: LiveMonitoring
    keeper: IdleChecker
    fleet: Fleet

    async def worker(self) -> Worker:
        return await self.fleet.workers.get(W1)

    async def check(self) -> IdleCheck:
        check = await self.keeper.check(await self.worker())
        assert check is not None, "no check was due"
        return check

    def use_own_login(self) -> None:
        self.monitoring.ensure_monitoring(a_target(login=OWN))


@asynccontextmanager
async def unused_for_hours() -> AsyncIterator[Scene]:
    fleet, clock = Fleet(), VirtualClock()
    cml = MemoryLiveServer(clock)
    servers, logins = MemoryLiveServers({HOST: cml}), CollectingControlPlane(clock)
    monitoring = assemble_monitoring(
        MonitoringConfig(),
        control_plane=logins,
        websockets=servers,
        sessions=CmlSessions(servers, Credentials("admin", "secret"), logins, clock),
        cloud_metrics=MemoryMetrics([]),
        clock=clock,
        ids=RandomIds(random.Random(1)),
        chance=random.Random(1),
        health=Health(clock),
    )
    port = DirectControlPlane(fleet.plane)
    await port.claim_leadership("cluster", 1, "controller-0")
    now = clock.now()
    await fleet.workers.add(
        a_worker(
            status=RUNNING,
            created_at=now - timedelta(hours=2),
            target_pause_at=now - timedelta(hours=1),
        )
    )
    keeper = IdleChecker(port, monitoring, suppress_auto_pause=False, clock=clock, counts=Counter())
    async with asyncio.TaskGroup() as tasks:
        running = tasks.create_task(monitoring.run())
        await clock.sleep(1)  # until the monitors run
        monitoring.ensure_monitoring(a_target())
        assert await monitoring.fetch_telemetry(W1) == []
        yield Scene(clock, cml, servers, logins, monitoring, keeper, fleet)
        running.cancel()


def unreachable(scene: Scene) -> None:
    scene.cml.refuses_connections = True


def no_answer(scene: Scene) -> None:
    scene.cml.is_frozen = True


def nobody_there(scene: Scene) -> None:
    scene.servers.servers.clear()


def another_certificate(scene: Scene) -> None:
    scene.cml.certificate_sha256 = "b" * 64


def another_password(scene: Scene) -> None:
    scene.cml.change_password("another")


def tokens_refused(scene: Scene) -> None:
    scene.cml.failing = {TELEMETRY: 401}


def not_permitted(scene: Scene) -> None:
    scene.cml.failing = {TELEMETRY: 403}


def no_such_path(scene: Scene) -> None:
    scene.cml.failing = {TELEMETRY: 404}


def throttled(scene: Scene) -> None:
    scene.cml.failing = {TELEMETRY: 429}


def internal_error(scene: Scene) -> None:
    scene.cml.failing = {TELEMETRY: 500}


def booting(scene: Scene) -> None:
    scene.cml.failing = {TELEMETRY: 502, LOGIN: 502}


def login_throttled(scene: Scene) -> None:
    scene.cml.expire_tokens()
    scene.cml.failing = {LOGIN: 429}


def login_fails(scene: Scene) -> None:
    scene.cml.expire_tokens()
    scene.cml.failing = {LOGIN: 503}


def login_without_token(scene: Scene) -> None:
    scene.cml.expire_tokens()
    scene.servers.bodies[LOGIN] = b'""'


def own_login_gone(scene: Scene) -> None:
    scene.use_own_login()


def own_login_replaced(scene: Scene) -> None:
    scene.logins.logins[W1] = CmlCredentials(username="admin", password="secret", secret_ref="ref-2")
    scene.use_own_login()


def own_login_cannot_be_fetched(scene: Scene) -> None:
    scene.logins.is_reachable = False
    scene.use_own_login()


def own_login_throttled(scene: Scene) -> None:
    scene.logins.error = Throttled("control plane: fewer, please")
    scene.use_own_login()


def telemetry_switched_off(scene: Scene) -> None:
    scene.cml.cml.opt_in, scene.cml.cml.telemetry.is_off = False, True


def telemetry_stopped_hours_ago(scene: Scene) -> None:
    """What was recorded before it was switched off is still listed."""
    scene.cml.cml.opt_in = False
    scene.servers.bodies[TELEMETRY] = b'[{"category": "start_lab", "timestamp": "2020-01-01T00:00:00"}]'


def telemetry_never_answered(scene: Scene) -> None:
    scene.servers.bodies[TELEMETRY] = b"[]"


def telemetry_state_unknown(scene: Scene) -> None:
    scene.servers.bodies[TELEMETRY] = b"[]"
    scene.cml.failing = {TELEMETRY_STATE: 500}


def not_watched(scene: Scene) -> None:
    scene.monitoring.stop_monitoring(W1, "it has no address")


def forgotten(scene: Scene) -> None:
    scene.monitoring.forget(W1)


def lead_lost(scene: Scene) -> None:
    scene.monitoring.registry.stop_all()


def answers(body: bytes) -> Callable[[Scene], None]:
    def answer(scene: Scene) -> None:
        scene.servers.bodies[TELEMETRY] = body

    return answer


BAD_ANSWERS = {
    "nothing": b"",
    "null": b"null",
    "a page": b"<html>502 Bad Gateway</html>",
    "half of it": b'[{"category": "start_lab"',
    "an object": b'{"events": []}',
    "numbers": b"[1, 2]",
    "no UTF-8": b'[{"category": "\xff"}]',
    "endless depth": b"[" * 100_000,
    "odd details": b'[{"category": "start_lab", "data": 7}]',
}
FAILURES = [
    *(
        pytest.param(failure, id=failure.__name__)
        for failure in (
            unreachable,
            no_answer,
            nobody_there,
            another_certificate,
            another_password,
            tokens_refused,
            not_permitted,
            no_such_path,
            throttled,
            internal_error,
            booting,
            login_throttled,
            login_fails,
            login_without_token,
            own_login_gone,
            own_login_replaced,
            own_login_cannot_be_fetched,
            own_login_throttled,
            telemetry_switched_off,
            telemetry_stopped_hours_ago,
            telemetry_never_answered,
            telemetry_state_unknown,
            not_watched,
            forgotten,
            lead_lost,
        )
    ),
    *(pytest.param(answers(body), id=f"answers {name}") for name, body in BAD_ANSWERS.items()),
]


@pytest.mark.parametrize("fail", FAILURES)
async def test_a_cml_that_cannot_be_asked_is_unknown_and_not_unused(fail: Callable[[Scene], None]) -> None:
    async with unused_for_hours() as scene:
        fail(scene)
        assert await scene.monitoring.fetch_telemetry(W1) is None


@pytest.mark.parametrize("fail", FAILURES)
async def test_a_worker_whose_cml_cannot_be_asked_is_not_paused(fail: Callable[[Scene], None]) -> None:
    async with unused_for_hours() as scene:
        fail(scene)
        check = await scene.check()
        assert (check.telemetry_fetched, check.guard) == (False, "unconfirmed")
        kept = await scene.worker()
        assert (kept.desired_status, kept.pause.decided_at) == (DesiredStatus.RUNNING, None)


async def test_a_login_refused_too_often_is_unknown_while_it_is_not_tried() -> None:
    async with unused_for_hours() as scene:
        another_password(scene)
        for _ in range(3):
            await scene.monitoring.fetch_telemetry(W1)
        logins = len(scene.cml.logins)
        scene.cml.change_password("secret")
        assert await scene.monitoring.fetch_telemetry(W1) is None
        assert len(scene.cml.logins) == logins


async def test_a_worker_without_activity_is_paused_at_the_second_idle_check() -> None:
    """The same worker without a failure: it is the failure that keeps the others."""
    async with unused_for_hours() as scene:
        assert await scene.monitoring.fetch_telemetry(W1) == []
        first = await scene.check()
        assert (first.telemetry_fetched, first.guard) == (True, "second_look")
        await scene.clock.sleep(15)
        assert (await scene.check()).auto_pause_triggered
        assert (await scene.worker()).desired_status is DesiredStatus.STOPPED


@pytest.mark.parametrize("opt_in", [b"true", b'"accepted"'])
async def test_empty_telemetry_that_is_switched_on_shows_that_a_worker_is_unused(opt_in: bytes) -> None:
    async with unused_for_hours() as scene:
        scene.servers.bodies[TELEMETRY] = b"[]"
        scene.servers.bodies[TELEMETRY_STATE] = b'{"opt_in":%s,"show_modal":false}' % opt_in
        assert await scene.monitoring.fetch_telemetry(W1) == []


async def test_activity_in_the_telemetry_reaches_the_record() -> None:
    async with unused_for_hours() as scene:
        at = scene.clock.now() - timedelta(minutes=5)
        scene.cml.note("start_lab", at)
        assert (await scene.check()).guard == "active"
        assert (await scene.worker()).activity.last_at == at


async def test_a_failure_between_the_two_idle_checks_cancels_the_decision() -> None:
    async with unused_for_hours() as scene:
        assert (await scene.check()).guard == "second_look"
        unreachable(scene)
        await scene.clock.sleep(15)
        assert (await scene.check()).guard == "unconfirmed"
        scene.cml.refuses_connections = False
        await scene.clock.sleep(600)
        assert (await scene.check()).guard == "second_look"
