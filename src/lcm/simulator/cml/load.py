"""The load of nodes and links on their host: a function of time only."""

import math
from collections.abc import Iterable
from typing import Any, Final, NamedTuple

from lcm.simulator.cml.lab import BOOTED, RUNNING, STARTED, Lab, Link, Node

MIB: Final = 1024**2
BOOT_CPU_PERCENT: Final = 70.0
IDLE_CPU_PERCENT: Final = 3.0
RUNNING_IN_ORDER: Final = ("QUEUED", "STARTED", "BOOTED")


class Demand(NamedTuple):
    """The resources that the running nodes of a server use."""

    total_nodes: int = 0
    running_nodes: int = 0
    allocated_cpus: int = 0
    allocated_memory_kib: int = 0
    busy_cpus: float = 0.0
    used_memory: float = 0.0
    """Bytes."""
    used_disk: float = 0.0


def demand(nodes: Iterable[Node], now: float) -> Demand:
    """Of all nodes of a server."""
    total = running = cpus = memory_mib = 0
    busy = 0.0
    disk = 0.0
    for node in nodes:
        total += 1
        if node.state not in RUNNING:
            continue
        running += 1
        if node.definition.has_vm and node.state in (STARTED, BOOTED):
            cpus += node.given_cpus
            memory_mib += node.given_ram
            busy += node.given_cpus * cpu_usage(node, now) / 100
            disk += _disk_mb(node) * 1e6
    return Demand(total, running, cpus, memory_mib * 1024, busy, memory_mib * MIB * 0.6, disk)


def cpu_usage(node: Node, now: float) -> float:
    """Percent of what the node was given: high while it boots, then a slow wave."""
    breath = math.sin(now / 40 + _phase(node.id))
    if node.state is STARTED:
        return round(BOOT_CPU_PERCENT + 20 * breath, 2)
    return round(IDLE_CPU_PERCENT * (1.2 + breath), 2)


def lab_stats(lab: Lab, now: float) -> dict[str, Any]:
    """What `GET …/simulation_stats` answers and `lab_stats` shows."""
    return {
        "nodes": {node.id: _node_stats(node, now) for node in lab.nodes.values()},
        "links": {link.id: link_stats(link, now) for link in lab.links.values()},
    }


def _node_stats(node: Node, now: float) -> dict[str, Any]:
    times = {
        state: round(node.times.get(state, 0.0) + (now - node.since if node.state is state else 0.0), 1)
        for state in RUNNING_IN_ORDER
    }
    if not node.definition.has_vm or node.state not in (STARTED, BOOTED):
        return {"times": times}
    seconds_on = times["STARTED"] + times["BOOTED"]
    return {
        "cpu_usage": cpu_usage(node, now),
        "ram_usage": round(20 + 15 * (1 + math.sin(now / 300 + _phase(node.id))), 2),
        "disk_usage": _disk_mb(node),
        "block0_rd_bytes": int(40e6 + 2_000 * seconds_on),
        "block0_wr_bytes": int(5e6 + 900 * seconds_on),
        "cpu_limit": node.cpu_limit or 100,
        "cpus": node.given_cpus,
        "ram": node.given_ram,
        "times": times,
    }


def link_stats(link: Link, now: float) -> dict[str, int]:
    """Counters that grow while the link is up."""
    seconds = now - link.since if link.state is STARTED else 0.0
    rate = 40 + 200 * (1 + math.sin(_phase(link.id)))
    return {
        "readbytes": int(seconds * rate * 90),
        "readpackets": int(seconds * rate),
        "writebytes": int(seconds * rate * 70),
        "writepackets": int(seconds * rate * 0.8),
        "drops": 0,
    }


def _disk_mb(node: Node) -> int:
    return 40 + int(node.id[:2], 16)


def _phase(name: str) -> float:
    return int(name[:4], 16) / 65536 * math.tau
