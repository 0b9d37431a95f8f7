"""The bench of the lablet controller with lab discovery, and labs that no session asked for."""

import asyncio
from datetime import timedelta
from typing import Any, Final

from lcm.cml.sessions import server_of
from lcm.control_plane.commands.claim_leadership import claim_leadership, fence_for
from lcm.control_plane.commands.report_live import report_live
from lcm.control_plane.queries.labs import lab_work
from lcm.core.health import Health
from lcm.core.telemetry import Telemetry
from lcm.domain.lablet.audit import LabletEvent
from lcm.domain.lablet.marker import Marker, lab_title, mark_notes
from lcm.domain.launch import WorkerId
from lcm.domain.telemetry import LabChange, LabRecord
from lcm.lablet_controller.discovery import LabDiscovery
from lcm.lablet_controller.extraction import ConfigExtraction
from lcm.lablet_controller.lab_requests import LabRequests
from lcm.lablet_controller.reconciler import LabletReconciler
from lcm.lablet_controller.stats import Stats
from lcm.rest.schemas import WORKER_CONTROLLER, LeadershipClaim, LiveReports
from lcm.simulator.cml.accounts import ADMIN_ID
from lcm.simulator.cml.lab import Lab
from lcm.simulator.cml.server import CmlServer as SimulatedCml
from lcm.simulator.cml.topology import import_file, read_file
from support.lablet_bench import LAB, Disturbed, Killed, LabletBench

INTERVAL: Final = 300.0


class DiscoveryBench(LabletBench):
    """One leader that discovers labs and carries out requests, beside the reconciler of sessions."""

    async def new_controller(self, revision: int) -> LabletReconciler:
        reconciler = await super().new_controller(revision)
        labs: Any = Disturbed(self.labs, self._note, self.skipped)
        plane, health, stats = reconciler.control_plane, Health(self.clock), Stats(Telemetry())
        self.discovery = LabDiscovery(plane, labs, _server_of, self.clock, health, stats, INTERVAL)
        self.requests = LabRequests(
            plane,
            labs,
            reconciler.gate,
            _server_of,
            self.clock,
            health,
            stats,
            action_timeout_seconds=180,
            extraction=ConfigExtraction(plane, labs, reconciler.gate, _server_of),
        )
        return reconciler

    async def discover(self, after: timedelta = timedelta()) -> None:
        """List the labs of every worker that is due; the process may die meanwhile."""
        await self.clock.sleep(after.total_seconds())
        try:
            await self.discovery.run_pass()
        except* Killed:
            await self.restart_controller()

    async def discover_for(self, minutes: float) -> None:
        """Let listings follow each other for a while."""
        until = self.clock.now() + timedelta(minutes=minutes)
        while self.clock.now() < until:
            await self.discover(timedelta(seconds=INTERVAL))

    async def carry_out(self, passes: int = 20) -> None:
        """Try what is requested until nothing is left, or for a while."""
        for _ in range(passes):
            try:
                async with asyncio.TaskGroup() as extractions:
                    await self.requests.run_pass(extractions)
            except* Killed:
                await self.restart_controller()
            if not await self.work():
                return
            await self.clock.sleep(6)

    async def work(self) -> list[LabRecord]:
        """The labs of which something is requested."""
        owners = self.parts.plane.caches.lab_owners
        return (await lab_work(self.records, self.policies, owners)).items

    def make_lab(self, title: str, *, notes: str = "", cml: SimulatedCml | None = None, **tags: str) -> Lab:
        """A lab that a person imports; `pc1` is the tag of its node."""
        text = LAB.replace("serial:5001", tags.get("pc1", "serial:5001"))
        site = cml or self.cml
        lab = import_file(site.labs, read_file(text.encode()), self._moment(), owner_id=ADMIN_ID, title=title)
        lab.notes = notes
        return lab

    async def make_leaked(self, session_id: str, generation: int = 1, *, title: str | None = None) -> Lab:
        """A lab with the marker of a session."""
        marker = Marker(session_id, generation, await self.records.fleet.get())
        title = title or lab_title(session_id, generation, "branch")
        return self.make_lab(title, notes=mark_notes("", marker))

    async def report_created(self, lab: Lab) -> None:
        """What the worker controller reports of a lab that CML has just made."""
        await self.report_live(lab, "created")

    async def report_live(self, lab: Lab, event: str, *, node_id: str | None = None) -> None:
        """What the worker controller reports of a lab, or of one of its nodes."""
        change = LabChange(
            worker_id=WorkerId("w1"),
            lab_id=lab.id,
            element_type="lab" if node_id is None else "node",
            element_id=node_id or lab.id,
            event=event,
            at=self.clock.now(),
        )
        claim = LeadershipClaim(service=WORKER_CONTROLLER, cluster_id="etcd", revision=1, instance_id="w")
        fence = fence_for(WORKER_CONTROLLER, (await claim_leadership(self.records, claim)).epoch)
        reports = LiveReports(lab_changes=[change])
        await report_live(self.records, self.parts.plane.caches, self.policies, reports, fence=fence)

    def start_lab(self, lab: Lab) -> None:
        self.cml.labs.advance(self._moment())
        self.cml.labs.start(lab, self._moment(), ADMIN_ID)

    async def delete_outside(self, lab: Lab) -> None:
        """What a person does on CML's own pages."""
        self.cml.labs.stop(lab, self._moment(), ADMIN_ID)
        await self.clock.sleep(60)
        self.cml.labs.advance(self._moment())
        self.cml.labs.wipe(lab, self._moment(), ADMIN_ID)
        self.cml.labs.delete(lab)

    def _moment(self) -> float:
        return self.clock.now().timestamp()

    async def lab(self, lab_id: str) -> LabRecord | None:
        return await self.records.labs.find("w1", lab_id)

    async def kinds(self) -> dict[str, str]:
        """Whose each recorded lab is, by title."""
        return {str(lab.title): str(lab.kind) for lab in await self.records.labs.of("w1")}

    async def audited(self, event: LabletEvent) -> list[str]:
        return [entry.reason for entry in await self.records.lablet_audit.newest(event=event)]

    async def changed_labs(self) -> set[str]:
        """The labs that LCM has changed."""
        changes = ("start_lab", "stop_lab", "stop_node", "wipe_lab", "delete_lab", "set_node_tags")
        return {lab_id for name, lab_id in self.labs.calls if name in changes}


def _server_of(worker: Any) -> Any:
    return server_of(worker, use_private_ip=False)
