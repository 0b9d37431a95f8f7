"""`lcm probe cml URL`: which assumptions of LCM about CML hold on a real server."""

from importlib.metadata import version
from typing import NamedTuple
from urllib.parse import urlsplit

from lcm.cml.session import Credentials
from lcm.core.clock import SystemClock
from lcm.core.ids import RandomIds
from lcm.core.redaction import redactor
from lcm.domain.diagnosis import Finding
from lcm.worker_controller.main import cml_probe
from lcm.worker_controller.probe.assumptions import judge
from lcm.worker_controller.probe.report import report

DEFAULT_PORT = 443


class Server(NamedTuple):
    """Where CML is."""

    host: str
    port: int


class Probed(NamedTuple):
    """What the assumptions came to, and the report to pass on."""

    findings: list[Finding]
    report: str


def server_at(url: str) -> Server | None:
    """The server of an address like https://cml.example.org; None if it is not one."""
    try:
        split = urlsplit(url)
        if split.scheme != "https" or not split.hostname or split.username:
            return None
        return Server(split.hostname, split.port or DEFAULT_PORT)
    except ValueError:
        return None


async def probe(server: Server, username: str, password: str, minutes: float) -> Probed:
    """Probe the server for so many minutes. Changes nothing on it."""
    redactor.protect(password)
    clock = SystemClock()
    credentials = Credentials(username, password, set_by="--username and CML_WORKER_API_PASSWORD")
    async with cml_probe(server.host, server.port, credentials, clock, RandomIds()) as probing:
        evidence = await probing.collect(minutes)
    secrets = (password, username, server.host)
    text = report(evidence, version("lablet-cloud-manager"), clock.now(), secrets)
    return Probed(judge(evidence), text)
