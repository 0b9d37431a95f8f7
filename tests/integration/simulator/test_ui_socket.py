"""`/ws/ui` over real TLS: a token in the first frame, then events, as labs and nodes change."""

import asyncio
import json
import ssl
from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from functools import partial
from typing import Any

import aiohttp
import pytest
from websockets.asyncio.client import ClientConnection, connect
from websockets.exceptions import ConnectionClosed, InvalidStatus

from lcm.core.timeouts import timeout
from lcm.simulator.cml.server import AUTH_SECONDS
from lcm.simulator.main import SimulatedWorker, SimulationInfo
from support.patience import PATIENCE_SECONDS
from support.processes import RunningSimulator, eventually, running_simulator

STATS_SECONDS = 0.2


class Worker:
    """One simulated worker: its REST API, its WebSocket, its controls."""

    def __init__(self, info: SimulationInfo, worker: SimulatedWorker, http: aiohttp.ClientSession) -> None:
        self.info = info
        self._worker = worker
        self._http = http

    @property
    def name(self) -> str:
        return self._worker.instance_id

    async def rest(
        self, method: str, path: str, *, token: str | None = None, body: Any = None
    ) -> tuple[int, Any]:
        headers = {"Authorization": f"Bearer {token}"} if token else {}
        url = f"{self._worker.url}/api/v0/{path}"
        async with self._http.request(method, url, json=body, headers=headers, ssl=False) as response:
            is_json = response.content_type == "application/json"
            return response.status, await response.json() if is_json else await response.read()

    async def login(self) -> str:
        credentials = {"username": self._worker.username, "password": self._worker.password}
        status, token = await self.rest("POST", "authenticate", body=credentials)
        assert status == 200
        return str(token)

    async def control(self, method: str, path: str, body: Any = None) -> Any:
        """Through the AWS process, as everybody does who only knows the control URL."""
        async with self._http.request(method, f"{self.info.control_url}/cml/{path}", json=body) as response:
            assert response.status < 300, await response.text()
            return await response.json() if response.status == 200 else None

    async def fault(self, **fault: Any) -> None:
        await self.control("POST", "faults", {"worker": self.name, **fault})

    async def look(self) -> dict[str, Any]:
        looked: dict[str, Any] = await self.control("GET", f"workers/{self.name}")
        return looked

    async def lab(self, **wish: Any) -> dict[str, Any]:
        made: dict[str, Any] = await self.control("POST", f"workers/{self.name}/labs", wish)
        return made

    async def act(self, action: str, lab: dict[str, Any], **more: Any) -> None:
        wish = {"action": action, "lab_id": lab["lab_id"], **more}
        await self.control("POST", f"workers/{self.name}/acts", wish)

    def open(self, **headers: str) -> AbstractAsyncContextManager[ClientConnection]:
        """A WebSocket that has said nothing yet."""
        url = self._worker.url.replace("https", "wss")
        return connect(f"{url}/ws/ui", ssl=_trusting(), additional_headers=headers, max_size=None)

    @asynccontextmanager
    async def listening(self) -> AsyncIterator[ClientConnection]:
        """A WebSocket that has shown a good token."""
        async with self.open() as socket:
            await socket.send(json.dumps({"token": await self.login()}))
            await eventually(self._has_listener)
            yield socket

    async def _has_listener(self) -> bool:
        return bool((await self.look())["listeners"])


def _trusting() -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    return context


@pytest.fixture(scope="module")
def simulation() -> Any:
    with running_simulator("--workers", "2", "--no-people") as running:
        yield running


@pytest.fixture
async def workers(simulation: RunningSimulator) -> AsyncIterator[list[Worker]]:
    timeout = aiohttp.ClientTimeout(total=PATIENCE_SECONDS)
    connector = aiohttp.TCPConnector(force_close=True)
    async with aiohttp.ClientSession(timeout=timeout, connector=connector) as http:
        found = [Worker(simulation.info, worker, http) for worker in simulation.info.workers]
        await found[0].control("PATCH", "workers", {"stats_seconds": STATS_SECONDS, "version": None})
        yield found
        await found[0].control("DELETE", "faults")


@pytest.fixture
def worker(workers: list[Worker]) -> Worker:
    return workers[0]


async def next_event(socket: ClientConnection, **wanted: Any) -> dict[str, Any]:
    """The next event with these values; others are passed over."""
    async with timeout(PATIENCE_SECONDS):
        while True:
            event: dict[str, Any] = json.loads(await socket.recv())
            if wanted.items() <= event.items():
                return event


async def closed(socket: ClientConnection) -> tuple[int, str]:
    """How the server closes, whatever it sends before."""
    async with timeout(PATIENCE_SECONDS):
        while True:
            try:
                await socket.recv()
            except ConnectionClosed as end:
                return (end.rcvd.code, end.rcvd.reason) if end.rcvd else (1006, "")


# The token


async def test_a_good_token_is_followed_by_events_without_an_acknowledgement(worker: Worker) -> None:
    async with worker.listening() as socket:
        first = json.loads(await asyncio.wait_for(socket.recv(), PATIENCE_SECONDS))
        assert first.keys() == {"event_type", "data"}
        assert first["event_type"] == "system_stats"


@pytest.mark.parametrize("frame", ["not a token", '{"authorization": "x"}', '{"token": "a.b.c"}', "[]"])
async def test_a_wrong_first_frame_is_closed_at_once(worker: Worker, frame: str) -> None:
    async with worker.open() as socket:
        await socket.send(frame)
        assert await closed(socket) == (3000, "Unauthorized")


async def test_silence_is_closed_after_ten_seconds_whatever_the_headers_say(worker: Worker) -> None:
    started = asyncio.get_running_loop().time()
    async with worker.open(Authorization=f"Bearer {await worker.login()}") as socket:
        assert await closed(socket) == (3000, "Unauthorized")
    assert asyncio.get_running_loop().time() - started >= AUTH_SECONDS - 0.5


async def test_a_token_of_another_server_is_no_token(workers: list[Worker]) -> None:
    async with workers[0].open() as socket:
        await socket.send(json.dumps({"token": await workers[1].login()}))
        assert await closed(socket) == (3000, "Unauthorized")


async def test_a_dead_token_is_refused_and_a_new_one_is_not(worker: Worker) -> None:
    token = await worker.login()
    await worker.fault(kind="expired_token")
    assert (await worker.rest("GET", "authok", token=token))[0] == 401
    async with worker.open() as socket:
        await socket.send(json.dumps({"token": token}))
        assert await closed(socket) == (3000, "Unauthorized")
    async with worker.listening() as socket:
        await next_event(socket, event_type="system_stats")


async def test_a_release_before_2_7_has_no_socket(worker: Worker) -> None:
    await worker.control("PATCH", f"workers/{worker.name}", {"version": "2.6.1"})
    with pytest.raises(InvalidStatus) as refusal:
        async with worker.open():
            pass
    assert refusal.value.response.status_code == 404


# Events


async def test_the_load_comes_again_and_again_and_equals_the_rest_answer(worker: Worker) -> None:
    token = await worker.login()
    async with worker.listening() as socket:
        first, second = [await next_event(socket, event_type="system_stats") for _ in range(2)]
    asked = (await worker.rest("GET", "system_stats", token=token))[1]
    for event in (first, second):
        assert _shape(event["data"]) == _shape(asked)


async def test_a_lab_is_seen_from_its_creation_to_its_end(worker: Worker) -> None:
    async with worker.listening() as socket:
        lab = await worker.lab(title="seen", nodes=1, definition="server")
        (node_id,) = lab["nodes"]
        about: dict[str, Any] = {"lab_id": lab["lab_id"]}
        created = await next_event(socket, event_type="lab_event", **about)
        assert created == {"event_type": "lab_event", "lab_id": lab["lab_id"], "event": "created", "data": {}}
        element = await next_event(socket, event_type="lab_element_event", **about)
        assert (element["event"], element["element_type"], element["element_id"]) == (
            "created",
            "node",
            node_id,
        )
        assert element["data"]["node_definition"] == "server"

        await worker.act("start", lab)
        node = {"event_type": "state_change", "element_type": "node", "element_id": node_id, **about}
        assert (await next_event(socket, **node))["event"] == "QUEUED"
        state = await next_event(socket, event_type="lab_event", **about)
        assert (state["event"], state["data"]) == ("state", {"state": "STARTED", "lab_title": "seen"})
        assert (await next_event(socket, **node))["event"] == "STARTED"
        assert (await next_event(socket, **node))["event"] == "BOOTED"
        stats = await next_event(socket, event_type="lab_stats", **about)
        assert stats["data"]["nodes"].keys() == {node_id}

        await worker.act("stop", lab)
        assert (await next_event(socket, **node))["event"] == "STOPPED"
        assert (await next_event(socket, event_type="lab_event", **about))["data"]["state"] == "STOPPED"
        await worker.act("wipe", lab)
        await worker.act("delete", lab)
        assert (await next_event(socket, **node))["event"] == "DEFINED_ON_CORE"
        await next_event(socket, event_type="lab_event", event="deleted", **about)


async def test_every_listener_sees_the_same(worker: Worker) -> None:
    async with worker.listening() as one, worker.listening() as other:
        lab = await worker.lab()
        wanted = {"event_type": "lab_event", "lab_id": lab["lab_id"]}
        assert await next_event(one, **wanted) == await next_event(other, **wanted)


async def test_pings_are_answered_and_a_polite_close_is_returned(worker: Worker) -> None:
    async with worker.listening() as socket:
        await asyncio.wait_for(await socket.ping(), PATIENCE_SECONDS)
        await socket.close(1000, "done")
        assert socket.close_code == 1000

        async def nobody_listens() -> bool:
            return not (await worker.look())["listeners"]

        await eventually(nobody_listens)


async def test_what_a_rest_client_does_is_seen_on_the_socket(worker: Worker) -> None:
    token = await worker.login()
    async with worker.listening() as socket:
        lab = (await worker.rest("POST", "labs", token=token, body={"title": "by rest"}))[1]
        await worker.rest("PATCH", f"labs/{lab['id']}", token=token, body={"notes": "changed"})
        await next_event(socket, event_type="lab_event", event="created", lab_id=lab["id"])
        modified = await next_event(socket, event_type="lab_event", event="modified", lab_id=lab["id"])
        assert modified["data"] == {"notes": "changed"}


# Faults


@pytest.mark.parametrize(
    ("code", "reason"), [(1000, "bye"), (1001, ""), (1011, "oops"), (3000, "Unauthorized"), (4711, "x")]
)
async def test_sockets_are_closed_with_any_code(worker: Worker, code: int, reason: str) -> None:
    async with worker.listening() as socket:
        await worker.fault(kind="close", code=code, reason=reason)
        assert await closed(socket) == (code, reason)


async def test_a_cut_connection_has_no_close_frame(worker: Worker) -> None:
    async with worker.listening() as socket:
        await worker.fault(kind="close", code=1006)
        assert await closed(socket) == (1006, "")


async def test_a_lasting_close_meets_every_new_socket_until_it_is_cleared(worker: Worker) -> None:
    await worker.fault(kind="close", code=1012, reason="restart", lasting=True)
    for _ in range(2):
        async with worker.open() as socket:
            await socket.send(json.dumps({"token": await worker.login()}))
            assert await closed(socket) == (1012, "restart")
    await worker.control("DELETE", f"faults?worker={worker.name}")
    async with worker.listening() as socket:
        await next_event(socket, event_type="system_stats")


async def test_a_silent_socket_stays_open_and_says_nothing_until_it_is_cleared(worker: Worker) -> None:
    async with worker.listening() as socket:
        await next_event(socket, event_type="system_stats")
        await worker.fault(kind="silence")
        await asyncio.wait_for(
            await socket.ping(), PATIENCE_SECONDS
        )  # everything sent before has arrived by now
        before = (await worker.look())["frames"]
        lab = await worker.lab()
        await worker.act("start", lab)
        assert (await worker.look())["frames"] == before
        await worker.control("DELETE", "faults")
        await next_event(socket, event_type="lab_stats", lab_id=lab["lab_id"])


async def test_a_zombie_does_not_even_answer_pings(worker: Worker) -> None:
    async with worker.listening() as socket:
        await worker.fault(kind="silence", answer_pings=False)
        pong = await socket.ping()
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(asyncio.shield(pong), 0.5)
        await worker.control("DELETE", "faults")
        await asyncio.wait_for(await socket.ping(), PATIENCE_SECONDS)


async def test_garbage_comes_in_every_flavour_and_events_go_on(worker: Worker) -> None:
    async with worker.listening() as socket:
        await worker.fault(kind="garbage", frames=9)
        nonsense = 0
        async with timeout(PATIENCE_SECONDS):
            while nonsense < 3:
                nonsense += not _is_event(await socket.recv(decode=False))
            while not _is_event(await socket.recv(decode=False)):
                pass


def _is_event(message: bytes) -> bool:
    try:
        return "event_type" in json.loads(message)
    except ValueError:
        return False


async def test_an_oversize_frame_has_the_size_that_was_asked_for(worker: Worker) -> None:
    async with worker.listening() as socket:
        await worker.fault(kind="oversize", size=3_000_000)
        async with timeout(PATIENCE_SECONDS):
            while len(await socket.recv()) != 3_000_000:
                pass


async def test_a_flood_arrives_completely(worker: Worker) -> None:
    async with worker.listening() as socket:
        event = {"event_type": "state_change", "lab_id": "x", "event": "QUEUED"}
        await worker.control("POST", f"workers/{worker.name}/flood", {"frames": 2000, "event": event})
        count = 0
        async with timeout(PATIENCE_SECONDS):
            while count < 2000:
                count += json.loads(await socket.recv())["event_type"] == "state_change"


@pytest.mark.parametrize("status", [401, 500, 502])
async def test_requests_fail_with_the_status_that_was_asked_for(worker: Worker, status: int) -> None:
    token = await worker.login()
    await worker.fault(kind="http", status=status, path="/api/v0/system_stats", count=1)
    assert (await worker.rest("GET", "system_health", token=token))[0] == 200
    assert (await worker.rest("GET", "system_stats", token=token))[0] == status
    assert (await worker.rest("GET", "system_stats", token=token))[0] == 200


async def test_a_handshake_can_fail_too(worker: Worker) -> None:
    await worker.fault(kind="http", status=502, path="/ws/ui")
    with pytest.raises(InvalidStatus) as refusal:
        async with worker.open():
            pass
    assert refusal.value.response.status_code == 502


async def test_answers_can_be_slow(worker: Worker) -> None:
    await worker.fault(kind="slow", seconds=0.5, path="/api/v0/system_information")
    started = asyncio.get_running_loop().time()
    assert (await worker.rest("GET", "system_information"))[0] == 200
    assert asyncio.get_running_loop().time() - started >= 0.5


async def test_another_certificate_is_shown_to_new_connections(worker: Worker) -> None:
    async def certificate() -> bytes:
        async with worker.open() as socket:
            tls = socket.transport.get_extra_info("ssl_object")
            shown: bytes = tls.getpeercert(binary_form=True)
            return shown

    before = await certificate()
    assert await certificate() == before
    await worker.fault(kind="certificate")
    assert await certificate() != before


async def test_refused_connections_come_back_and_other_workers_notice_nothing(workers: list[Worker]) -> None:
    struck, other = workers
    async with struck.listening() as socket:
        await struck.fault(kind="refuse")
        assert await closed(socket) == (1006, "")

    async def is_refused() -> bool:
        try:
            await struck.rest("GET", "system_information")
        except aiohttp.ClientConnectorError:
            return True
        except aiohttp.ClientError:
            return False
        return False

    await eventually(is_refused)
    assert (await other.rest("GET", "system_information"))[0] == 200
    await struck.control("DELETE", "faults")

    async def answers() -> bool:
        return not await is_refused()

    await eventually(answers)


async def test_a_fault_without_a_worker_strikes_all_of_them(workers: list[Worker]) -> None:
    await workers[0].control("POST", "faults", {"kind": "http", "status": 500})
    assert [(await worker.rest("GET", "system_information"))[0] for worker in workers] == [500, 500]


EMPTY_LAB = {"lab": {"title": "late", "version": "0.3.0"}, "nodes": [], "links": []}


async def test_a_late_import_comes_even_if_its_client_has_left(worker: Worker) -> None:
    token = await worker.login()
    await worker.fault(kind="late", path="/api/v0/import", seconds=0.2, count=1)
    with pytest.raises(TimeoutError):
        async with timeout(0.05):
            await worker.rest("POST", "import", token=token, body=EMPTY_LAB)

    async def has_come() -> bool:
        return "late" in {lab["title"] for lab in (await worker.look())["labs"]}

    await eventually(has_come)


async def test_faults_of_labs_are_injected_and_cleared(worker: Worker) -> None:
    lab = await worker.lab(nodes=1, definition="unmanaged_switch")
    await worker.fault(kind="never_boots", state="QUEUED")
    await worker.act("start", lab)
    node = {"element_id": next(iter(lab["nodes"]))}
    async with worker.listening() as socket:
        await worker.act("stop", lab)
        await next_event(socket, **node, event="STOPPED")
        await worker.control("DELETE", "faults")
        await worker.act("start", lab)
        await next_event(socket, **node, event="BOOTED")
    await worker.fault(kind="refuse_lab", action="stop", description="not now")
    with pytest.raises(AssertionError, match="not now"):
        await worker.act("stop", lab)


async def test_options_of_labs_can_be_changed(worker: Worker) -> None:
    await worker.control("PATCH", f"workers/{worker.name}", {"patty": False, "node_trouble": 0.0})
    assert (await worker.look())["open_ports"] == []
    with pytest.raises(AssertionError, match="node_trouble"):
        await worker.control("PATCH", "workers", {"node_trouble": 2})


async def test_mistakes_in_commands_are_explained(worker: Worker) -> None:
    for path, body in (
        ("faults", {"kind": "earthquake"}),
        ("faults", {"kind": "close", "worker": worker.name, "colour": "red"}),
        (f"workers/{worker.name}/acts", {"action": "dance", "lab_id": "x"}),
    ):
        async with worker._http.post(f"{worker.info.control_url}/cml/{path}", json=body) as response:
            assert response.status == 400
            assert (await response.json())["error"]
    async with worker._http.get(f"{worker.info.control_url}/cml/workers/i-unknown") as response:
        assert response.status == 404


async def test_the_pool_of_licences_can_run_out_and_be_out_of_reach(workers: list[Worker]) -> None:
    first, second = workers
    await first.control("PATCH", "licenses", {"size": 1})
    try:
        for worker, outcome in ((first, "COMPLETED"), (second, "FAILED")):
            token = await worker.login()
            wish = {"token": worker.info.license_token, "reregister": False}
            assert (await worker.rest("POST", "licensing/registration", token=token, body=wish))[0] == 204
            await eventually(partial(_registration_is, worker, token, outcome))
        assert len((await first.control("GET", "licenses"))["holders"]) == 1
        await first.control("PATCH", "licenses", {"is_reachable": False})
        assert (await first.rest("DELETE", "licensing/deregistration", token=await first.login()))[0] == 202
    finally:
        await first.control("PATCH", "licenses", {"size": 10_000, "is_reachable": True})


async def _registration_is(worker: Worker, token: str, outcome: str) -> bool:
    body = (await worker.rest("GET", "licensing", token=token))[1]
    return bool(body["registration"]["status"] == outcome)


def _shape(value: Any) -> Any:
    """The keys and types of something, without its values."""
    if isinstance(value, dict):
        return {key: _shape(inner) for key, inner in value.items()}
    return [_shape(inner) for inner in value] if isinstance(value, list) else type(value)
