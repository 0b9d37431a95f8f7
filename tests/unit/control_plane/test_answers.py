"""Answers to a request when the store of the control plane fails."""

import json
from collections.abc import Sequence
from random import Random
from typing import Any

import pytest

from lcm.control_plane.access.roles import AccessKeys
from lcm.control_plane.access.sealing import SecretBox
from lcm.control_plane.access.secrets import SecretStore
from lcm.control_plane.main import assemble
from lcm.control_plane.store.memory import MemoryStore
from lcm.control_plane.store.port import Document, StoreUnavailable, WriteUnconfirmed
from lcm.core.ids import RandomIds
from lcm.core.kv.memory import MemoryKv
from support.asgi import request
from support.control_plane import ONE_REGION
from support.virtual_time import VirtualClock

KEYS = AccessKeys("viewer-key", "operator-key", "admin-key", "controller-key")


class BrokenStore(MemoryStore):
    """A store that fails in a way of its own."""

    def __init__(self, error: Exception) -> None:
        super().__init__()
        self.error = error

    async def list_holding(self, kind: str, prefix: str) -> Sequence[Document]:
        raise self.error


async def answer_with(error: Exception) -> tuple[int, dict[str, Any]]:
    clock, ids = VirtualClock(), RandomIds(Random(1))
    store = BrokenStore(error)
    parts = assemble(
        store,
        MemoryKv(clock, ids),
        KEYS,
        clock=clock,
        ids=ids,
        policies=ONE_REGION,
        secrets=SecretStore(store, SecretBox.of(bytes(32))),
    )
    headers = {"Authorization": f"Bearer {KEYS.admin}"}
    status, body = await request(parts.app, "GET", "/api/workers", headers, None)
    return status, json.loads(body)


@pytest.mark.parametrize(
    ("error", "kind", "says", "never"),
    [
        (StoreUnavailable("disk full"), "store-unavailable", "nothing was changed", "may have happened"),
        (WriteUnconfirmed("no word"), "write-unconfirmed", "may have happened", "nothing was changed"),
    ],
)
async def test_a_failing_store_is_distinguished_from_an_unconfirmed_write(
    error: Exception, kind: str, says: str, never: str
) -> None:
    status, problem = await answer_with(error)
    assert (status, problem["type"]) == (503, f"urn:lcm:problem:{kind}")
    assert says in problem["detail"]
    assert never not in problem["detail"]


async def test_an_unexpected_error_is_a_problem_that_gives_nothing_away() -> None:
    status, problem = await answer_with(RuntimeError("password=hunter2"))
    assert (status, problem["type"]) == (500, "urn:lcm:problem:internal")
    assert "hunter2" not in json.dumps(problem)
    assert "log" in problem["detail"]
