"""CML's labs API: the only place from which LCM changes labs."""

import asyncio
from collections import defaultdict
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final, TypeVar
from urllib.parse import quote

import msgspec

from lcm.cml.connection import JSON, CmlAnswer
from lcm.cml.session import CmlSession
from lcm.cml.sessions import CmlServer
from lcm.core.clock import Clock
from lcm.core.timeouts import timeout
from lcm.domain.errors import (
    CredentialsRefused,
    LabRefused,
    LcmError,
    NotFound,
    Throttled,
    UnknownReference,
    Unreachable,
)
from lcm.domain.lablet.node_definitions import NodeDefinition, read_node_definition
from lcm.domain.launch import WorkerId
from lcm.domain.observation import Absent, Known, Observation, Unknown
from lcm.lablet_controller.ports import (
    CmlLab,
    CmlNode,
    Console,
    ElementState,
    ElementStates,
    ImageDefinition,
    ImportedLab,
    LabListing,
)

API: Final = "/api/v0"
STARTS_PER_WORKER: Final = 4
"""How many changes a server works on at a time: CML answered 500 to more in earlier releases."""

_GARBAGE_ERRORS: Final = (msgspec.MsgspecError, ValueError, RecursionError)
"""Not JSON, not UTF-8, nested too deeply."""

T = TypeVar("T")


@dataclass(frozen=True)
class LabLimits:
    """How long calls may take, each from the moment it is sent, and how many are made at a time."""

    read_seconds: float = 10.0
    change_seconds: float = 30.0
    import_seconds: float = 60.0
    """A large topology takes CML most of a minute."""
    changes_per_worker: int = STARTS_PER_WORKER
    reads_per_worker: int = 8
    changes_in_all: int = 10


class CmlLabsClient:
    """Uses the session that all clients of a server share."""

    def __init__(
        self, session_of: Callable[[CmlServer], CmlSession], clock: Clock, limits: LabLimits | None = None
    ) -> None:
        self._session_of = session_of
        self._clock = clock
        self._limits = limits or LabLimits()
        self._changes = _Places(self._limits.changes_per_worker)
        self._reads = _Places(self._limits.reads_per_worker)
        self._all_changes = asyncio.Semaphore(self._limits.changes_in_all)

    # Labs

    async def list_labs(self, server: CmlServer, *, show_all: bool = True) -> LabListing:
        taken_at = self._clock.now()
        sees_all = show_all and await self._sees_all(server)
        query = "?show_all=true" if show_all else ""
        ids = await self._read_as(server, f"labs{query}", list[str])
        return LabListing(tuple(ids), sees_all, taken_at)

    async def get_lab(self, server: CmlServer, lab_id: str) -> Observation[CmlLab]:
        taken_at = self._clock.now()
        try:
            answer = await self._answer(server, _lab(lab_id))
            if not _says_no_such_lab(answer, lab_id):
                return Known(_decode(_body(answer, server, lab_id), _Lab, server).lab(), taken_at)
            if await self._sees_all(server):
                return Absent(f"CML at {server.host} answers that it has no lab {lab_id}")
        except LcmError as error:
            return Unknown(str(error), is_failure=True)
        return Unknown(
            f"CML at {server.host} shows no lab {lab_id} to an account that is no administrator:"
            " another user's lab would not be shown either"
        )

    async def import_lab(self, server: CmlServer, topology: str, *, title: str) -> ImportedLab:
        body = await self._change(
            server,
            "POST",
            f"import?title={quote(title, safe='')}",
            body=topology.encode(),
            content_type=None,
            limit=self._limits.import_seconds,
        )
        made = _decode(body, _Imported, server)
        return ImportedLab(made.id, tuple(map(str, made.warnings or ())))

    async def download_lab(self, server: CmlServer, lab_id: str) -> str:
        answer = await self._answer(server, f"{_lab(lab_id)}/download", self._limits.change_seconds)
        body = _body(answer, server, lab_id)
        try:
            return body.decode()
        except UnicodeDecodeError as error:
            raise _invalid(server, error) from None

    async def start_lab(self, server: CmlServer, lab_id: str) -> None:
        await self._change(server, "PUT", f"{_lab(lab_id)}/start", lab_id)

    async def stop_lab(self, server: CmlServer, lab_id: str) -> None:
        await self._change(server, "PUT", f"{_lab(lab_id)}/stop", lab_id)

    async def wipe_lab(self, server: CmlServer, lab_id: str) -> None:
        await self._change(server, "PUT", f"{_lab(lab_id)}/wipe", lab_id)

    async def delete_lab(self, server: CmlServer, lab_id: str) -> None:
        with suppress(NotFound):
            await self._change(server, "DELETE", _lab(lab_id), lab_id)

    # What is in them

    async def nodes(self, server: CmlServer, lab_id: str) -> Sequence[CmlNode]:
        path = f"{_lab(lab_id)}/nodes?data=true&operational=true&exclude_configurations=true"
        return [node.node() for node in await self._read_as(server, path, list[_Node], lab_id)]

    async def set_node_tags(self, server: CmlServer, lab_id: str, node_id: str, tags: Sequence[str]) -> None:
        body = msgspec.json.encode({"tags": list(tags)})
        await self._change(server, "PATCH", _node(lab_id, node_id), lab_id, body=body)

    async def stop_node(self, server: CmlServer, lab_id: str, node_id: str) -> None:
        await self._change(server, "PUT", f"{_node(lab_id, node_id)}/state/stop", lab_id)

    async def extract_configuration(self, server: CmlServer, lab_id: str, node_id: str) -> None:
        await self._change(server, "PUT", f"{_node(lab_id, node_id)}/extract_configuration", lab_id)

    async def element_states(self, server: CmlServer, lab_id: str) -> ElementStates:
        path = f"{_lab(lab_id)}/lab_element_state"
        states = await self._read_as(server, path, _ElementStates, lab_id)
        return ElementStates(_states(states.nodes), _states(states.interfaces), _states(states.links))

    async def has_converged(self, server: CmlServer, lab_id: str) -> bool:
        return await self._read_as(server, f"{_lab(lab_id)}/check_if_converged", bool, lab_id)

    # Definitions

    async def node_definitions(self, server: CmlServer) -> Sequence[NodeDefinition]:
        definitions = []
        for body in await self._read_as(server, "node_definitions", list[dict[str, Any]]):
            with suppress(UnknownReference):
                definitions.append(read_node_definition(body))
        return definitions

    async def image_definitions(self, server: CmlServer) -> Sequence[ImageDefinition]:
        images = await self._read_as(server, "image_definitions", list[_Image])
        return [ImageDefinition(image.id, image.node_definition_id, image.label) for image in images]

    # Calls

    async def _sees_all(self, server: CmlServer) -> bool:
        """Whether LCM's account is an administrator, by what the server says now."""
        session = self._session_of(server)
        await session.token()
        if session.user_id is None:
            return False
        try:
            return (await self._read_as(server, f"users/{quote(session.user_id, safe='')}", _User)).admin
        except (CredentialsRefused, LabRefused):
            return False  # an administrator may read every account

    async def _read_as(self, server: CmlServer, path: str, kind: type[T], lab_id: str = "") -> T:
        return _decode(_body(await self._answer(server, path), server, lab_id), kind, server)

    async def _answer(self, server: CmlServer, path: str, limit: float | None = None) -> CmlAnswer:
        seconds = limit or self._limits.read_seconds
        async with self._reads.one(server, seconds):
            return await self._session_of(server).request("GET", f"{API}/{path}", timeout_seconds=seconds)

    async def _change(
        self,
        server: CmlServer,
        method: str,
        path: str,
        lab_id: str = "",
        *,
        body: bytes | None = None,
        content_type: str | None = JSON,
        limit: float | None = None,
    ) -> bytes:
        seconds = limit or self._limits.change_seconds
        async with self._changes.one(server, seconds), _place(self._all_changes, server, seconds):
            answer = await self._session_of(server).request(
                method, f"{API}/{path}", body, content_type=content_type, timeout_seconds=seconds
            )
        return _body(answer, server, lab_id)


class _Places:
    """How many calls each server gets at a time."""

    def __init__(self, per_worker: int) -> None:
        self._of: dict[WorkerId, asyncio.Semaphore] = defaultdict(lambda: asyncio.Semaphore(per_worker))

    @asynccontextmanager
    async def one(self, server: CmlServer, seconds: float) -> AsyncIterator[None]:
        async with _place(self._of[server.worker_id], server, seconds):
            yield


@asynccontextmanager
async def _place(places: asyncio.Semaphore, server: CmlServer, seconds: float) -> AsyncIterator[None]:
    try:
        async with timeout(seconds):
            await places.acquire()
    except TimeoutError:
        raise Throttled(f"calls to CML at {server.host} wait for each other; nothing was sent") from None
    try:
        yield
    finally:
        places.release()


# Answers


class _Refusal(msgspec.Struct, frozen=True):
    code: int
    description: str


class _User(msgspec.Struct, frozen=True):
    admin: bool


class _Imported(msgspec.Struct, frozen=True):
    id: str
    warnings: list[Any] | None = None


class _Image(msgspec.Struct, frozen=True):
    id: str
    node_definition_id: str
    label: str = ""


class _ElementStates(msgspec.Struct, frozen=True):
    nodes: dict[str, str]
    interfaces: dict[str, str]
    links: dict[str, str]


class _Lab(msgspec.Struct, frozen=True):
    id: str
    state: str
    lab_title: str | None = None
    lab_description: str | None = None
    lab_notes: str | None = None
    owner: str | None = None
    owner_username: str | None = None
    node_count: int | None = None
    link_count: int | None = None
    created: str | None = None
    modified: str | None = None

    def lab(self) -> CmlLab:
        return CmlLab(
            id=self.id,
            title=self.lab_title or "",
            description=self.lab_description or "",
            notes=self.lab_notes or "",
            owner_id=self.owner or "",
            owner=self.owner_username or "",
            state=_state(self.state),
            node_count=self.node_count or 0,
            link_count=self.link_count or 0,
            created=_time(self.created),
            modified=_time(self.modified),
        )


class _Console(msgspec.Struct, frozen=True):
    console_key: str
    label: str | None = None
    device_number: int | None = None


class _Operational(msgspec.Struct, frozen=True):
    compute_id: str | None = None
    vnc_key: str | None = None
    serial_consoles: list[_Console] | None = None


class _Node(msgspec.Struct, frozen=True):
    id: str
    label: str
    node_definition: str
    state: str
    image_definition: str | None = None
    tags: list[str] | None = None
    cpus: int | None = None
    ram: int | None = None
    x: float | None = None
    y: float | None = None
    operational: _Operational | None = None

    def node(self) -> CmlNode:
        running = self.operational or _Operational()
        return CmlNode(
            id=self.id,
            label=self.label,
            node_definition=self.node_definition,
            image_definition=self.image_definition,
            state=_state(self.state),
            tags=tuple(self.tags or ()),
            cpus=self.cpus,
            ram_mb=self.ram,
            x=self.x,
            y=self.y,
            compute_id=running.compute_id,
            consoles=tuple(
                Console(console.console_key, console.label or "", console.device_number or number)
                for number, console in enumerate(running.serial_consoles or ())
            ),
            vnc_key=running.vnc_key,
        )


def _body(answer: CmlAnswer, server: CmlServer, lab_id: str) -> bytes:
    """The body of a success; raises what anything else means."""
    if answer.status in (200, 201, 204):
        return answer.body
    if _says_no_such_lab(answer, lab_id):
        raise NotFound(f"CML at {server.host} has no lab {lab_id}")
    if answer.status == 429:
        raise Throttled(f"CML at {server.host} limits the rate of requests")
    if answer.status == 413:
        raise LabRefused(413, "the topology is too large for CML")
    refusal = _refusal(answer)
    if refusal is None or not 400 <= answer.status < 500:
        raise Unreachable(f"CML at {server.host} answered {answer.status}")
    raise LabRefused(answer.status, refusal.description)


def _says_no_such_lab(answer: CmlAnswer, lab_id: str) -> bool:
    """CML itself says it, about this lab; nginx and unknown paths answer 404 as well."""
    refusal = _refusal(answer) if lab_id and answer.status == 404 else None
    return refusal is not None and f"Lab not found: {lab_id}" in refusal.description


def _refusal(answer: CmlAnswer) -> _Refusal | None:
    """An error as CML's application writes it; None for those of the proxy before it."""
    try:
        refusal = msgspec.json.decode(answer.body, type=_Refusal)
    except _GARBAGE_ERRORS:
        return None
    return refusal if refusal.code == answer.status else None


def _decode(body: bytes, kind: type[T], server: CmlServer) -> T:
    try:
        return msgspec.json.decode(body, type=kind)
    except _GARBAGE_ERRORS as error:
        raise _invalid(server, error) from None


def _invalid(server: CmlServer, error: Exception) -> Unreachable:
    return Unreachable(f"CML at {server.host} sent an invalid answer: {error}")


def _states(states: dict[str, str]) -> dict[str, ElementState]:
    return {element_id: _state(state) for element_id, state in states.items()}


def _state(text: str) -> ElementState:
    try:
        return ElementState(text)
    except ValueError:
        return ElementState.OTHER


def _time(text: str | None) -> datetime | None:
    try:
        return datetime.fromisoformat(text) if text else None
    except ValueError:
        return None


def _lab(lab_id: str) -> str:
    return f"labs/{quote(lab_id, safe='')}"


def _node(lab_id: str, node_id: str) -> str:
    return f"{_lab(lab_id)}/nodes/{quote(node_id, safe='')}"
