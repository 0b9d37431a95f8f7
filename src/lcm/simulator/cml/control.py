"""The control endpoint of the CML servers: inject faults, act as a user, inspect state.

Listens on loopback; the AWS process forwards requests under `/_lcm/cml/` to it.
"""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from itertools import pairwise
from typing import Any, Final, Literal, TypeVar

import msgspec

from lcm.simulator.cml.api.routing import Answer, Query, Router
from lcm.simulator.cml.faults import Fault
from lcm.simulator.cml.fleet import Fleet
from lcm.simulator.cml.lab import Lab
from lcm.simulator.cml.refusal import Refused
from lcm.simulator.cml.server import CmlServer, ServerOptions
from lcm.simulator.cml.site import Site
from lcm.simulator.cml.websocket import Opcode, frame
from lcm.simulator.cml.wire import Connection, Reply, Stream

PREFIX: Final = "/cml/"
DEFAULT_USER: Final = "operator"
"""The user of commands that name none."""
MAX_FLOOD_BYTES: Final = 48 * 1024 * 1024

T = TypeVar("T")


class Change(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Options of servers to change; absent ones stay."""

    version: str | msgspec.UnsetType | None = msgspec.UNSET
    people: bool | msgspec.UnsetType = msgspec.UNSET
    stats_seconds: float | msgspec.UnsetType = msgspec.UNSET
    auth_seconds: float | msgspec.UnsetType = msgspec.UNSET
    patty: bool | msgspec.UnsetType = msgspec.UNSET
    node_trouble: float | msgspec.UnsetType = msgspec.UNSET
    request_trouble: float | msgspec.UnsetType = msgspec.UNSET

    def of(self, server_options: ServerOptions) -> ServerOptions:
        given = {name: getattr(self, name) for name in self.__struct_fields__}
        return msgspec.structs.replace(
            server_options, **{name: value for name, value in given.items() if value is not msgspec.UNSET}
        )


class NewLab(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A lab whose nodes stand in a row."""

    title: str = "Lab by hand"
    nodes: int = 2
    definition: str = "alpine"
    user: str = DEFAULT_USER


class Act(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What a user does with a lab, or with one node of it."""

    action: Literal["start", "stop", "wipe", "delete"]
    lab_id: str
    node_id: str | None = None
    user: str = DEFAULT_USER


class Flood(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Many frames at once, to every subscriber."""

    frames: int = 1000
    event: dict[str, Any] | None = None
    """The content of each frame; null: the load of the host."""


class Licenses(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Cisco's side of licensing."""

    size: int | msgspec.UnsetType = msgspec.UNSET
    is_reachable: bool | msgspec.UnsetType = msgspec.UNSET


class Control:
    """The `RequestHandler` of the control endpoint."""

    def __init__(self, fleet: Fleet) -> None:
        self._fleet = fleet
        self._routes = Router(
            (
                ("GET", "workers", self._workers),
                ("PATCH", "workers", self._change_all),
                ("GET", "workers/{worker}", self._worker),
                ("PATCH", "workers/{worker}", self._change),
                ("POST", "workers/{worker}/labs", self._create_lab),
                ("POST", "workers/{worker}/acts", self._act),
                ("POST", "workers/{worker}/flood", self._flood),
                ("POST", "faults", self._add_fault),
                ("DELETE", "faults", self._clear_faults),
                ("GET", "licenses", self._licenses),
                ("PATCH", "licenses", self._change_licenses),
            ),
            PREFIX,
        )

    # As a request handler

    def opened(self, connection: Connection) -> None: ...

    def lost(self, connection: Connection) -> None: ...

    def refuse_upgrade(self, query: Query) -> Reply | None:
        return Reply(_json({"error": "no such control"}, 404))

    def upgrade(self, transport: asyncio.Transport) -> Stream:
        raise AssertionError("every upgrade is refused")

    def respond(self, query: Query) -> Reply:
        try:
            handler, names = self._routes.find(query.method, query.path)
            result = handler(query, *(self._fleet.find(name) for name in names.values()))
            return Reply(Answer(204) if result is None else _json(result))
        except Refused as refusal:
            return Reply(_json({"error": refusal.description}, refusal.code))
        except (msgspec.DecodeError, ValueError) as mistake:
            return Reply(_json({"error": str(mistake)}, 400))

    # State

    def _workers(self, query: Query) -> list[dict[str, Any]]:
        return [self._summary(site) for site in self._fleet.sites()]

    def _worker(self, query: Query, site: Site) -> dict[str, Any]:
        labs = [_lab(lab) for lab in site.server.labs.all()]
        return self._summary(site) | {"labs": labs, "open_ports": site.patty.ports}

    def _summary(self, site: Site) -> dict[str, Any]:
        server, now = site.server, self._fleet.now()
        return {
            "instance_id": server.instance.id,
            "private_ip": server.instance.private_ip,
            "public_ip": server.instance.public_ip,
            "version": server.version.with_build,
            "people": server.server_options.people,
            "is_licensed": server.licensing.is_licensed(now),
            "listeners": len(server.subscribers),
            "frames": server.subscribers.frames,
            "lab_count": len(server.labs.all()),
            "running_nodes": sum(node.is_running for node in server.labs.nodes()),
            "counters": dict(server.counters),
        }

    # Actions

    def _change_all(self, query: Query) -> None:
        """Change the options of every server, present and future."""
        change = _decode(query, Change)
        self._fleet.server_options = change.of(self._fleet.server_options)
        for site in self._fleet.sites():
            self._behave(site, change)

    def _change(self, query: Query, site: Site) -> None:
        self._behave(site, _decode(query, Change))

    def _behave(self, site: Site, change: Change) -> None:
        site.server.apply_options(change.of(site.server.server_options), self._fleet.now())
        self._fleet.schedule(site)

    def _create_lab(self, query: Query, site: Site) -> dict[str, Any]:
        order, server, now = _decode(query, NewLab), site.server, self._fleet.now()
        user = server.accounts.person(order.user, now)
        lab = server.labs.create(now, title=order.title, owner_id=user.id)
        nodes = [
            server.labs.add_node(lab, now, label=f"n{number}", definition_id=order.definition, x=100 * number)
            for number in range(order.nodes)
        ]
        for a, b in pairwise(nodes):
            server.labs.connect(server.labs.add_interface(a, now), server.labs.add_interface(b, now), now)
        return _lab(lab)

    def _act(self, query: Query, site: Site) -> dict[str, Any]:
        order, server, now = _decode(query, Act), site.server, self._fleet.now()
        server.labs.advance(now)
        lab = server.labs.get(order.lab_id)
        user_id = server.accounts.person(order.user, now).id
        server.telemetry.see(user_id, now)
        self._perform(server, order, lab, user_id, now)
        self._fleet.schedule(site)
        return _lab(lab)

    def _perform(self, server: CmlServer, order: Act, lab: Lab, user_id: str, now: float) -> None:
        labs = server.labs
        on_lab: dict[str, Callable[..., None]] = {"start": labs.start, "stop": labs.stop, "wipe": labs.wipe}
        on_node: dict[str, Callable[..., None]] = {
            "start": labs.start_node,
            "stop": labs.stop_node,
            "wipe": labs.wipe_node,
        }
        if order.action == "delete" and order.node_id is None:
            labs.delete(lab)
        elif order.action == "delete":
            labs.remove_node(lab.node(order.node_id or ""), now)
        elif order.node_id is None:
            on_lab[order.action](lab, now, user_id)
        else:
            on_node[order.action](lab.node(order.node_id), now, user_id)

    def _flood(self, query: Query, site: Site) -> dict[str, int]:
        order = _decode(query, Flood)
        event = order.event or site.server.stats_event(self._fleet.now())
        data = frame(Opcode.TEXT, msgspec.json.encode(event))
        if len(data) * order.frames > MAX_FLOOD_BYTES:
            raise Refused(400, f"that is more than {MAX_FLOOD_BYTES} bytes")
        site.server.subscribers.send(data * order.frames, frames=order.frames)
        return {"listeners": len(site.server.subscribers), "bytes": len(data) * order.frames}

    # Faults

    def _add_fault(self, query: Query) -> None:
        fault: Fault = msgspec.json.decode(query.body, type=Fault)
        for site in self._meant(fault.worker):
            site.apply_fault(fault)
            self._fleet.schedule(site)

    def _clear_faults(self, query: Query) -> None:
        for site in self._meant(query.parameters.get("worker")):
            site.recover()
            self._fleet.schedule(site)

    def _meant(self, worker: str | None) -> list[Site]:
        return self._fleet.sites() if worker is None else [self._fleet.find(worker)]

    # Licenses

    def _licenses(self, query: Query) -> dict[str, Any]:
        pool = self._fleet.pool
        return {"size": pool.size, "is_reachable": pool.is_reachable, "holders": list(pool.holders.values())}

    def _change_licenses(self, query: Query) -> None:
        order, pool = _decode(query, Licenses), self._fleet.pool
        if order.size is not msgspec.UNSET:
            pool.size = order.size
        if order.is_reachable is not msgspec.UNSET:
            pool.is_reachable = order.is_reachable


@asynccontextmanager
async def control_endpoint(fleet: Fleet, host: str) -> AsyncIterator[str]:
    """The URL under which the control answers, as long as the block lasts."""
    control = Control(fleet)
    listener = await asyncio.get_running_loop().create_server(lambda: Connection(control), host=host, port=0)
    try:
        port = listener.sockets[0].getsockname()[1]
        yield f"http://{host}:{port}{PREFIX.rstrip('/')}"
    finally:
        listener.close()


def _lab(lab: Lab) -> dict[str, Any]:
    return {
        "lab_id": lab.id,
        "title": lab.title,
        "state": lab.state,
        "nodes": {node.id: node.state for node in lab.nodes.values()},
    }


def _decode(query: Query, kind: type[T]) -> T:
    return msgspec.json.decode(query.body or b"{}", type=kind)


def _json(body: Any, status: int = 200) -> Answer:
    return Answer(status, msgspec.json.encode(body))
