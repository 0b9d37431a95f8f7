"""Lists every lab of every worker that can be used, whosesoever they are, and reports it.

Each worker in its turn, when it comes up, when a person requests it, and when that decides whether a lab is
leaked. A listing that is not whole says so:
the control plane concludes no absence from it. What is remembered here only saves reads of CML, and is
dropped with every leadership.
"""

import asyncio
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import datetime
from typing import Final, NamedTuple

import structlog

from lcm.cml.sessions import CmlServer
from lcm.core.clock import Clock
from lcm.core.health import Health
from lcm.domain.errors import Fenced, LcmError
from lcm.domain.lablet.listed_lab import (
    MAX_NODES,
    MAX_TAG_PORTS,
    LabContents,
    LabMark,
    ListedLab,
    ListedNode,
)
from lcm.domain.lablet.marker import SeenLab, marker_of
from lcm.domain.lablet.node_definitions import (
    EXTERNAL_CONNECTOR,
    KNOWN,
    UNMANAGED_SWITCH,
    NodeDefinition,
)
from lcm.domain.lablet.ports import BadTag, read_tag
from lcm.domain.observation import Absent, Known
from lcm.domain.worker import Worker
from lcm.lablet_controller.decisions import is_usable
from lcm.lablet_controller.ports import CmlLab, CmlLabs, CmlNode, ControlPlane
from lcm.lablet_controller.stats import Stats
from lcm.rest.lab_reports import MAX_DEFINITIONS, MAX_LABS, DefinitionsReport, LabListingReport

log = structlog.get_logger(__name__)

LOOK_SECONDS: Final = 10.0
"""How often it is asked which workers are due."""
RETRY_SECONDS: Final = 60.0
UNLISTED_SECONDS: Final = 30.0
"""How soon after a listing another one follows for a lab that it did not show."""
WORKERS_AT_A_TIME: Final = 5
READS_PER_WORKER: Final = 4
"""Fewer than the server takes: sessions are observed meanwhile."""
CONTENTS_MAX_AGE_SECONDS: Final = 3600.0
"""Nodes are read again so long afterwards, even if CML says that the lab was not modified."""
DEFINITIONS_MAX_AGE_SECONDS: Final = 3600.0
FABRIC: Final = (EXTERNAL_CONNECTOR, UNMANAGED_SWITCH)
"""In every CML, listed or not."""
MAX_TEXT: Final = 200


class _Turn(NamedTuple):
    """The last listing of a worker."""

    instance_id: str | None
    requested_at: datetime | None
    started: float
    next_at: float


class _Read(NamedTuple):
    """Which state of a lab its nodes were read in, and when."""

    modified: datetime | None
    state: str
    at: float


@dataclass
class LabDiscovery:
    """Reads only."""

    control_plane: ControlPlane
    labs: CmlLabs
    server_of: Callable[[Worker], CmlServer | None]
    clock: Clock
    health: Health
    stats: Stats
    interval_seconds: float
    """0: only on request."""
    look_seconds: float = LOOK_SECONDS
    _turns: dict[str, _Turn] = field(default_factory=dict)
    _read: dict[tuple[str | None, str], _Read] = field(default_factory=dict)
    """By instance and lab: nodes that the control plane has; then those that it is about to get."""
    _being_reported: dict[tuple[str | None, str], _Read] = field(default_factory=dict)
    _definitions: dict[str | None, tuple[float, Mapping[str, NodeDefinition]]] = field(default_factory=dict)
    """By instance."""

    def reset(self) -> None:
        """Drop what an earlier leadership learned: another one may have reported since."""
        self._turns.clear()
        self._read.clear()
        self._being_reported.clear()
        self._definitions.clear()

    async def run(self) -> None:
        try:
            while True:
                self.health.tick("lab-discovery", self.look_seconds)
                try:
                    await self.run_pass()
                except Fenced:
                    raise
                except LcmError as error:
                    log.warning("workers not read for lab discovery", error=str(error))
                await self.clock.sleep(self.look_seconds)
        finally:
            self.health.forget("lab-discovery")

    async def run_pass(self) -> None:
        """List the labs of every worker that is due, a few workers at a time."""
        servers = {
            worker.id: (worker, server)
            for worker in await self.control_plane.list_resources()
            if is_usable(worker) and (server := self.server_of(worker)) is not None
        }
        for gone in self._turns.keys() - servers.keys():
            # When it comes up everything is read first of all.
            self._definitions.pop(self._turns.pop(gone).instance_id, None)
        unlisted_on = frozenset((await self.control_plane.get_lab_work()).unlisted_on)
        places = asyncio.Semaphore(WORKERS_AT_A_TIME)

        async def discover(worker: Worker, server: CmlServer) -> None:
            async with places:
                await self._discover(worker, server)

        async with asyncio.TaskGroup() as tasks:
            for worker, server in servers.values():
                if self._is_due(worker, has_unlisted=worker.id in unlisted_on):
                    tasks.create_task(discover(worker, server))

    def _is_due(self, worker: Worker, *, has_unlisted: bool) -> bool:
        turn = self._turns.get(worker.id)
        requested_at = worker.cml.lab_discovery_requested_at
        if turn is None or turn.instance_id != worker.instance.id:
            return self.interval_seconds > 0 or requested_at is not None
        is_requested = requested_at is not None and requested_at != turn.requested_at
        if self.interval_seconds == 0 or is_requested:
            return is_requested
        now = self.clock.monotonic()
        return now >= turn.next_at or (has_unlisted and now >= turn.started + UNLISTED_SECONDS)

    async def _discover(self, worker: Worker, server: CmlServer) -> None:
        """One listing; a failure is tried again soon and reports nothing."""
        started = self.clock.monotonic()
        confirms_at = float("inf")
        try:
            report = await self._list(server)
            receipt = await self.control_plane.report_labs(worker.id, report)
            self._remember(server, report)
        except Fenced:
            raise
        except LcmError as error:
            self.stats.discoveries["failed"] += 1
            log.warning("labs not discovered", worker_id=worker.id, error=str(error))
            pace = min(RETRY_SECONDS, self.interval_seconds or RETRY_SECONDS)
        else:
            self.stats.discoveries["full" if report.is_full else "partial"] += 1
            pace = self.interval_seconds
            if receipt.again_in_seconds is not None:
                confirms_at = self.clock.monotonic() + receipt.again_in_seconds
        self._turns[worker.id] = _Turn(
            worker.instance.id,
            worker.cml.lab_discovery_requested_at,
            started,
            min(started + pace, confirms_at),
        )

    async def _list(self, server: CmlServer) -> LabListingReport:
        definitions = await self._definitions_of(server)
        listing = await self.labs.list_labs(server)
        lab_ids = listing.lab_ids[:MAX_LABS]
        places = asyncio.Semaphore(READS_PER_WORKER)
        found: dict[str, ListedLab | None] = {}

        async def read(lab_id: str) -> None:
            async with places:
                seen = await self.labs.get_lab(server, lab_id)
                if isinstance(seen, Known):
                    found[lab_id] = await self._listed(server, seen.value, definitions)
                elif not isinstance(seen, Absent):
                    found[lab_id] = None

        async with asyncio.TaskGroup() as tasks:
            for lab_id in lab_ids:
                tasks.create_task(read(lab_id))
        return LabListingReport(
            instance_id=server.instance_id or "",
            taken_at=listing.taken_at,
            is_full=listing.is_complete and len(lab_ids) == len(listing.lab_ids),
            labs=tuple(lab for lab in found.values() if lab is not None),
            unread=tuple(lab_id for lab_id, lab in found.items() if lab is None),
        )

    def _remember(self, server: CmlServer, report: LabListingReport) -> None:
        """Which nodes the control plane has now; those of labs that are gone are forgotten."""
        there = {lab.lab_id for lab in report.labs}.union(report.unread)
        for key in [key for key in self._read if key[0] == server.instance_id and key[1] not in there]:
            del self._read[key]
        for lab in report.labs:
            read = self._being_reported.pop((server.instance_id, lab.lab_id), None)
            if read is not None:
                self._read[server.instance_id, lab.lab_id] = read

    async def _listed(
        self, server: CmlServer, lab: CmlLab, definitions: Mapping[str, NodeDefinition]
    ) -> ListedLab:
        marker = marker_of(SeenLab(lab.id, lab.title, lab.notes))
        return ListedLab(
            lab_id=lab.id,
            title=lab.title[:MAX_TEXT],
            state=str(lab.state),
            owner=lab.owner[:MAX_TEXT],
            node_count=lab.node_count,
            modified_at=lab.modified,
            mark=LabMark.of(marker) if marker is not None else None,
            contents=await self._contents(server, lab, definitions),
        )

    async def _contents(
        self, server: CmlServer, lab: CmlLab, definitions: Mapping[str, NodeDefinition]
    ) -> LabContents | None:
        """What is inside a lab that is new or has changed. One that cannot be read is read the next time."""
        key, now = (server.instance_id, lab.id), self.clock.monotonic()
        known = self._read.get(key)
        is_same = known is not None and (known.modified, known.state) == (lab.modified, lab.state)
        if known is not None and is_same and now - known.at < CONTENTS_MAX_AGE_SECONDS:
            return None
        try:
            nodes = await self.labs.nodes(server, lab.id)
        except LcmError as error:
            log.info("nodes of lab not read", lab_id=lab.id, error=str(error))
            return None
        self._being_reported[key] = _Read(lab.modified, lab.state, now)
        return LabContents(
            nodes=tuple(_node(node, definitions) for node in nodes[:MAX_NODES]), tag_ports=_tag_ports(nodes)
        )

    async def _definitions_of(self, server: CmlServer) -> Mapping[str, NodeDefinition]:
        """The node definitions of the server's own; those that every CML has, if they cannot be read.

        They are reported with the images, so that sessions are placed where their nodes can be.
        """
        now = self.clock.monotonic()
        read_at, known = self._definitions.get(server.instance_id, (float("-inf"), KNOWN))
        if now - read_at < DEFINITIONS_MAX_AGE_SECONDS:
            return known
        try:
            known = {each.id: each for each in await self.labs.node_definitions(server)}
            images = [image.id for image in await self.labs.image_definitions(server)]
            await self._report_definitions(server, [*known, *FABRIC], images)
        except Fenced:
            raise
        except LcmError as error:
            log.info("definitions not read", worker_id=server.worker_id, error=str(error))
            return known
        self._definitions[server.instance_id] = (now, known)
        return known

    async def _report_definitions(
        self, server: CmlServer, node_definitions: Sequence[str], images: Sequence[str]
    ) -> None:
        if max(len(node_definitions), len(images)) > MAX_DEFINITIONS:
            return  # a part of them would exclude the worker from what it can run
        report = DefinitionsReport(
            instance_id=server.instance_id or "",
            node_definitions=tuple(node_definitions),
            images=tuple(images),
        )
        await self.control_plane.report_definitions(server.worker_id, report)


def _node(node: CmlNode, definitions: Mapping[str, NodeDefinition]) -> ListedNode:
    usual = definitions.get(node.node_definition) or KNOWN.get(node.node_definition)
    usual = usual or NodeDefinition(id=node.node_definition)
    has_vm = usual.has_vm
    return ListedNode(
        id=node.id,
        label=node.label[:MAX_TEXT],
        state=str(node.state),
        cpu=(node.cpus or usual.cpus) if has_vm else 0,
        memory_gb=round((node.ram_mb or usual.ram_mb) / 1024, 3) if has_vm else 0,
        x=node.x,
        y=node.y,
    )


def _tag_ports(nodes: Sequence[CmlNode]) -> tuple[int, ...]:
    """The outside ports in the tags of all nodes; PATty ignores what it cannot read."""
    ports = set()
    for tag in (tag for node in nodes for tag in node.tags):
        with suppress(BadTag):
            read = read_tag(tag)
            if read is not None and read.outside.isdigit():
                ports.add(int(read.outside))
    return tuple(sorted(ports))[:MAX_TAG_PORTS]
