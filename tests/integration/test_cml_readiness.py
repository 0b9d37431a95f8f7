"""What an attempt to reach a CML that is not ready meets on the wire, and how it is reported (A2)."""

from collections import Counter
from functools import partial
from typing import Any

import pytest

from lcm.cml.connection import CmlConnections
from lcm.cml.sessions import server_of
from lcm.core.clock import SystemClock
from lcm.domain.errors import CertificateChanged
from lcm.domain.launch import InstanceId
from lcm.domain.lifecycle import RUNNING
from lcm.domain.readiness import CmlAttempt, CmlContact
from lcm.domain.scaling import ScaleDownPolicy
from lcm.domain.worker import Worker
from lcm.simulator.cml import faults
from lcm.worker_controller.adapters.cml_system import CmlSystemSpiClient
from lcm.worker_controller.running.license import LicenseRegistrar
from lcm.worker_controller.running.pipeline import ATTEMPT_REPORT_SECONDS, RunningPipeline
from lcm.worker_controller.running.scale_down import ScaleDown
from support.core import a_worker, an_instance
from support.labs_over_tls import HOST, cml_over_tls


class Reports:
    """The control plane's side: what was reported of CML."""

    def __init__(self) -> None:
        self.attempts: list[CmlAttempt | None] = []
        self.is_ready: list[bool] = []
        self.presented: list[str] = []

    async def report_cml(
        self, worker: Worker, *, ready: bool, attempt: CmlAttempt | None = None, **_: Any
    ) -> Worker:
        self.attempts.append(attempt)
        self.is_ready.append(ready)
        return worker

    async def report_certificate(self, worker: Worker, presented_sha256: str) -> Worker:
        self.presented.append(presented_sha256)
        return worker


class SteppedClock(SystemClock):
    """Only the test moves it: the sockets run in real time."""

    def __init__(self) -> None:
        self.passed = 0.0
        self.monotonic = lambda: self.passed


def pipeline_over(connections: CmlConnections, reports: Any, clock: SteppedClock) -> RunningPipeline:
    counts: Counter[str] = Counter()
    servers = partial(server_of, use_private_ip=True)
    return RunningPipeline(
        reports,
        CmlSystemSpiClient(connections),
        clock,
        use_private_ip=True,
        wait_seconds=2.0,
        metrics_interval_seconds=60.0,
        count_drift=lambda worker, kind: None,
        monitors=None,
        licenses=LicenseRegistrar(
            reports, reports, servers, lambda: None, clock, counts, lambda worker, kind: None, 120.0
        ),
        idle=None,
        scale_down=ScaleDown(reports, ScaleDownPolicy(), clock, lambda: 1, counts),
    )


def waiting(*, host: str | None = HOST, pin: str | None = None) -> Worker:
    return a_worker(
        status=RUNNING,
        ec2_instance_id=InstanceId("i-1"),
        private_ip=host,
        cml_certificate_sha256=pin,
        pending_since=None,
    )


@pytest.mark.parametrize(
    ("fault", "contact"),
    [
        (faults.Refuse(), CmlContact.NO_ANSWER),
        (faults.Http(status=None), CmlContact.NO_ANSWER),
        (faults.Http(status=502), CmlContact.NO_CML),
        (faults.Http(status=404), CmlContact.NO_CML),
        (faults.NotReady(), CmlContact.NOT_READY),
    ],
    ids=["refused", "cut", "502", "no-cml", "not-ready"],
)
async def test_an_attempt_that_does_not_find_cml_ready_is_reported_with_how_far_it_came(
    fault: faults.Fault, contact: CmlContact
) -> None:
    async with cml_over_tls() as (site, port), CmlConnections(port) as connections:
        site.apply_fault(fault)
        reports, clock = Reports(), SteppedClock()
        pipeline, instance = (
            pipeline_over(connections, reports, clock),
            an_instance(private_ip=HOST, public_ip=None),
        )
        worker = waiting()
        await pipeline.run(worker, instance)
        assert [attempt for attempt in reports.attempts if attempt is not None] == []
        clock.passed = ATTEMPT_REPORT_SECONDS
        await pipeline.run(worker, instance)
        [attempt] = [attempt for attempt in reports.attempts if attempt is not None]
        assert attempt.contact is contact
        assert HOST in attempt.detail
        site.recover()
        while not (reports.is_ready and reports.is_ready[-1]):  # its listener comes back by itself
            await pipeline.run(worker, instance)
            await clock.sleep(0.02)
        assert reports.attempts[-1] is None


async def test_another_certificate_is_reported_before_the_pass_ends_with_it() -> None:
    async with cml_over_tls() as (_, port), CmlConnections(port) as connections:
        reports, clock = Reports(), SteppedClock()
        pipeline, instance = (
            pipeline_over(connections, reports, clock),
            an_instance(private_ip=HOST, public_ip=None),
        )
        worker = waiting(pin="ab" * 32)
        for clock.passed in (0.0, ATTEMPT_REPORT_SECONDS):
            with pytest.raises(CertificateChanged):
                await pipeline.run(worker, instance)
        [attempt] = reports.attempts
        assert attempt is not None
        assert attempt.contact is CmlContact.OTHER_CERTIFICATE


async def test_an_instance_without_an_address_is_reported_as_that() -> None:
    async with CmlConnections(1) as connections:
        reports, clock = Reports(), SteppedClock()
        pipeline = pipeline_over(connections, reports, clock)
        worker, instance = waiting(host=None), an_instance(private_ip=None, public_ip=None)
        for clock.passed in (0.0, ATTEMPT_REPORT_SECONDS):
            await pipeline.run(worker, instance)
        [attempt] = reports.attempts
        assert attempt is not None
        assert attempt.contact is CmlContact.NO_ADDRESS
