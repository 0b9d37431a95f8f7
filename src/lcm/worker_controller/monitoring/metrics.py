"""Sources without a WebSocket feed, read once a minute per running worker: CloudWatch, CML health, license.

The three fail independently of each other, and one worker's failure does not affect the others.
"""

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable, Collection, Iterable, Sequence
from typing import Final, TypeVar

import msgspec
import structlog

from lcm.cml.session import CmlSession
from lcm.core.clock import Clock
from lcm.core.health import Health
from lcm.core.timeouts import timeout
from lcm.core.tracing import begin_part
from lcm.domain.errors import Fenced, LcmError, Unreachable
from lcm.domain.launch import InstanceId, WorkerId
from lcm.domain.lifecycle import RUNNING
from lcm.domain.telemetry import Sample, SampleSource
from lcm.domain.worker import CmlHealth, CmlLicense, Worker
from lcm.worker_controller.ports import LiveControlPlane, MetricsProvider

log = structlog.get_logger(__name__)

T = TypeVar("T")

AT_ONCE: Final = 20
HEALTH_PATH: Final = "/api/v0/system_health"
LICENSING_PATH: Final = "/api/v0/licensing"
MAX_FAILING: Final = 20

_LOOP: Final = "metrics"


class MetricsLoop:
    """Runs on the leader."""

    def __init__(
        self,
        control_plane: LiveControlPlane,
        cloud_metrics: MetricsProvider,
        session_of: Callable[[WorkerId], CmlSession | None],
        on_sample: Callable[[Sample], None],
        *,
        interval_seconds: float,
        clock: Clock,
        health: Health,
    ) -> None:
        self._control_plane = control_plane
        self._cloud_metrics = cloud_metrics
        self._session_of = session_of
        self._on_sample = on_sample
        self._interval = interval_seconds
        self._clock = clock
        self._health = health
        self.collected = 0
        """Successful collections, counted per worker."""
        self.licenses: dict[WorkerId, CmlLicense] = {}
        self.health: dict[WorkerId, CmlHealth] = {}
        """What the CML of each worker last answered."""
        self.failures: Counter[str] = Counter()
        self._asked_at: dict[WorkerId, float] = {}
        self._requested: set[WorkerId] = set()
        self._is_requested = asyncio.Event()

    async def run(self) -> None:
        self.licenses.clear()
        self.health.clear()
        self._asked_at.clear()
        next_interval_at = self._clock.monotonic() + self._interval
        try:
            while True:
                self._health.tick(_LOOP, self._interval)
                if await self._is_requested_before(next_interval_at):
                    requested, self._requested = self._requested, set()
                    self._is_requested.clear()
                    await self.collect(requested)
                else:
                    await self.collect()
                    next_interval_at = self._clock.monotonic() + self._interval
        finally:
            self._health.forget(_LOOP)

    def seconds_since(self, worker_id: WorkerId) -> float | None:
        """Since its last collection; None if there was none."""
        at = self._asked_at.get(worker_id)
        return None if at is None else self._clock.monotonic() - at

    def request_measurement(self, worker_id: WorkerId) -> None:
        """Collect from this worker without waiting for the interval."""
        self._asked_at.setdefault(worker_id, self._clock.monotonic())
        self._requested.add(worker_id)
        self._is_requested.set()

    async def _is_requested_before(self, deadline: float) -> bool:
        try:
            async with timeout(max(0.0, deadline - self._clock.monotonic())):
                await self._is_requested.wait()
        except TimeoutError:
            return False
        return True

    async def collect(self, only: Collection[WorkerId] | None = None) -> None:
        """Collect from all running workers, or from these of them."""
        try:
            listed = await self._control_plane.list_resources()
        except Fenced:
            raise
        except LcmError as error:
            log.warning("worker listing failed", error=str(error))
            return
        workers = [worker for worker in listed if worker.status is RUNNING]
        for known in (self.licenses, self.health):
            for gone in known.keys() - {worker.id for worker in workers}:
                del known[gone]
        if only is not None:
            workers = [worker for worker in workers if worker.id in only]
        now = self._clock.monotonic()
        self._asked_at.update(dict.fromkeys((worker.id for worker in workers), now))
        async with asyncio.TaskGroup() as tasks:
            for region, group in _by_region(workers).items():
                tasks.create_task(self._ask_cloud(region, group), name=f"cloud-metrics-{region}")
            places = asyncio.Semaphore(AT_ONCE)
            for worker in workers:
                session = self._session_of(worker.id)
                if worker.cml.is_ready and session is not None:
                    tasks.create_task(self._ask_cml(worker, session, places), name="cml-health")

    def forget(self, worker_id: WorkerId) -> None:
        self.licenses.pop(worker_id, None)
        self.health.pop(worker_id, None)
        self._asked_at.pop(worker_id, None)

    async def _ask_cloud(self, region: str, workers: Sequence[Worker]) -> None:
        by_instance = {worker.instance.id: worker for worker in workers if worker.instance.id}
        try:
            measured = await self._cloud_metrics.get_instance_metrics(region, list(by_instance))
        except LcmError as error:
            self.failures["cloudwatch"] += 1
            log.info("CloudWatch metrics not read", region=region, error=str(error))
            return
        now = self._clock.now()
        for instance_id, metrics in measured.items():
            worker = by_instance.get(InstanceId(instance_id))
            if worker is not None:
                self.collected += 1
                self._on_sample(
                    Sample(
                        worker_id=worker.id,
                        collected_at=now,
                        source=SampleSource.CLOUDWATCH,
                        **metrics._asdict(),
                    )
                )

    async def _ask_cml(self, worker: Worker, session: CmlSession, places: asyncio.Semaphore) -> None:
        begin_part(worker_id=worker.id)
        async with places:
            health = await self._try(worker, "system_health", _read_health(session))
            license_ = await self._try(worker, "licensing", _read_license(session))
            self.collected += health is not None or license_ is not None
            if health is not None:
                self.health[worker.id] = health
            if license_ is not None:
                self.licenses[worker.id] = license_
            changes = (
                health if health != worker.cml.health else None,
                license_ if license_ != worker.cml.license else None,
            )
            if changes == (None, None):
                return
            try:
                await self._control_plane.report_cml_health(worker, *changes)
            except Fenced:
                raise
            except LcmError as error:
                log.info("CML health report failed", worker_id=worker.id, error=str(error))

    async def _try(self, worker: Worker, what: str, asking: Awaitable[T]) -> T | None:
        try:
            return await asking
        except LcmError as error:
            self.failures[what] += 1
            log.info("CML not read", worker_id=worker.id, what=what, error=str(error))
            return None


def _by_region(workers: Iterable[Worker]) -> dict[str, list[Worker]]:
    groups: dict[str, list[Worker]] = {}
    for worker in workers:
        groups.setdefault(worker.aws_region, []).append(worker)
    return groups


class _Host(msgspec.Struct, frozen=True):
    hostname: str = ""
    valid: bool | None = None
    kvm_vmx_enabled: bool | None = None
    enough_cpus: bool | None = None
    lld_connected: bool | None = None
    lld_synced: bool | None = None
    libvirt: bool | None = None
    fabric: bool | None = None
    device_mux: bool | None = None
    refplat_images_available: bool | None = None
    docker_shim: bool | None = None


class _Controller(msgspec.Struct, frozen=True):
    valid: bool | None = None
    core_connected: bool | None = None
    nodes_loaded: bool | None = None
    images_loaded: bool | None = None


class _SystemHealth(msgspec.Struct, frozen=True):
    valid: bool | None = None
    is_licensed: bool | None = None
    is_enterprise: bool | None = None
    computes: dict[str, _Host] = {}
    controller: _Controller | None = None


class _Status(msgspec.Struct, frozen=True):
    status: str | None = None


class _Product(msgspec.Struct, frozen=True):
    active: str | None = None


class _Licensing(msgspec.Struct, frozen=True):
    registration: _Status | None = None
    authorization: _Status | None = None
    product_license: _Product | None = None


async def _read_health(session: CmlSession) -> CmlHealth:
    answer = _decode((await session.get(HEALTH_PATH)).body, _SystemHealth)
    failing = [
        f"{host.hostname or host_id}: {check}"
        for host_id, host in sorted(answer.computes.items())
        for check in _failing_checks(host)
    ]
    if answer.controller is not None:
        failing += [f"controller: {check}" for check in _failing_checks(answer.controller)]
    return CmlHealth(
        valid=answer.valid,
        is_licensed=answer.is_licensed,
        is_enterprise=answer.is_enterprise,
        failing=tuple(failing[:MAX_FAILING]),
    )


def _failing_checks(part: msgspec.Struct) -> list[str]:
    return [name for name in part.__struct_fields__ if name != "valid" and getattr(part, name) is False]


async def _read_license(session: CmlSession) -> CmlLicense:
    answer = _decode((await session.get(LICENSING_PATH)).body, _Licensing)
    return CmlLicense(
        registration_status=answer.registration.status if answer.registration else None,
        authorization_status=answer.authorization.status if answer.authorization else None,
        product_license=answer.product_license.active if answer.product_license else None,
    )


def _decode(body: bytes, shape: type[T]) -> T:
    try:
        return msgspec.json.decode(body, type=shape)
    except (msgspec.MsgspecError, ValueError, RecursionError) as error:
        raise Unreachable(f"CML sent an invalid answer: {error}") from None
