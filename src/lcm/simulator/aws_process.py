"""The AWS process as its parent sees it: started, queried, and always ended."""

import asyncio
import sys
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import Final

import aiohttp
import msgspec

from lcm.core.timeouts import timeout
from lcm.simulator.aws.config import AwsConfig, AwsReady
from lcm.simulator.listing import InstanceListing, ListedInstance

START_SECONDS: Final = 60.0
END_SECONDS: Final = 2.0
WAIT_SECONDS: Final = 5.0
"""How long one long poll stays open; it is answered at once when something changes."""
LAUNCH_BATCH: Final = 50
"""Instances launched in one request; the AWS process answers nothing else meanwhile."""
REQUEST_TIMEOUT: Final = aiohttp.ClientTimeout(total=WAIT_SECONDS + 10)


class SimulationError(Exception):
    """The simulation cannot continue."""


class AwsProcess:
    """A running AWS process."""

    def __init__(self, process: asyncio.subprocess.Process, host: str, ready: AwsReady) -> None:
        self._process = process
        self.endpoint = f"http://{host}:{ready.port}"
        self.control_url = f"{self.endpoint}/_lcm"
        self.regions = ready.regions

    async def watch(self) -> None:
        """Raises when the process ends: it never does so by itself."""
        code = await self._process.wait()
        raise SimulationError(f"the AWS process ended unexpectedly with code {code}")

    async def publish(self, info: msgspec.Struct) -> None:
        """Publish the parts of the simulation at its control endpoint."""
        async with aiohttp.ClientSession(timeout=REQUEST_TIMEOUT) as http:
            body = msgspec.json.encode(info)
            async with http.put(f"{self.control_url}/simulation", data=body) as response:
                response.raise_for_status()

    async def launch(
        self, region: str, instance_types: Sequence[str], tags: Mapping[str, str]
    ) -> list[ListedInstance]:
        """Launch instances of these types that have been running for a while."""
        launched = []
        async with aiohttp.ClientSession(timeout=REQUEST_TIMEOUT) as http:
            for batch in range(0, len(instance_types), LAUNCH_BATCH):
                types = instance_types[batch : batch + LAUNCH_BATCH]
                body = msgspec.json.encode({"region": region, "instance_types": types, "tags": tags})
                async with http.post(f"{self.control_url}/instances", data=body) as response:
                    response.raise_for_status()
                    launched += msgspec.json.decode(await response.read(), type=list[ListedInstance])
        return launched

    async def listings(self) -> AsyncIterator[InstanceListing]:
        """The instances now, and again whenever something about them changes."""
        after = -1
        async with aiohttp.ClientSession(timeout=REQUEST_TIMEOUT) as http:
            while True:
                query = {"after": str(after), "wait": str(WAIT_SECONDS)}
                async with http.get(f"{self.control_url}/instances", params=query) as response:
                    response.raise_for_status()
                    listing = msgspec.json.decode(await response.read(), type=InstanceListing)
                after = listing.version
                yield listing


@asynccontextmanager
async def aws_process(config: AwsConfig) -> AsyncIterator[AwsProcess]:
    """A process that can answer; gone when the block is left, for whatever reason."""
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        "-m",
        "lcm.simulator.aws_server",
        msgspec.json.encode(config).decode(),
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        start_new_session=True,  # Ctrl-C is for us: the child ends when its standard input does
    )
    try:
        yield AwsProcess(process, config.host, await _readiness(process))
    finally:
        await _end(process)


async def _readiness(process: asyncio.subprocess.Process) -> AwsReady:
    assert process.stdout is not None
    try:
        async with timeout(START_SECONDS):
            line = await process.stdout.readline()
    except TimeoutError as late:
        raise SimulationError(f"the AWS process was not ready within {START_SECONDS:.0f} s") from late
    if not line:
        raise SimulationError("the AWS process ended before it was ready; its last output is above")
    return msgspec.json.decode(line, type=AwsReady)


async def _end(process: asyncio.subprocess.Process) -> None:
    assert process.stdin is not None
    process.stdin.close()
    try:
        async with timeout(END_SECONDS):
            await process.wait()
    except TimeoutError:
        process.kill()
        await process.wait()
