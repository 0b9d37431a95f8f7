"""Lablet definitions and sessions of the demo: created once, by the public API."""

from collections.abc import Iterator, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any, NamedTuple

import aiohttp

from lcm.cli.processes import StartFailed

QUARTER = timedelta(minutes=15)
WORKERS_BOOT_WITHIN = timedelta(minutes=1)
DAY = timedelta(days=1)

Definition = dict[str, Any]


class _Node(NamedTuple):
    label: str
    definition: str
    tags: tuple[str, ...] = ()


def topology(title: str, nodes: Sequence[_Node]) -> str:
    """Return a topology as CML exports it, in which each node is linked to the next."""
    return "\n".join(
        [
            "lab:",
            f"  title: {title}",
            "  version: 0.3.0",
            "nodes:",
            *(line for number, node in enumerate(nodes) for line in _node(number, node)),
            "links:",
            *(line for number in range(len(nodes) - 1) for line in _link(number)),
            "",
        ]
    )


def _node(number: int, node: _Node) -> Iterator[str]:
    yield f"  - id: n{number}"
    yield f"    label: {node.label}"
    yield f"    node_definition: {node.definition}"
    yield f"    tags: [{', '.join(node.tags)}]"
    yield f"    x: {200 * number}"
    yield f"    y: {90 * (number % 2)}"
    yield "    interfaces:"
    for slot in range(2):
        yield f"      - {{id: i{slot}, label: port{slot}, slot: {slot}, type: physical}}"


def _link(number: int) -> Iterator[str]:
    yield f"  - {{id: l{number}, label: l{number}, n1: n{number}, i1: i1, n2: n{number + 1}, i2: i0}}"


def definitions() -> tuple[Definition, ...]:
    """Return a lab for nearly every worker, and two that need a large one."""
    return (
        {
            "name": "ospf-basics",
            "lab_yaml": topology(
                "OSPF basics",
                (_Node("r1", "iol-xe"), _Node("lan", "unmanaged_switch"), _Node("r2", "iol-xe")),
            ),
            "options": {"description": "Two routers and a LAN", "max_duration_minutes": 120},
        },
        {
            "name": "campus-vlans",
            "lab_yaml": topology(
                "Campus VLANs",
                (
                    _Node("pc1", "alpine", ("serial:5001",)),
                    _Node("sw1", "ioll2-xe", ("serial:5002",)),
                    _Node("sw2", "ioll2-xe", ("serial:5003",)),
                    _Node("pc2", "alpine"),
                ),
            ),
            "options": {"description": "Two switches and two hosts", "max_duration_minutes": 240},
        },
        {
            "name": "data-center",
            "lab_yaml": topology(
                "Data center",
                (_Node("spine", "nxosv9000"), _Node("leaf", "nxosv9000"), _Node("srv", "server")),
            ),
            "options": {"description": "A spine, a leaf and a server", "max_duration_minutes": 180},
        },
    )


def classes(now: datetime) -> tuple[tuple[str, Definition], ...]:
    """Return the classes of the demo: one of the next quarter of an hour, one at once, one of tomorrow."""
    return (
        ("campus-vlans", {"name": "CCNA morning", "count": 4, **_slot(next_quarter(now), hours=2)}),
        ("ospf-basics", {"name": "Routing workshop", "count": 3, "owners": ["ada", "alan", "grace"]}),
        ("data-center", {"name": "Automation", "count": 3, **_slot(next_quarter(now) + DAY, hours=2)}),
    )


def next_quarter(now: datetime) -> datetime:
    """The next quarter of an hour before which there is time for a worker to boot."""
    earliest = now + WORKERS_BOOT_WITHIN
    return earliest + (datetime.min.replace(tzinfo=earliest.tzinfo) - earliest) % QUARTER


def _slot(start: datetime, *, hours: int) -> Definition:
    end = start + timedelta(hours=hours)
    return {"timeslot": {"start": start.isoformat(), "end": end.isoformat(), "zone": "UTC"}}


async def license_fleet(api: aiohttp.ClientSession, token: str) -> None:
    """Set the token with which the workers of the demo, and those that LCM adds, are registered."""
    await _send(api, "PUT", "/api/settings/license", {"token": token}, 200)


async def create_demo_sessions(api: aiohttp.ClientSession, now: datetime) -> None:
    """Create the definitions, a class of each, and a session whose nodes take minutes to boot.

    Nothing is created if there are definitions already.
    """
    async with api.get("/api/lablet-definitions", params={"limit": 1}) as response:
        if (await response.json())["items"]:
            return
    for definition in definitions():
        await _create(api, "/api/lablet-definitions", definition, 201)
    for name, body in classes(now.astimezone(UTC)):
        await _create(api, "/api/lablet-sessions/batch", {"definition": name, **body}, 202)
    await _create(api, "/api/lablet-sessions", {"definition": "data-center"}, 201)


async def _create(api: aiohttp.ClientSession, path: str, body: Definition, expected: int) -> None:
    await _send(api, "POST", path, body, expected)


async def _send(api: aiohttp.ClientSession, method: str, path: str, body: Definition, expected: int) -> None:
    async with api.request(method, path, json=body) as response:
        if response.status != expected:
            raise StartFailed(f"the demo's {method} {path} was refused: {await response.text()}")
