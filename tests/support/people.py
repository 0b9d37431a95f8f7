"""A control plane with its HTTP application in memory, and people who send it requests, on virtual time."""

import json
from collections.abc import Mapping
from datetime import datetime, timedelta
from random import Random
from typing import Any, NamedTuple

from msgspec.structs import replace
from starlette.types import Message

from lcm.control_plane.access.roles import AccessKeys, Role
from lcm.control_plane.access.sealing import SecretBox
from lcm.control_plane.access.secrets import SecretStore
from lcm.control_plane.access.security_log import AuditedStore
from lcm.control_plane.main import assemble
from lcm.control_plane.policies import Policies
from lcm.control_plane.store.memory import MemoryStore
from lcm.core.configuration import read_yaml
from lcm.core.ids import RandomIds
from lcm.core.kv.memory import MemoryKv
from lcm.domain.capacity import Capacity
from lcm.domain.launch import WorkerId
from lcm.domain.lifecycle import RUNNING
from lcm.domain.worker import Cml, new_worker
from support import asgi
from support.control_plane import ONE_REGION
from support.fleet import TEMPLATES
from support.virtual_time import VirtualClock
from unit.domain.lablet.test_topology import BRANCH_OFFICE

KEYS = AccessKeys("viewer-key", "operator-key", "admin-key", "controller-key")
ROOM = Capacity(cpu=48, memory_gb=192, storage_gb=1_000, nodes=200)

LABLET_KINDS = (
    "worker",
    "lablet-definition",
    "lablet-topology",
    "lablet-session",
    "ended-lablet-session",
    "lablet-reservation",
    "lablet-batch",
    "lablet-audit",
)


class Answer(NamedTuple):
    """What came back."""

    status: int
    text: bytes
    headers: Mapping[str, str]

    @property
    def body(self) -> Any:
        return json.loads(self.text)

    @property
    def kind(self) -> str:
        """The last part of the type of a problem document."""
        return str(self.body["type"]).rpartition(":")[2]


class Person:
    """Sends requests with the key of a role."""

    def __init__(self, desk: "PublicDesk", role: Role) -> None:
        self._desk = desk
        self.id = KEYS.id_of(role)
        self._key: str = getattr(KEYS, role.label)

    async def get(self, path: str) -> Answer:
        return await self.send("GET", path)

    async def post(self, path: str, body: Any = None, **headers: str) -> Answer:
        return await self.send("POST", path, body, **headers)

    async def put(self, path: str, body: Any, **headers: str) -> Answer:
        return await self.send("PUT", path, body, **headers)

    async def delete(self, path: str, **headers: str) -> Answer:
        return await self.send("DELETE", path, **headers)

    async def send(self, method: str, path: str, body: Any = None, **headers: str) -> Answer:
        """Send a request; `if_match` and `idempotency_key` are headers."""
        names = {name.replace("_", "-"): value for name, value in headers.items()}
        sent = {"authorization": f"Bearer {self._key}", "content-type": "application/json", **names}
        text = None if body is None else json.dumps(body).encode()
        begun: list[Message] = []

        async def app(scope: Any, receive: Any, send: Any) -> None:
            async def note(message: Message) -> None:
                begun.append(message)
                await send(message)

            await self._desk.parts.app(scope, receive, note)

        status, content = await asgi.request(app, method, path, sent, text)
        got = {name.decode(): value.decode() for name, value in begun[0]["headers"]}
        return Answer(status, content, got)


class PublicDesk:
    """The application over a store in memory, with one template seeded and one large worker."""

    def __init__(self, policies: Policies = ONE_REGION, store: MemoryStore | None = None) -> None:
        self.clock = VirtualClock()
        self.ids = RandomIds(Random(1))
        self.store = store or MemoryStore()
        self.policies = policies
        self.restart()
        self.viewer, self.operator, self.admin = (Person(self, role) for role in Role)

    def restart(self) -> None:
        """End the process and start it anew on the same store."""
        self.kv = MemoryKv(self.clock, self.ids)
        store = AuditedStore(self.store, self.clock)
        self.parts = assemble(
            store,
            self.kv,
            KEYS,
            secrets=SecretStore(store, SecretBox.of(bytes(32))),
            policies=self.policies,
            clock=self.clock,
            ids=self.ids,
            requests_per_second=1e6,
        )
        self.records = self.parts.plane.records

    async def open(self) -> "PublicDesk":
        """Seed the templates and add a worker that runs."""
        await self.records.templates.seed(read_yaml(TEMPLATES))
        worker = new_worker(
            worker_id=WorkerId("w1"),
            name="w1",
            template_name="metal",
            aws_region="us-east-1",
            tags={},
            by="ann",
            now=self.clock.now(),
            declared_capacity=ROOM,
        )
        await self.records.workers.add(replace(worker, status=RUNNING, cml=Cml(is_ready=True)))
        return self

    async def define(self, name: str = "branch", **fields: Any) -> dict[str, Any]:
        """Have an admin create a definition."""
        body = {"name": name, "lab_yaml": BRANCH_OFFICE, **fields}
        made = await self.admin.post("/api/lablet-definitions", body)
        assert made.status == 201, made.text
        return dict(made.body)

    async def book(self, **fields: Any) -> dict[str, Any]:
        """Have an operator create a session."""
        made = await self.operator.post("/api/lablet-sessions", {"definition": "branch", **fields})
        assert made.status == 201, made.text
        return dict(made.body["session"])

    def slot(self, *, in_minutes: float, minutes: float = 60) -> dict[str, str]:
        start = self.clock.now() + timedelta(minutes=in_minutes)
        return {"start": iso(start), "end": iso(start + timedelta(minutes=minutes))}

    async def documents(self) -> dict[tuple[str, str], int]:
        """The records of lablets and their versions: bad input changes none of them."""
        return {
            (document.kind, document.id): document.version
            for kind in LABLET_KINDS
            for document in await self.store.list_all(kind)
        }


def iso(moment: datetime) -> str:
    return moment.isoformat().replace("+00:00", "Z")
