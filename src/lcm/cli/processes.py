"""One process of LCM on its own, as a deployment on several hosts runs it.

Between processes there is only HTTP, the coordination store and the store. Without etcd a control plane keeps
its keys to itself, and a controller polls and leads alone. Each command loads the code of its own process
only: loading takes most of the start time.
"""

import asyncio
import os
from collections.abc import AsyncIterator, Callable, Coroutine, Mapping
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager
from functools import partial
from typing import Any, Protocol

import aiohttp
import msgspec
import structlog

from lcm.cli.process import spare_loaded_code
from lcm.cli.regions import read_regions
from lcm.control_plane.settings import ControlPlaneSettings
from lcm.core.clock import Clock, SystemClock
from lcm.core.hosted_service import HostedService, run_services
from lcm.core.ids import Ids, RandomIds
from lcm.core.kv.memory import MemoryKv
from lcm.core.kv.port import Kv
from lcm.core.settings import CoordinationSettings
from lcm.core.timeouts import timeout
from lcm.lablet_controller.settings import LabletControllerSettings
from lcm.resource_scheduler.settings import ResourceSchedulerSettings
from lcm.worker_controller.settings import WorkerControllerSettings

log = structlog.get_logger(__name__)

ANSWERS_WITHIN_SECONDS = 30.0


class StartFailed(Exception):
    """A process cannot start; the message says what to do."""


class Answering(msgspec.Struct, frozen=True, kw_only=True):
    """Where the process answers. Printed once, as the only line on standard output."""

    service: str
    url: str
    port: int
    pid: int


class Process(Protocol):
    """A process that is wired and ready to run."""

    @property
    def services(self) -> tuple[HostedService, ...]: ...
    @property
    def url(self) -> str: ...
    @property
    def port(self) -> int: ...


Announce = Callable[[Answering], None]


async def run_control_plane(settings: ControlPlaneSettings, announce: Announce) -> None:
    """Run a control plane until cancelled."""
    from lcm.control_plane.main import control_plane_process
    from lcm.rest.documents import fetch_document, post_form
    from lcm.rest.peer_feed import peer_feed

    clock, ids = SystemClock(), RandomIds()
    regions, _ = read_regions(settings.regions_config_path)
    open_feed = partial(peer_feed, tls=settings.tls.client_context())
    async with AsyncExitStack() as stack:
        shared = await stack.enter_async_context(_coordination(settings, clock, ids))
        own = MemoryKv(clock, ids)
        kv: Kv = shared if shared is not None else own
        if shared is None:
            log.warning("no etcd configured: controllers in other processes poll for changes")
        process = control_plane_process(
            settings, kv, clock, ids, regions, fetch_document, open_feed, post_form
        )
        await _run("control-plane", process, clock, announce, before=(own,))


async def run_worker_controller(settings: WorkerControllerSettings, announce: Announce) -> None:
    """Run a worker controller until cancelled."""
    from lcm.worker_controller.adapters.ec2 import Ec2Settings
    from lcm.worker_controller.main import worker_controller_process

    clock, ids = SystemClock(), RandomIds()
    regions, _ = read_regions(settings.regions_config_path)
    ec2 = Ec2Settings(endpoint_url=settings.aws_endpoint_url)
    async with _coordination(settings, clock, ids) as kv:
        process = worker_controller_process(settings, regions, ec2, kv, clock, ids)
        await _run("worker-controller", process, clock, announce)


async def run_resource_scheduler(settings: ResourceSchedulerSettings, announce: Announce) -> None:
    """Run a resource scheduler until cancelled."""
    from lcm.resource_scheduler.main import resource_scheduler_process

    clock, ids = SystemClock(), RandomIds()
    async with _coordination(settings, clock, ids) as kv:
        process = resource_scheduler_process(settings, kv, clock, ids)
        await _run("resource-scheduler", process, clock, announce)


async def run_lablet_controller(settings: LabletControllerSettings, announce: Announce) -> None:
    """Run a lablet controller until cancelled."""
    from lcm.lablet_controller.main import lablet_controller_process

    clock, ids = SystemClock(), RandomIds()
    async with _coordination(settings, clock, ids) as kv:
        process = lablet_controller_process(settings, kv, clock, ids)
        await _run("lablet-controller", process, clock, announce)


RUNNERS: Mapping[str, Callable[[Any, Announce], Coroutine[Any, Any, None]]] = {
    "control-plane": run_control_plane,
    "worker-controller": run_worker_controller,
    "resource-scheduler": run_resource_scheduler,
    "lablet-controller": run_lablet_controller,
}
"""What runs each process, with the settings of that process."""


@asynccontextmanager
async def _coordination(settings: CoordinationSettings, clock: Clock, ids: Ids) -> AsyncIterator[Kv | None]:
    if not settings.uses_etcd:
        yield None
        return
    from lcm.core.kv.etcd import EtcdKv  # slow to load

    async with EtcdKv(settings.etcd_options(), clock, ids) as kv:
        yield kv


async def _run(
    service: str,
    opened: AbstractAsyncContextManager[Process],
    clock: Clock,
    announce: Announce,
    before: tuple[HostedService, ...] = (),
) -> None:
    async with opened as process, asyncio.TaskGroup() as tasks:
        tasks.create_task(run_services(*before, *process.services))
        await _wait_until_answering(process.url, clock)
        spare_loaded_code()
        announce(Answering(service=service, url=process.url, port=process.port, pid=os.getpid()))


async def _wait_until_answering(url: str, clock: Clock) -> None:
    async with timeout(ANSWERS_WITHIN_SECONDS), aiohttp.ClientSession() as session:
        while True:
            try:
                async with session.get(f"{url}/health", ssl=False):  # it is this process; nothing is sent
                    return
            except aiohttp.ClientError:
                await clock.sleep(0.02)
