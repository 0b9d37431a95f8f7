"""A large fleet in which nothing happens: records and instances in memory, every call counted.

The real reconciler and the real EC2 adapter on top; below them a client that hands out prepared pages.
"""

import random
from collections import Counter
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta
from typing import Any

from lcm.core.clock import Clock
from lcm.core.health import Health
from lcm.core.telemetry import Telemetry
from lcm.domain.idle import ControllerTerms
from lcm.domain.launch import InstanceId, WorkerId
from lcm.domain.lifecycle import RUNNING
from lcm.domain.template import RegionConfig
from lcm.domain.worker import Worker, new_worker
from lcm.rest.schemas import IdleCheck, IdleCheckRequest
from lcm.worker_controller.adapters.ec2 import Ec2Provider, Ec2Settings
from lcm.worker_controller.main import WorkerController, assemble_controller, election_of
from lcm.worker_controller.settings import WorkerControllerSettings
from support.core import with_fields
from support.fleet import MemoryMonitors
from support.memory_licensing import MemoryLicensing

THEN = datetime(2026, 1, 1, tzinfo=UTC)


class Pages:
    """A client of EC2 that shows prepared instances, at most a thousand at a time."""

    def __init__(self, instances: Sequence[dict[str, Any]]) -> None:
        self.instances = list(instances)
        self.calls: Counter[str] = Counter()

    async def describe_instances(self, **request: Any) -> dict[str, Any]:
        self.calls["DescribeInstances"] += 1
        first = int(request.get("NextToken", 0))
        last = first + request["MaxResults"]
        answer: dict[str, Any] = {"Reservations": [{"Instances": self.instances[first:last]}]}
        if last < len(self.instances):
            answer["NextToken"] = str(last)
        return answer


class SilentRecords:
    """The control plane's port: settled workers. Any other call is a mistake."""

    def __init__(self, workers: Sequence[Worker], clock: Clock) -> None:
        self.workers = {worker.id: worker for worker in workers}
        self.calls: Counter[str] = Counter()
        self._clock = clock

    async def list_resources(self, *, include_terminated: bool = False) -> Sequence[Worker]:
        self.calls["list_resources"] += 1
        return list(self.workers.values())

    async def fetch_single_resource(self, worker_id: str) -> Worker | None:
        self.calls["fetch_single_resource"] += 1
        return self.workers.get(WorkerId(worker_id))

    async def claim_leadership(
        self, cluster_id: str, revision: int, instance_id: str, terms: ControllerTerms | None = None
    ) -> int:
        return 1

    async def detect_worker_idle(self, worker: Worker, request: IdleCheckRequest) -> IdleCheck:
        self.calls["detect_worker_idle"] += 1
        now = self._clock.now()
        return IdleCheck(
            worker_id=worker.id,
            checked_at=now,
            telemetry_fetched=False,
            activity_updated=False,
            idle_check_performed=True,
            auto_pause_triggered=False,
            is_idle=False,
            idle_minutes=1.0,
            eligible_for_pause=False,
            in_snooze_period=False,
            next_check_at=now + timedelta(seconds=300),
        )

    async def verify(self, worker: Worker) -> Worker:
        self.calls["verify"] += 1
        return worker

    def __getattr__(self, name: str) -> Any:
        async def refuse(*_: Any, **__: Any) -> None:
            self.calls[name] += 1
            raise AssertionError(f"{name}: nothing changed")

        return refuse


class SettledFleet:
    """So many RUNNING workers in each region, each with its instance."""

    def __init__(self, size: int, clock: Clock, regions: Sequence[str] = ("us-east-1",)) -> None:
        self.clock = clock
        self.regions = {name: _region(name) for name in regions}
        self.pages = {name: Pages([_instance(name, number) for number in range(size)]) for name in regions}
        self.records = SilentRecords(
            [_worker(name, number) for name in regions for number in range(size)], clock
        )
        self.ec2 = Ec2Provider(Ec2Settings(), self.regions, clock=clock, chance=random.Random(1))
        self.ec2._clients.update(self.pages)

    @asynccontextmanager
    async def assembled(self) -> AsyncIterator[WorkerController]:
        """Wire together, not running."""
        settings = WorkerControllerSettings(worker_discovery_enabled=False, cleanup_enabled=False)
        telemetry, health = Telemetry(), Health(self.clock)
        self.controller = assemble_controller(
            settings,
            self.regions,
            election_of(
                settings, None, clock=self.clock, telemetry=telemetry, health=health, instance_id="one"
            ),
            control_plane=self.records,
            cloud=self.ec2,
            cml=_NobodyAsks(),
            licensing=MemoryLicensing(),
            kv=None,
            clock=self.clock,
            telemetry=telemetry,
            health=health,
            monitors=MemoryMonitors(),
        )
        yield self.controller

    def calls(self) -> Counter[str]:
        """The calls to the control plane and to EC2 since the last read."""
        counted = Counter(self.records.calls)
        for name, pages in self.pages.items():
            counted.update({f"{operation} {name}": count for operation, count in pages.calls.items()})
            pages.calls.clear()
        self.records.calls.clear()
        return counted


class _NobodyAsks:
    async def get_system_information(self, host: str, pinned_sha256: str | None) -> Any:
        raise AssertionError("CML is known to be ready")


def _region(name: str) -> RegionConfig:
    return RegionConfig(region=name, security_group_ids=("sg-1",), subnet_id="subnet-1")


def _address(number: int) -> str:
    return f"10.{number // 65536}.{number // 256 % 256}.{number % 256}"


def _worker(region: str, number: int) -> Worker:
    worker_id = WorkerId(f"{region}-{number}")
    worker = new_worker(
        worker_id=worker_id,
        name=worker_id,
        template_name="small",
        aws_region=region,
        tags={},
        by="ann",
        now=THEN,
    )
    return with_fields(
        worker,
        status=RUNNING,
        pending_since=None,
        ec2_instance_id=InstanceId(f"i-{region}-{number}"),
        private_ip=_address(number),
        cml_ready=True,
        cml_version="2.9.1",
    )


def _instance(region: str, number: int) -> dict[str, Any]:
    return {
        "InstanceId": f"i-{region}-{number}",
        "State": {"Name": "running"},
        "InstanceType": "t3.small",
        "ImageId": "ami-1",
        "PrivateIpAddress": _address(number),
        "Tags": [
            {"Key": "cml-managed", "Value": "true"},
            {"Key": "worker_id", "Value": f"{region}-{number}"},
        ],
    }
