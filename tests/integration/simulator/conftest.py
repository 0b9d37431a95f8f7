"""A simulator in its own process, and small words for what tests do to it."""

import asyncio
import ssl
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import (
    AbstractAsyncContextManager,
    AbstractContextManager,
    asynccontextmanager,
    contextmanager,
)
from typing import Any, NamedTuple

import aiohttp
import pytest
from aiobotocore.config import AioConfig
from aiobotocore.session import get_session
from botocore.exceptions import ClientError

from lcm.domain.template import RegionConfig
from lcm.simulator.main import SimulationInfo
from support.patience import PATIENCE_SECONDS
from support.processes import RunningSimulator, eventually, running_simulator

SESSION = get_session()  # shared: it caches the service descriptions, which are slow to read


class Cloud:
    """One region of a simulation, seen through the real SDK, with the simulator's own controls beside it."""

    eventually = staticmethod(eventually)

    def __init__(
        self, info: SimulationInfo, region: RegionConfig, ec2: Any, http: aiohttp.ClientSession
    ) -> None:
        self.info = info
        self.region = region
        self.ec2 = ec2
        self._http = http

    async def images(self, pattern: str = "CML-*", **filters: str) -> list[dict[str, Any]]:
        """Those that a worker can be launched from, newest first."""
        wanted = {"name": pattern, "state": "available", "architecture": "x86_64", **filters}
        answer = await self.ec2.describe_images(
            Owners=["self"], Filters=[{"Name": name, "Values": [value]} for name, value in wanted.items()]
        )
        return sorted(answer["Images"], key=lambda image: str(image["CreationDate"]), reverse=True)

    async def launch(self, token: str | None = None, **changes: Any) -> str:
        """The id of a new instance."""
        return str((await self.request_launch(token, **changes))["InstanceId"])

    async def request_launch(self, token: str | None = None, **changes: Any) -> dict[str, Any]:
        """RunInstances as the worker controller does it; the instance as the answer describes it."""
        wish = {
            "ImageId": (await self.images())[0]["ImageId"],
            "InstanceType": "t3.large",
            "MinCount": 1,
            "MaxCount": 1,
            "SubnetId": self.region.subnet_id,
            "SecurityGroupIds": list(self.region.security_group_ids),
            "KeyName": self.region.key_name,
            **({"ClientToken": token} if token else {}),
            **changes,
        }
        answer = await self.ec2.run_instances(**wish)
        launched: dict[str, Any] = answer["Instances"][0]
        return launched

    async def describe(self, instance_id: str) -> dict[str, Any]:
        answer = await self.ec2.describe_instances(InstanceIds=[instance_id])
        instance: dict[str, Any] = answer["Reservations"][0]["Instances"][0]
        return instance

    async def move(self, call: str, instance_id: str) -> tuple[str, str]:
        """Start, stop or terminate; the states before and after, as the answer tells them."""
        answer = await getattr(self.ec2, f"{call}_instances")(InstanceIds=[instance_id])
        (change,) = next(value for key, value in answer.items() if key.endswith("Instances"))
        return change["PreviousState"]["Name"], change["CurrentState"]["Name"]

    async def terminated(self) -> str:
        """The id of an instance that is no more."""
        instance_id = await self.launch()
        await self.move("terminate", instance_id)
        await self.reaches(instance_id, "terminated")
        return instance_id

    async def state(self, instance_id: str) -> str:
        return str((await self.describe(instance_id))["State"]["Name"])

    async def reaches(self, instance_id: str, state: str) -> dict[str, Any]:
        """Wait until an instance is in a state, and describe it."""

        async def described() -> dict[str, Any] | None:
            instance = await self.describe(instance_id)
            return instance if instance["State"]["Name"] == state else None

        instance: dict[str, Any] = await eventually(described)
        return instance

    async def running(self) -> dict[str, Any]:
        """A new instance that runs."""
        return await self.reaches(await self.launch(), "running")

    async def instances_with(self, name: str, value: str) -> list[str]:
        """The ids of instances that a filter finds, over all pages."""
        pages = self.ec2.get_paginator("describe_instances").paginate(
            Filters=[{"Name": name, "Values": [value]}]
        )
        return [i["InstanceId"] async for page in pages for r in page["Reservations"] for i in r["Instances"]]

    async def fault(self, **fault: Any) -> None:
        await self.control("POST", "faults", fault)

    async def console(self, action: str, instance_id: str) -> None:
        """What a person does in the AWS console."""
        wish = {"action": action, "region": self.region.region, "instance_id": instance_id}
        await self.control("POST", "console", wish)

    async def control(self, method: str, name: str, body: Any = None) -> Any:
        async with self._http.request(method, f"{self.info.control_url}/{name}", json=body) as response:
            response.raise_for_status()
            return await response.json() if response.status == 200 else None

    async def is_reachable(self) -> bool:
        """Whether the AWS process still lives."""
        try:
            await self.control("GET", "simulation")
        except (aiohttp.ClientConnectionError, aiohttp.ClientPayloadError):
            return False
        return True

    async def is_silent(self) -> None:
        """Wait until nobody answers any more."""

        async def unreachable() -> bool:
            return not await self.is_reachable()

        await eventually(unreachable)

    @staticmethod
    @contextmanager
    def refuses(code: str) -> Iterator[None]:
        """EC2 answers with this error code inside the block."""
        with pytest.raises(ClientError) as refusal:
            yield
        assert refusal.value.response["Error"]["Code"] == code


@pytest.fixture
def start_simulator() -> Callable[..., AbstractContextManager[RunningSimulator]]:
    return running_simulator


@pytest.fixture(scope="session")
def simulator() -> Iterator[RunningSimulator]:
    with running_simulator() as running:
        yield running


@asynccontextmanager
async def opened_cloud(info: SimulationInfo, region: int = 0) -> AsyncIterator[Cloud]:
    """The SDK as an application would use it, but without repeats of its own."""
    client = SESSION.create_client(
        "ec2",
        region_name=info.regions[region].region,
        endpoint_url=info.aws_endpoint,
        aws_access_key_id="any",
        aws_secret_access_key="any",
        config=AioConfig(retries={"max_attempts": 0}, read_timeout=PATIENCE_SECONDS),
    )
    timeout = aiohttp.ClientTimeout(total=PATIENCE_SECONDS)
    async with client as ec2, aiohttp.ClientSession(timeout=timeout) as http:
        yield Cloud(info, info.regions[region], ec2, http)


@pytest.fixture
def open_cloud() -> Callable[..., AbstractAsyncContextManager[Cloud]]:
    return opened_cloud


@pytest.fixture
async def cloud(simulator: RunningSimulator) -> AsyncIterator[Cloud]:
    """us-east-1."""
    async with opened_cloud(simulator.info) as cloud:
        yield cloud
        await cloud.control("DELETE", "faults")


@pytest.fixture
async def other_cloud(simulator: RunningSimulator) -> AsyncIterator[Cloud]:
    """eu-west-1."""
    async with opened_cloud(simulator.info, 1) as cloud:
        yield cloud


class Answer(NamedTuple):
    """A CML server's."""

    status: int
    body: Any


class Cml:
    """Asks simulated CML servers, whatever certificate they show."""

    def __init__(self, info: SimulationInfo, http: aiohttp.ClientSession) -> None:
        self.info = info
        self._http = http

    async def ask(
        self, address: str, path: str, *, method: str = "GET", token: str | None = None, body: Any = None
    ) -> Answer:
        url = f"https://{address}:{self.info.cml_port}/api/v0/{path}"
        headers = {"Authorization": f"Bearer {token}"} if token else {}
        async with self._http.request(method, url, headers=headers, json=body, ssl=False) as response:
            is_json = response.content_type == "application/json"
            return Answer(response.status, await response.json() if is_json else await response.text())

    async def look(self, address: str) -> str:
        """How far a server is, in a word."""
        try:
            answer = await self.ask(address, "system_information")
        except (aiohttp.ClientConnectionError, aiohttp.ClientPayloadError):
            return "refused"
        if answer.status == 502:
            return "502"
        return "ready" if answer.body["ready"] else "not ready"

    async def becomes(self, address: str, *looks: str) -> None:
        """Wait until a server looks like one of these."""

        async def looks_so() -> bool:
            return await self.look(address) in looks

        await eventually(looks_so)

    async def looks_until_ready(self, address: str) -> list[str]:
        """Every look of a booting server, in order, without repetitions."""
        seen: list[str] = []

        async def is_ready() -> bool:
            now = await self.look(address)
            if [now] != seen[-1:]:
                seen.append(now)
            return now == "ready"

        await eventually(is_ready)
        return seen

    async def login(self, address: str) -> str:
        """A token."""
        credentials = {"username": self.info.cml_username, "password": self.info.cml_password}
        answer = await self.ask(address, "authenticate", method="POST", body=credentials)
        assert answer.status == 200
        return str(answer.body)

    async def connect(self, address: str) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        """A bare TLS connection."""
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
        return await asyncio.open_connection(address, self.info.cml_port, ssl=context)

    async def certificate(self, address: str) -> bytes:
        _, writer = await self.connect(address)
        certificate: bytes = writer.get_extra_info("ssl_object").getpeercert(binary_form=True)
        writer.close()
        return certificate


@asynccontextmanager
async def opened_cml(info: SimulationInfo) -> AsyncIterator[Cml]:
    """Every question makes a connection of its own."""
    connector = aiohttp.TCPConnector(force_close=True)
    timeout = aiohttp.ClientTimeout(total=PATIENCE_SECONDS)
    async with aiohttp.ClientSession(connector=connector, timeout=timeout) as http:
        yield Cml(info, http)


@pytest.fixture
def open_cml() -> Callable[..., AbstractAsyncContextManager[Cml]]:
    return opened_cml


@pytest.fixture
async def cml(simulator: RunningSimulator) -> AsyncIterator[Cml]:
    async with opened_cml(simulator.info) as cml:
        yield cml


@pytest.fixture
async def new_address(cloud: Cloud, cml: Cml) -> str:
    """Where a CML server is ready that no other test knows of."""
    address = str((await cloud.running())["PrivateIpAddress"])
    await cml.becomes(address, "ready")
    return address


@pytest.fixture(scope="session")
def shared_addresses() -> list[str]:
    return []


@pytest.fixture
async def address(cloud: Cloud, cml: Cml, shared_addresses: list[str]) -> str:
    """Where a CML server is ready, for tests that only ask it something."""
    if not shared_addresses:
        shared_addresses.append(str((await cloud.running())["PrivateIpAddress"]))
        await cml.becomes(shared_addresses[0], "ready")
    return shared_addresses[0]
