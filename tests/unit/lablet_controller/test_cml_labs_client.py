"""The client of CML's labs API: time limits, calls at a time, and answers that mean nothing."""

import asyncio

import msgspec
import pytest

from lcm.cml.connection import JSON, CmlAnswer, OnPiece
from lcm.cml.session import CmlSession, Credentials, always
from lcm.cml.sessions import CmlServer
from lcm.domain.errors import LabRefused, Throttled, Unreachable
from lcm.domain.launch import InstanceId, WorkerId
from lcm.domain.observation import Unknown
from lcm.lablet_controller.adapters.cml_labs import CmlLabsClient, LabLimits
from lcm.lablet_controller.ports import ElementState
from support.virtual_time import VirtualClock

LAB = "2b7f4c1e-0000-4000-8000-000000000000"
ADMINISTRATOR = b'{"id": "me", "admin": true}'
TOKEN = b'"e30.eyJzdWIiOiAibWUifQ.x"'  # whose user is "me"

clock = VirtualClock()


def server_of(worker: str) -> CmlServer:
    return CmlServer(WorkerId(worker), InstanceId("i-1"), f"{worker}.example", None, None)


SERVER = server_of("w-1")


class ScriptedServer:
    """Answers every call in one way after a time, and counts how many it works on at once."""

    def __init__(self, status: int = 204, body: bytes = b"", seconds: float = 0.0) -> None:
        self.answer = CmlAnswer(body, None, status)
        self.seconds = seconds
        self.account = CmlAnswer(ADMINISTRATOR, None)
        self.busy: dict[str, int] = {}
        self.busiest: dict[str, int] = {}
        self.most_in_all = 0
        self.limits: dict[str, float | None] = {}
        self.content_types: dict[str, str | None] = {}

    async def request(
        self,
        method: str,
        host: str,
        path: str,
        pinned_sha256: str | None,
        *,
        token: str | None = None,
        body: bytes | None = None,
        content_type: str | None = JSON,
        timeout_seconds: float | None = None,
        on_piece: OnPiece | None = None,
    ) -> CmlAnswer:
        if path == "/api/v0/authenticate":
            return CmlAnswer(TOKEN, None)
        if path == "/api/v0/users/me":
            return self.account
        name = path.split("?")[0].rsplit("/", 1)[1]
        self.limits[name], self.content_types[name] = timeout_seconds, content_type
        self.busy[host] = self.busy.get(host, 0) + 1
        self.busiest[host] = max(self.busiest.get(host, 0), self.busy[host])
        self.most_in_all = max(self.most_in_all, sum(self.busy.values()))
        await clock.sleep(self.seconds)
        self.busy[host] -= 1
        return self.answer


def client_of(server: ScriptedServer, limits: LabLimits | None = None) -> CmlLabsClient:
    sessions: dict[str, CmlSession] = {}

    def session_of(cml: CmlServer) -> CmlSession:
        if cml.host not in sessions:
            login = always(Credentials("admin", "secret"))
            sessions[cml.host] = CmlSession(server, login, cml.host, None, clock)
        return sessions[cml.host]

    return CmlLabsClient(session_of, clock, limits)


def error(status: int, description: str) -> bytes:
    return msgspec.json.encode({"code": status, "description": description})


@pytest.mark.parametrize(
    ("status", "body"),
    [
        (404, b"<html>404 Not Found</html>"),
        (404, error(404, "The requested URL /api/v0/labs was not found on the server.")),
        (404, error(404, "Lab not found: another")),
        (404, error(502, f"Lab not found: {LAB}")),
        (502, error(502, f"Lab not found: {LAB}")),
        (200, b'{"id": "cut off'),
        (200, b"null"),
        (302, b""),
    ],
)
async def test_only_cmls_own_404_for_this_lab_proves_that_it_is_gone(status: int, body: bytes) -> None:
    observation = await client_of(ScriptedServer(status, body)).get_lab(SERVER, LAB)
    assert isinstance(observation, Unknown)
    assert observation.is_failure


@pytest.mark.parametrize("status", [403, 404])
async def test_an_account_that_may_not_read_itself_sees_no_complete_listing(status: int) -> None:
    server = ScriptedServer(200, b"[]")
    server.account = CmlAnswer(error(status, "no"), None, status)
    assert (await client_of(server).list_labs(SERVER)).is_complete is False


async def test_a_listing_is_not_complete_if_the_account_cannot_be_read() -> None:
    server = ScriptedServer(200, b"[]")
    server.account = CmlAnswer(b"<html>", None, 502)
    with pytest.raises(Unreachable):
        await client_of(server).list_labs(SERVER)


@pytest.mark.parametrize(
    ("status", "body", "kind"),
    [
        (400, error(400, "no license"), LabRefused),
        (409, error(409, "busy"), LabRefused),
        (413, b"<html>", LabRefused),
        (400, b"<html>400 Bad Request</html>", Unreachable),
        (429, error(429, "slow down"), Throttled),
        (500, error(500, "unexpected"), Unreachable),
        (502, b"<html>", Unreachable),
    ],
)
async def test_only_cmls_own_words_are_a_refusal(status: int, body: bytes, kind: type[Exception]) -> None:
    with pytest.raises(kind):
        await client_of(ScriptedServer(status, body)).start_lab(SERVER, LAB)


async def test_an_import_has_a_minute_and_no_content_type() -> None:
    server = ScriptedServer(200, msgspec.json.encode({"id": LAB, "warnings": ["odd"]}))
    made = await client_of(server).import_lab(SERVER, "lab: {}", title="t")
    assert (made.lab_id, made.warnings) == (LAB, ("odd",))
    assert (server.limits["import"], server.content_types["import"]) == (60.0, None)


async def test_a_state_that_lcm_does_not_know_proves_nothing() -> None:
    body = msgspec.json.encode({"nodes": {"n": "HIBERNATED"}, "interfaces": {}, "links": {}})
    states = await client_of(ScriptedServer(200, body)).element_states(SERVER, LAB)
    assert states.nodes == {"n": ElementState.OTHER}


async def test_a_server_works_on_four_changes_and_the_fleet_on_ten_at_a_time() -> None:
    server = ScriptedServer(seconds=1.0)
    client = client_of(server)
    async with asyncio.TaskGroup() as tasks:
        for number in range(60):
            tasks.create_task(client.start_lab(server_of(f"w-{number // 12}"), LAB))
    assert max(server.busiest.values()) == 4
    assert server.most_in_all == 10


async def test_a_call_that_finds_no_place_in_time_was_not_sent() -> None:
    server = ScriptedServer(seconds=100.0)
    client = client_of(server, LabLimits(changes_per_worker=1, change_seconds=30.0))
    async with asyncio.TaskGroup() as tasks:
        tasks.create_task(client.start_lab(SERVER, LAB))
        await clock.sleep(1.0)
        with pytest.raises(Throttled, match="nothing was sent"):
            await client.stop_lab(SERVER, LAB)
    assert "stop" not in server.limits


async def test_reads_do_not_wait_for_changes() -> None:
    server = ScriptedServer(200, b"true", seconds=5.0)
    client = client_of(server, LabLimits(changes_per_worker=1))
    async with asyncio.TaskGroup() as tasks:
        tasks.create_task(client.start_lab(SERVER, LAB))
        began = clock.monotonic()
        assert await client.has_converged(SERVER, LAB)
        assert clock.monotonic() == began + 5.0
