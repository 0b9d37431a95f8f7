"""An idempotency key stands for one request: its method, path, query and body, and who sends it."""

import json
from random import Random
from typing import Any, NamedTuple

import pytest

from lcm.control_plane.access.roles import AccessKeys
from lcm.control_plane.access.sealing import SecretBox
from lcm.control_plane.access.secrets import SecretStore
from lcm.control_plane.main import assemble
from lcm.control_plane.records.workers import Workers
from lcm.control_plane.store.memory import MemoryStore
from lcm.core.ids import RandomIds
from lcm.core.kv.memory import MemoryKv
from lcm.domain.lifecycle import RUNNING, DesiredStatus
from lcm.domain.worker import Worker
from support.asgi import request
from support.control_plane import ONE_REGION
from support.core import a_worker
from support.virtual_time import VirtualClock

KEYS = AccessKeys("viewer-key", "operator-key", "admin-key", "controller-key")
HOLD = b'{"until": "2099-01-01T00:00:00Z"}'
OTHER_HOLD = b'{"until": "2099-01-02T00:00:00Z"}'


class Sent(NamedTuple):
    """A request about the worker."""

    method: str
    path: str = ""
    body: bytes = b""


class Api:
    """A control plane in memory with one running worker, asked as over HTTP."""

    def __init__(self) -> None:
        clock, ids = VirtualClock(), RandomIds(Random(1))
        store = MemoryStore()
        parts = assemble(
            store,
            MemoryKv(clock, ids),
            KEYS,
            clock=clock,
            ids=ids,
            policies=ONE_REGION,
            secrets=SecretStore(store, SecretBox.of(bytes(32))),
        )
        self._app = parts.app
        self.workers = Workers(store)
        self.worker = a_worker(status=RUNNING)

    async def send(self, sent: Sent, *, by: str = KEYS.admin) -> tuple[int, dict[str, Any]]:
        headers = {
            "Authorization": f"Bearer {by}",
            "Content-Type": "application/json",
            "Idempotency-Key": "one key",
        }
        path = f"/api/workers/{self.worker.id}{sent.path}"
        status, body = await request(self._app, sent.method, path, headers, sent.body)
        return status, json.loads(body)

    async def record(self) -> Worker:
        return await self.workers.get(self.worker.id)


@pytest.fixture
async def api() -> Api:
    api = Api()
    await api.workers.add(api.worker)
    return api


@pytest.mark.parametrize(
    ("first", "second"),
    [
        pytest.param(Sent("PUT", "/hold", HOLD), Sent("DELETE", "/hold", HOLD), id="another method"),
        pytest.param(Sent("POST", "/stop"), Sent("POST", "/start"), id="another path"),
        pytest.param(Sent("DELETE"), Sent("DELETE", "?force=true"), id="another query"),
        pytest.param(Sent("PUT", "/hold", HOLD), Sent("PUT", "/hold", OTHER_HOLD), id="another body"),
    ],
)
async def test_a_key_is_refused_for_a_request_that_differs_in_one_part(
    api: Api, first: Sent, second: Sent
) -> None:
    assert (await api.send(first))[0] == 202
    before = await api.record()
    status, problem = await api.send(second)
    assert (status, problem.get("type")) == (422, "urn:lcm:problem:key-reused")
    assert await api.record() == before


async def test_the_same_request_under_its_key_is_accepted_again_and_changes_nothing(api: Api) -> None:
    assert (await api.send(Sent("DELETE", "?force=true")))[0] == 202
    before = await api.record()
    assert (await api.send(Sent("DELETE", "?force=true")))[0] == 202
    assert await api.record() == before


async def test_another_persons_key_is_another_key(api: Api) -> None:
    assert (await api.send(Sent("POST", "/stop"), by=KEYS.admin))[0] == 202
    assert (await api.send(Sent("POST", "/start"), by=KEYS.operator))[0] == 202
    assert (await api.record()).desired_status is DesiredStatus.RUNNING
