"""LCM as several processes on a real etcd: killed, frozen and cut off while a person keeps using it.

Two worker controllers, each with an access key of its own, so that the simulated EC2 knows who called. What
happens in etcd is witnessed with the time it happened.
"""

import json
import os
import re
import signal
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from contextlib import ExitStack, asynccontextmanager, contextmanager, suppress
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import IO, Any, Final, Self

import aiohttp
import msgspec
import yaml

from lcm.core.timeouts import timeout
from support.api import Api, Console, Json, console_of, person
from support.canaries import suite_canaries, watched_session
from support.etcd import EtcdCluster, etcd_cluster
from support.patience import PATIENCE_SECONDS
from support.ports import reserve_port, session_ports
from support.processes import RunningSimulator, eventually, running_simulator
from support.quick_start import Process, start_lcm

LEASE_SECONDS: Final = int(os.environ.get("LCM_HA_LEASE_TTL", "3"))
"""The shortest that is allowed, to keep tests quick."""
TRIALS: Final = int(os.environ.get("LCM_HA_TRIALS", "4"))
"""How often a failover is tried; `make soak-ha` tries more."""
AGES: Final = 600
"""The seconds of a lease that does not expire in a test."""
OUTAGE_SECONDS: Final = float(os.environ.get("LCM_HA_OUTAGE_SECONDS", LEASE_SECONDS))
"""How long an outage lasts after every process has noticed it; `make soak-ha` takes minutes."""
RECOVERY_SECONDS: Final = 30.0
"""Until full function after the end of an outage."""
IS_MEASURING: Final = any(name.startswith("LCM_HA_") for name in os.environ)
"""Whether `make soak-ha` runs: only then durations are checked."""
MUTATING: Final = ("RunInstances", "StartInstances", "StopInstances", "TerminateInstances")
CONNECTED: Final = re.compile(r'^lcm_worker_websocket_connected\{worker_id="([^"]+)"\} 1', re.MULTILINE)
KEY: Final = "the-key-of-the-controllers-of-the-test"
NAMES: Final = ("ada", "bob")


def now() -> float:
    return time.monotonic()  # noqa: TID251 - between real processes


@dataclass
class LcmProcess:
    """One `lcm …`, which can be killed, frozen and started again at the same address."""

    name: str
    arguments: Sequence[str]
    environment: Mapping[str, str]
    port: int = field(default_factory=reserve_port)
    _process: Process | None = None
    _errors: IO[str] = field(default_factory=lambda: tempfile.TemporaryFile("w+"))  # noqa: SIM115

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    @property
    def is_running(self) -> bool:
        return self._process is not None

    def start(self) -> None:
        suite_canaries.know_environment(self.environment)
        arguments = (*self.arguments, "--port", str(self.port), "--json")
        self._process = start_lcm(arguments, self._errors, self.environment)

    def wait_until_answering(self) -> None:
        assert self._process is not None
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        assert line, f"{self.name} ended before it answered:\n{self.said()}"

    def send(self, number: signal.Signals) -> None:
        assert self._process is not None
        self._process.send_signal(number)

    def end(self, number: signal.Signals = signal.SIGTERM) -> None:
        """Send it the signal and wait until it is gone."""
        if self._process is None:
            return
        process, self._process = self._process, None
        process.send_signal(signal.SIGCONT)
        process.send_signal(number)
        try:
            process.wait(timeout=PATIENCE_SECONDS)
        finally:
            process.kill()
            assert process.stdout is not None
            process.stdout.close()

    def said(self) -> str:
        self._errors.seek(0)
        return self._errors.read()

    def forget(self) -> None:
        self.end()
        suite_canaries.search(f"the log of {self.name}", self.said())
        if "LCM_DATA_DIR" in self.environment:
            suite_canaries.search_data_dir(Path(self.environment["LCM_DATA_DIR"]))
        self._errors.close()


def environment_of(directory: Path, etcd: EtcdCluster, simulator: RunningSimulator) -> dict[str, str]:
    """What every process needs to work with this etcd and this simulated cloud."""
    info = simulator.info
    regions = directory / "regions.yaml"
    configs = {config.region: msgspec.to_builtins(config) for config in info.regions}
    regions.write_text(yaml.safe_dump({"aws_region_configs": configs}))
    return {
        "ETCD_ENDPOINTS": ",".join(etcd.endpoints),
        **_patience_of(LEASE_SECONDS),
        **session_ports(),
        "RECONCILE_INTERVAL": "3",
        "WATCH_DEBOUNCE_SECONDS": "0.1",
        "WORKER_WAIT_SECONDS": "0.1",
        "CONTROL_PLANE_API_KEY": KEY,
        "REGIONS_CONFIG_PATH": str(regions),
        "AWS_REGION": info.regions[0].region,
        "AWS_ENDPOINT_URL": info.aws_endpoint,
        "AWS_SECRET_ACCESS_KEY": "simulated",
        "CML_WORKER_API_PORT": str(info.cml_port),
        "CML_WORKER_API_USERNAME": info.cml_username,
        "CML_WORKER_API_PASSWORD": info.cml_password,
        "LCM_DATA_DIR": str(directory / "data"),
    }


class Ensemble:
    """An etcd, a simulated cloud, a control plane, two worker controllers, and a person."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self._stack = ExitStack()

    def __enter__(self) -> Self:
        self.etcd: EtcdCluster = self._stack.enter_context(etcd_cluster())
        self.simulator: RunningSimulator = self._stack.enter_context(running_simulator())
        self._environment = environment_of(self.directory, self.etcd, self.simulator)
        self.plane = LcmProcess("control plane", ("control-plane",), self._environment)
        self._stack.callback(self.plane.forget)
        self.plane.start()
        self.plane.wait_until_answering()
        self.controllers = {name: self._controller(name) for name in NAMES}
        for controller in self.controllers.values():
            self._stack.callback(controller.forget)
            controller.start()
        for controller in self.controllers.values():
            controller.wait_until_answering()
        return self

    def __exit__(self, *_: object) -> None:
        with suppress(ValueError):
            for process in (self.plane, *self.controllers.values()):
                print(f"--- {process.name}\n{process.said()}", file=sys.stderr)
        self._stack.close()

    def _controller(self, name: str) -> LcmProcess:
        own = {
            "AWS_ACCESS_KEY_ID": name,
            "WORKER_CONTROLLER_INSTANCE_ID": name,
            "CONTROL_PLANE_API_URL": self.plane.url,
        }
        return LcmProcess(name, ("worker-controller",), {**self._environment, **own})

    @asynccontextmanager
    async def life(self) -> AsyncIterator["Life"]:
        """A person at the control plane, an operator at the controllers, and a person at the AWS console."""
        token = json.loads((self.directory / "data" / "keys.json").read_text())["admin"]
        async with (
            person(self.plane.url, token) as api,
            console_of(self.simulator.info.aws_endpoint) as console,
            watched_session() as http,
        ):
            life = Life(self, api, console, http)
            await life.wait_for_a_leader()
            yield life

    def restart_controllers(self, lease_seconds: int) -> None:
        """Let them resign, and continue with longer or shorter leases."""
        for controller in self.controllers.values():
            controller.end()
            controller.environment = {**controller.environment, **_patience_of(lease_seconds)}
        self.restore()

    @contextmanager
    def long_leases(self) -> Iterator[None]:
        """Use leases that do not expire in a test, however slow the host is."""
        self.restart_controllers(AGES)
        try:
            yield
        finally:
            self.restart_controllers(LEASE_SECONDS)

    def restore(self) -> None:
        """Start whatever is down, as it was."""
        self.etcd.restart()
        down = [p for p in (self.plane, *self.controllers.values()) if not p.is_running]
        for process in down:
            process.start()
        for process in down:
            process.wait_until_answering()


def _patience_of(lease_seconds: int) -> dict[str, str]:
    return {
        "LEADER_LEASE_TTL": str(lease_seconds),
        "ETCD_CALL_TIMEOUT_SECONDS": f"{lease_seconds * 0.25:g}",
    }


@dataclass(frozen=True)
class Life:
    """The ensemble as people and operators use it."""

    ensemble: Ensemble
    api: Api
    console: Console
    http: aiohttp.ClientSession = field(repr=False)

    # The operator.

    async def health(self, name: str) -> Json:
        """The health of a controller; None if it does not answer."""
        url = f"{self.ensemble.controllers[name].url}/health"
        try:
            async with timeout(1), self.http.get(url) as response:
                return await response.json()
        except (aiohttp.ClientError, OSError, TimeoutError):
            return None

    async def lead_of(self, name: str) -> Json:
        """The health of a controller if it leads."""
        said = await self.health(name)
        return said if said is not None and said["is_leader"] and said["epoch"] else None

    async def leader(self) -> str | None:
        for name in NAMES:
            if await self.lead_of(name):
                return name
        return None

    async def wait_for_a_leader(self) -> str:
        leader: str = await eventually(self.leader)
        return leader

    async def wait_until_leading(self, name: str) -> Json:
        return await eventually(partial(self.lead_of, name))

    async def wait_for_a_later_leader(self, epoch: int) -> Json:
        """Wait for a leader with a higher epoch; return its health."""

        async def leads() -> Json:
            for name in NAMES:
                said = await self.lead_of(name)
                if said is not None and said["epoch"] > epoch:
                    return said
            return None

        return await eventually(leads)

    async def wait_for_a_pair(self) -> Json:
        """Wait until one leads and the other stands by; return the leader's health."""

        async def leads_and_stands_by() -> Json:
            leader = await self.leader()
            other = await self.health(self.other(leader)) if leader is not None else None
            if leader is None or other is None or other["is_leader"] or other["frozen"]:
                return None
            return await self.lead_of(leader)

        return await eventually(leads_and_stands_by)

    async def wait_until_only_one_watches(self, workers: Sequence[Json]) -> None:
        """Wait until each worker has one socket, all of them the leader's."""
        watched = {worker["id"] for worker in workers}
        instances = {(await self.launched_for(worker))[0]["id"] for worker in workers}

        async def is_so() -> bool:
            leader = await self.leader()  # on a slow host it may have changed once more
            listeners = {i: n for i, n in (await self._listeners()).items() if i in instances}
            return (
                leader is not None
                and listeners == dict.fromkeys(instances, 1)
                and watched <= await self._watched_by(leader)
                and not watched & await self._watched_by(self.other(leader))
            )

        await eventually(is_so)

    async def _listeners(self) -> dict[str, int]:
        """How many live connections each simulated CML server has, by instance."""
        async with self.http.get(f"{self.ensemble.simulator.info.cml_control_url}/workers") as response:
            return {server["instance_id"]: server["listeners"] for server in await response.json()}

    async def _watched_by(self, name: str) -> set[str]:
        """The workers a controller reports a live connection to; none if it does not answer."""
        url = f"{self.ensemble.controllers[name].url}/metrics"
        try:
            async with timeout(1), self.http.get(url) as response:
                text = await response.text()
        except (aiohttp.ClientError, OSError, TimeoutError):
            return set()
        return set(CONNECTED.findall(text))

    async def wait_until_frozen(self, *names: str) -> None:
        async def are_frozen() -> bool:
            said = [await self.health(name) for name in names]
            return all(one is not None and one["frozen"] and not one["is_leader"] for one in said)

        await eventually(are_frozen)

    @staticmethod
    def other(name: str) -> str:
        return next(other for other in NAMES if other != name)

    # The cloud.

    async def calls(self, caller: str | None = None, since: int = 0) -> list[Json]:
        """Calls that change something, newer than this number."""
        made: list[Json] = []
        for operation in MUTATING:
            made += await self.console.calls(operation)
        return [c for c in made if c["n"] > since and (caller is None or c["caller"] == caller)]

    async def newest_call(self) -> int:
        return max((call["n"] for call in await self.calls()), default=0)

    async def launched_for(self, worker: Json) -> list[Json]:
        return await self.console.instances_of(worker)

    # The person.

    async def running(self, name: str) -> Json:
        return await self.until(await self.api.create(name), "running")

    async def running_and_watched(self, *names: str) -> list[Json]:
        """Workers that the leader has a live connection to."""
        created = [await self.api.create(name) for name in names]
        workers = [await self.until(worker, "running") for worker in created]
        await self.wait_until_only_one_watches(workers)
        return workers

    async def see(self, worker: Json) -> Json:
        return await self.api.get(f"/api/workers/{worker['id']}")

    async def until(self, worker: Json, status: str) -> Json:
        async def is_there() -> Json:
            seen = await self.see(worker)
            return seen if seen["status"] == status else None

        return await eventually(is_there)

    async def remove(self, *workers: Json) -> None:
        for worker in workers:
            await self.api.act(worker, "delete")
        for worker in workers:
            await self.until(worker, "terminated")


def assert_promised(seconds: float, took: Sequence[float]) -> None:
    """One in five may be late: the bound is ours, but a busy host can delay any of them."""
    late = [f"{one:.2f}" for one in took if one > seconds]
    assert not IS_MEASURING or len(late) <= len(took) // 5, f"longer than {seconds} s: {late}"


@contextmanager
def printed_figures(what: str) -> Iterator[dict[str, Any]]:
    """Collect seconds under names and print them: figures for people, not assertions."""
    figures: dict[str, Any] = {}
    yield figures
    print(f"FIGURE {what}: " + ", ".join(f"{name} {value}" for name, value in figures.items()))
