"""The routes of scheduling, asked as over HTTP: roles, problems, and a snapshot that is sent once."""

import json
from collections.abc import Mapping
from datetime import timedelta
from random import Random
from typing import Any

import pytest

from lcm.control_plane.access.roles import AccessKeys, Role
from lcm.control_plane.access.sealing import SecretBox
from lcm.control_plane.access.secrets import SecretStore
from lcm.control_plane.main import assemble
from lcm.control_plane.store.memory import MemoryStore
from lcm.core.configuration import read_yaml
from lcm.core.ids import RandomIds
from lcm.core.kv.memory import MemoryKv
from lcm.domain.lablet.decision import DecisionRecord, Outcome
from lcm.domain.lablet.session import create_session
from lcm.domain.scaling import AuditEvent
from lcm.rest.scheduling_client import SchedulingClient
from support.asgi import request
from support.control_plane import ONE_REGION
from support.fleet import TEMPLATES
from support.lablets import NOON
from support.virtual_time import VirtualClock
from unit.domain.lablet.test_definition import define

KEYS = AccessKeys("viewer-key", "operator-key", "admin-key", "controller-key")
SEATS = b'{"needs": {"cpu": 2, "memory_gb": 4, "storage_gb": 10, "nodes": 3}, "count": 2}'


class Api:
    """A control plane in memory, and the client of a scheduler that leads."""

    def __init__(self) -> None:
        clock, ids, store = VirtualClock(), RandomIds(Random(1)), MemoryStore()
        parts = assemble(
            store,
            MemoryKv(clock, ids),
            KEYS,
            clock=clock,
            ids=ids,
            policies=ONE_REGION,
            secrets=SecretStore(store, SecretBox.of(bytes(32))),
        )
        self.clock = clock
        self._app = parts.app
        self.records = parts.plane.records
        self.epoch = 0
        self.sizes: list[int] = []
        self.scheduler = SchedulingClient(
            self, KEYS.controller, service="resource-scheduler", epoch=lambda: self.epoch
        )

    async def send(
        self, method: str, path: str, headers: Mapping[str, str], body: bytes | None
    ) -> tuple[int, bytes]:
        status, answer = await request(self._app, method, path, headers, body)
        self.sizes.append(len(answer))
        return status, answer

    async def ask(
        self, path: str, body: bytes | None = None, *, by: str = KEYS.viewer
    ) -> tuple[int, dict[str, Any]]:
        headers = {"Authorization": f"Bearer {by}", "Content-Type": "application/json"}
        method = "GET" if body is None else "POST"
        status, answer = await request(self._app, method, path, headers, body)
        return status, json.loads(answer)

    async def add_session(self, session_id: str, owner_id: str) -> None:
        made = create_session(define(), session_id=session_id, owner_id=owner_id, now=self.clock.now())
        await self.records.sessions.add(made)


@pytest.fixture
async def api() -> Api:
    api = Api()
    await api.records.templates.seed(read_yaml(TEMPLATES))
    return api


async def test_the_owner_and_operators_get_an_explanation(api: Api) -> None:
    await api.add_session("mine", KEYS.id_of(Role.VIEWER))
    await api.add_session("other", "ann")
    statuses = [
        (await api.ask(f"/api/lablet-sessions/{name}/explain", by=by))[0]
        for name, by in (
            ("mine", KEYS.viewer),
            ("other", KEYS.viewer),
            ("other", KEYS.operator),
            ("none", KEYS.operator),
        )
    ]
    assert statuses == [200, 404, 200, 404]
    _, found = await api.ask("/api/lablet-sessions/mine/explain")
    assert (found["outcome"], found["position"]) == ("scale_up", 1)


async def test_a_viewer_sees_the_own_part_of_the_queue(api: Api) -> None:
    await api.add_session("other", "ann")
    await api.clock.sleep(1)
    await api.add_session("mine", KEYS.id_of(Role.VIEWER))
    _, own = await api.ask("/api/scheduling/queue")
    _, every = await api.ask("/api/scheduling/queue", by=KEYS.operator)
    assert [(entry["session"]["id"], entry["position"]) for entry in own["items"]] == [("mine", 2)]
    assert [entry["session"]["id"] for entry in every["items"]] == ["other", "mine"]


async def test_the_queue_says_when_each_likely_gets_a_worker_as_its_explanation_does(api: Api) -> None:
    for name in ("s1", "s2"):
        await api.add_session(name, "ann")
    _, queue = await api.ask("/api/scheduling/queue", by=KEYS.operator)
    for entry in queue["items"]:
        path = f"/api/lablet-sessions/{entry['session']['id']}/explain"
        _, found = await api.ask(path, by=KEYS.operator)
        assert entry["likely_at"] == found["eta"]["likely"]
    assert queue["items"][0]["likely_at"] > "2026"


async def test_a_preview_is_answered_to_a_viewer_and_bad_ones_say_what_to_do(api: Api) -> None:
    status, found = await api.ask("/api/scheduling/preview", SEATS)
    assert (status, len(found["seats"]), found["verdict"]) == (200, 2, "fits")
    for body, expected, words in (
        (b"{}", 422, "name either a definition or the needs"),
        (b'{"definition_id": "none"}', 404, "list them with GET /api/lablet-definitions"),
        (SEATS[:-1] + b', "aws_region": "nowhere"}', 422, "choose one of: us-east-1"),
        (SEATS[:-1] + b', "count": 201}', 422, "count"),
        (
            SEATS[:-1] + b', "timeslot": {"start": "2020-01-01T09:00:00Z", "end": "2020-01-01T10:00:00Z"}}',
            422,
            "choose a later start",
        ),
        (
            SEATS[:-1] + b', "timeslot": {"start": "2030-01-01T09:00:00Z", "end": "2030-01-01T08:00:00Z"}}',
            422,
            "end after it starts",
        ),
    ):
        status, problem = await api.ask("/api/scheduling/preview", body)
        assert (status, words in problem["detail"]) == (expected, True), problem


async def test_a_snapshot_that_has_not_changed_is_not_sent_again(api: Api) -> None:
    api.epoch = await api.scheduler.claim_leadership("etcd", 1, "one")
    await api.add_session("s1", "ann")
    first = await api.scheduler.get_snapshot()
    again = await api.scheduler.get_snapshot()
    assert again is first
    assert api.sizes[-1] == 0
    await api.add_session("s2", "ann")
    assert len((await api.scheduler.get_snapshot()).sessions) == 2


async def test_a_region_that_rests_is_the_same_snapshot_until_it_may_grow_again(api: Api) -> None:
    api.epoch = await api.scheduler.claim_leadership("etcd", 1, "one")
    await api.records.audit.record(
        AuditEvent.SCALE_UP_ACCEPTED, by="scheduler", reason="no room", aws_region="us-east-1"
    )
    first = await api.scheduler.get_snapshot()
    assert first.growth["us-east-1"].refusal
    await api.clock.sleep(10)
    assert await api.scheduler.get_snapshot() is first
    await api.clock.sleep(300)
    assert not (await api.scheduler.get_snapshot()).growth["us-east-1"].refusal


def placed(session_id: str, worker_id: str) -> DecisionRecord:
    return DecisionRecord(
        session_id=session_id,
        at=NOON,
        outcome=Outcome.ASSIGN,
        code=None,
        worker_id=worker_id,
        text=f"Goes to worker {worker_id}.",
        score=None,
        candidates=(),
        counts={},
        revision="r",
        milliseconds=1,
    )


async def test_placements_are_reported_by_the_leader_and_listed_for_operators(api: Api) -> None:
    api.epoch = await api.scheduler.claim_leadership("etcd", 1, "one")
    await api.scheduler.report_placements([placed("s1", "w1"), placed("s2", "w2")])
    _, page = await api.ask("/api/placements?limit=1", by=KEYS.operator)
    assert [item["session_id"] for item in page["items"]] == ["s2"]
    _, rest = await api.ask(f"/api/placements?before={page['next']}", by=KEYS.operator)
    assert ([item["session_id"] for item in rest["items"]], rest["next"]) == (["s1"], None)
    _, of_worker = await api.ask("/api/placements?worker_id=w2", by=KEYS.operator)
    assert len(of_worker["items"]) == 1


async def test_a_viewer_sees_placements_of_own_sessions_only(api: Api) -> None:
    api.epoch = await api.scheduler.claim_leadership("etcd", 1, "one")
    await api.add_session("mine", KEYS.id_of(Role.VIEWER))
    await api.add_session("theirs", "ann")
    await api.scheduler.report_placements([placed("mine", "w1"), placed("theirs", "w1")])
    _, page = await api.ask("/api/placements")
    assert [item["session_id"] for item in page["items"]] == ["mine"]
    _, page = await api.ask("/api/placements?session_id=theirs")
    assert page["items"] == []


async def test_a_scheduler_that_calls_is_not_silent(api: Api) -> None:
    assert not api.records.scheduler.is_silent
    await api.clock.sleep(100)
    _, queue = await api.ask("/api/scheduling/queue")
    assert queue["is_scheduler_silent"]
    await api.scheduler.claim_leadership("etcd", 1, "one")
    _, queue = await api.ask("/api/scheduling/queue")
    assert not queue["is_scheduler_silent"]


async def test_a_controller_lists_sessions_by_status_and_by_when_they_changed(api: Api) -> None:
    async def listed(query: str) -> list[str]:
        path = f"/api/internal/lablet-sessions?{query}"
        status, body = await api.send("GET", path, {"X-API-Key": KEYS.controller}, None)
        assert status == 200, body
        return [item["id"] for item in json.loads(body)["items"]]

    for name in ("s1", "s2"):
        await api.add_session(name, "ann")
        await api.clock.sleep(60)
    between = (api.clock.now() - timedelta(seconds=90)).isoformat().replace("+00:00", "Z")
    assert await listed("status=pending_scheduling") == ["s1", "s2"]
    assert await listed("status=scheduled") == []
    assert await listed(f"changed_since={between}") == ["s2"]


async def test_the_calendar_of_a_day_is_the_default_and_other_ranges_are_checked(api: Api) -> None:
    _, found = await api.ask("/api/scheduling/calendar")
    assert (len(found["steps"]), found["entries"]) == (96, [])
    day = "from=2026-01-02T00:00:00Z&to=2026-01-03T00:00:00Z"
    _, found = await api.ask(f"/api/scheduling/calendar?{day}&step=60")
    assert found["steps"][0]["at"] == "2026-01-02T00:00:00Z"
    backwards = "from=2026-01-02T00:00:00Z&to=2026-01-01T00:00:00Z"
    for query in (f"{day}&step=1", "from=yesterday", "from=0.5", "from=2026-01-02T00:00:00", backwards):
        status, problem = await api.ask(f"/api/scheduling/calendar?{query}")
        assert status == 422, problem
