"""The simulation as a whole. Start reading here: wiring, no logic."""

import asyncio
import os
import random
import socket
import string
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from ipaddress import ip_address
from pathlib import Path
from typing import Final

import msgspec

from lcm.domain.template import RegionConfig
from lcm.simulator.aws.config import AwsConfig
from lcm.simulator.aws_process import SimulationError, aws_process
from lcm.simulator.cml.fleet import Fleet
from lcm.simulator.cml.server import Credentials
from lcm.simulator.pace import Delays, Pace

__all__ = ["Delays", "SimulationError", "SimulationInfo", "SimulationSettings", "run"]

CML_USERNAME: Final = "admin"
PORT_KEEPER: Final = "127.64.0.1"
"""No machine has this address; whoever holds the CML port here may use it in the whole network."""


@dataclass(frozen=True)
class SimulationSettings:
    """What can be chosen about a simulation."""

    seed: int = 0
    """Decides delays, load and the password; the same seed gives the same world."""
    host: str = "127.0.0.1"
    port: int = 0
    """Of the AWS endpoint; 0 takes a free one."""
    cml_port: int = 0
    """Of every CML server; 0 takes a free one."""
    speed: float = 1.0
    """Divides all delays."""
    data_dir: Path | None = None
    """Where temporary files go; None: the system's place for them."""
    delays: Delays = field(default_factory=Delays)

    def __post_init__(self) -> None:
        if not ip_address(self.host).is_loopback:
            raise ValueError(f"host must be a loopback address, not {self.host}: there is no access control")
        if self.speed <= 0:
            raise ValueError("speed must be above 0")


class SimulationInfo(msgspec.Struct, frozen=True, kw_only=True):
    """All that another program needs to use the simulation."""

    aws_endpoint: str
    control_url: str
    cml_port: int
    cml_username: str
    cml_password: str
    regions: list[RegionConfig]
    pid: int


async def run(settings: SimulationSettings, announce: Callable[[SimulationInfo], None]) -> None:
    """Run the simulated world until cancelled; `announce` is called once, when all of it answers."""
    pace = Pace(seed=settings.seed, speed=settings.speed)
    credentials = Credentials(CML_USERNAME, _password(settings.seed))
    config = AwsConfig(host=settings.host, port=settings.port, pace=pace, delays=settings.delays)
    with _reserved_port(settings.cml_port) as cml_port:
        fleet = Fleet(
            port=cml_port,
            credentials=credentials,
            pace=pace,
            delays=settings.delays,
            directory=settings.data_dir,
        )
        async with aws_process(config) as aws, asyncio.TaskGroup() as tasks:
            tasks.create_task(aws.watch(), name="aws-process")
            tasks.create_task(fleet.follow(aws.listings()), name="cml-fleet")
            info = SimulationInfo(
                aws_endpoint=aws.endpoint,
                control_url=aws.control_url,
                cml_port=cml_port,
                cml_username=credentials.username,
                cml_password=credentials.password,
                regions=aws.regions,
                pid=os.getpid(),
            )
            await aws.publish(info)
            announce(info)


def _password(seed: int) -> str:
    return "".join(random.Random(f"cml-password/{seed}").choices(string.ascii_letters + string.digits, k=20))


@contextmanager
def _reserved_port(port: int) -> Iterator[int]:
    """A port that is ours on every simulated address: a second simulator finds it taken."""
    with socket.socket() as keeper:
        try:
            keeper.bind((PORT_KEEPER, port))
        except OSError as failure:
            raise SimulationError(f"cannot use port {port} on {PORT_KEEPER} for CML: {failure}") from failure
        yield keeper.getsockname()[1]
