"""Copies the running configurations of nodes into their labs before a worker is stopped.

The control plane records the request with the pause, and the stop waits for it a bounded time. What is not
extracted by then is lost with the power of the nodes, as it is without a request. A crash repeats it.
"""

import asyncio
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from datetime import datetime

import structlog

from lcm.cml.sessions import CmlServer
from lcm.core.timeouts import timeout
from lcm.domain.errors import Fenced, LabRefused, LcmError, NotFound, Unreachable
from lcm.domain.worker import Worker
from lcm.lablet_controller.decisions import has_configuration, is_usable
from lcm.lablet_controller.gate import LabGate
from lcm.lablet_controller.ports import CmlLabs, ControlPlane
from lcm.rest.lab_reports import ConfigsExtracted, ConfigsWanted

log = structlog.get_logger(__name__)


@dataclass
class ConfigExtraction:
    """For the time of one leadership."""

    control_plane: ControlPlane
    labs: CmlLabs
    gate: LabGate
    server_of: Callable[[Worker], CmlServer | None]
    _under_way: set[tuple[str, datetime]] = field(default_factory=set)

    def reset(self) -> None:
        """Drop what an earlier leadership had begun."""
        self._under_way.clear()

    def begin(self, wanted: Iterable[ConfigsWanted], tasks: asyncio.TaskGroup) -> None:
        """Begin what is not under way. What failed is tried again while the stop waits."""
        for request in wanted:
            if (request.worker_id, request.asked_at) not in self._under_way:
                self._under_way.add((request.worker_id, request.asked_at))
                tasks.create_task(self._run(request), name=f"extract {request.worker_id}")

    async def _run(self, request: ConfigsWanted) -> None:
        try:
            async with timeout((request.until - request.asked_at).total_seconds()):
                await self._extract_all(request)
        except Fenced:
            raise
        except (LcmError, TimeoutError) as error:
            log.warning("configurations not extracted", worker_id=request.worker_id, error=str(error))
        finally:
            self._under_way.discard((request.worker_id, request.asked_at))

    async def _extract_all(self, request: ConfigsWanted) -> None:
        worker = await self.control_plane.fetch_single_resource(request.worker_id)
        server = self.server_of(worker) if worker is not None and is_usable(worker) else None
        if server is None:
            raise NotFound("CML of the worker cannot be used now")
        nodes = await self._booted_nodes(server)
        done: Counter[bool] = Counter()

        async def extract(lab_id: str, node_id: str) -> None:
            try:
                await self.gate.extract_before_stop(request, server, lab_id, node_id)
                done[True] += 1
            except (LabRefused, NotFound, Unreachable):
                done[False] += 1

        try:
            async with asyncio.TaskGroup() as tasks:
                for lab_id, node_id in nodes:
                    tasks.create_task(extract(lab_id, node_id), name="extract")
        except BaseExceptionGroup as failures:
            raise failures.exceptions[0] from None
        report = ConfigsExtracted(asked_at=request.asked_at, extracted=done[True], missed=done[False])
        await self.control_plane.report_configs(request.worker_id, report)
        log.info(
            "configurations extracted",
            worker_id=request.worker_id,
            extracted=done[True],
            missed=done[False],
        )

    async def _booted_nodes(self, server: CmlServer) -> Sequence[tuple[str, str]]:
        """Every node that has booted, of every lab that LCM's account sees."""
        found: list[tuple[str, str]] = []
        for lab_id in (await self.labs.list_labs(server)).lab_ids:
            try:
                nodes = await self.labs.nodes(server, lab_id)
            except NotFound:
                continue
            found += [(lab_id, node.id) for node in nodes if has_configuration(node)]
        return found
