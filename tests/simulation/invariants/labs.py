"""Invariants of the labs of lablet sessions: what really is on the CML servers, against the records."""

from collections.abc import Iterator, Mapping
from datetime import timedelta
from typing import Any, Final

import msgspec

from lcm.control_plane.store.port import Document, Fence
from lcm.control_plane.streaming.event_names import WorkerEvent, event_of
from lcm.domain.lablet.claim import Claim
from lcm.domain.lablet.lab import LabStep
from lcm.domain.lablet.lab_standing import MAX_LEAKED
from lcm.domain.lablet.listed_lab import LabKind
from lcm.domain.lablet.marker import Marker, SeenLab, marker_of, read_notes
from lcm.domain.lablet.session import LabletSession, SessionDesiredStatus
from lcm.domain.lablet.session_changes import is_over
from lcm.domain.lablet.states import (
    COLLECTING,
    IN_USE,
    INSTANTIATING,
    PENDING_SCHEDULING,
    READY,
    SCHEDULED,
    STOPPING,
    EndReason,
)
from lcm.domain.lifecycle import PENDING, RUNNING, STOPPED, TERMINATED
from lcm.domain.lifecycle import STOPPING as STOPPING_WORKER
from lcm.domain.telemetry import LabRecord
from lcm.domain.worker import Worker
from lcm.simulator.cml.lab import BOOTED, DEFINED_ON_CORE, POWERED, Lab
from simulation.invariants.scheduling import _SessionInvariant, claims_of
from simulation.lab_desk import NODES, PASSWORD
from simulation.world.calls import Answer, Call
from simulation.world.faults import Act
from simulation.world.lab_ports import LabAct
from simulation.world.live_fleet import BOOT_SECONDS, LiveFleet, SimulatedCmlServer
from simulation.world.processes import Process
from simulation.world.world import LATEST_LANDING_SECONDS, World

LOOK_SECONDS: Final = 5.0
DOUBLE_SECONDS: Final = 180.0
LEAKED_SECONDS: Final = 900.0
REMOVAL_SECONDS: Final = 60.0
"""To stop, wipe and delete a lab, and for what is late by a poll."""
LIVELY_SECONDS: Final = 1_800.0
RACE_SECONDS: Final = 30.0
"""What a person did so shortly before may not have been seen."""
OWN_ACT_SECONDS: Final = 120.0
"""From a person's start or stop of a lab to the last event of its nodes."""
STOPS: Final = ("stop_lab", "stop_node", "wipe_lab", "delete_lab")


class _LabInvariant(_SessionInvariant):
    """What invariants of labs have in common; it checks nothing by itself."""

    @staticmethod
    def applies_to(world: World) -> bool:
        return bool(world.lablets)

    @property
    def fleet(self) -> LiveFleet:
        assert self.world.live is not None
        return self.world.live

    def at_rest(self) -> None:
        if self.world.lablets:
            self.when_labs_rest()

    def when_labs_rest(self) -> None: ...

    def calm_seconds(self, since: float, server: SimulatedCmlServer | None) -> float:
        """How long since then nothing has gone wrong and this CML could be used, with time for recovery."""
        if server is None or not server.is_up:
            return 0.0
        assert server.instance.running_since is not None
        recovery = 2 * self.world.knobs.lease_ttl + self.world.knobs.election_retry_seconds
        now = self.world.clock.monotonic()
        up = now - server.instance.running_since - BOOT_SECONDS
        return min(now - since, up, self.world.calm_seconds_of_labs) - recovery

    def server_of(self, session: LabletSession) -> SimulatedCmlServer | None:
        return self.fleet.server_of(session.worker_id) if session.worker_id is not None else None

    def recorded_by(self, lab: Lab) -> LabletSession | None:
        """The live session that has recorded this lab."""
        marker = self.fleet.imports[lab.id].marker if lab.id in self.fleet.imports else None
        session = self.world.disk.session(marker.session_id) if marker is not None else None
        is_recorded = session is not None and session.lab is not None and session.lab.lab_id == lab.id
        return session if is_recorded and session is not None and not session.is_ended else None


class _Watch(_LabInvariant):
    """Looks at all labs now and then; it checks nothing by itself."""

    def __init__(self, world: World) -> None:
        super().__init__(world)
        self._looked_at = float("-inf")

    def on_call(self, process: Process, call: Call) -> None:
        if call.at - self._looked_at >= LOOK_SECONDS:
            self._looked_at = call.at
            self.look(call.at)

    def look(self, now: float) -> None:
        raise NotImplementedError


class L5OneLab(_Watch):
    """Of the labs of one import only one lives longer than three minutes while CML answers: an import whose
    answer is late may make a second one. At rest there is one at most."""

    def __init__(self, world: World) -> None:
        super().__init__(world)
        self._doubled_since: dict[str, float] = {}

    def look(self, now: float) -> None:
        doubled = {lab.id: (server, lab) for server, lab in self._doubled()}
        self._doubled_since = {each: self._doubled_since.get(each, now) for each in doubled}
        for lab_id, since in self._doubled_since.items():
            server, lab = doubled[lab_id]
            age = self.calm_seconds(since, server)
            self.require(age <= DOUBLE_SECONDS, f"a second {lab.title} lives for {age:.0f} s")

    def _doubled(self) -> Iterator[tuple[SimulatedCmlServer, Lab]]:
        """Every lab beside the one of its import that a session has recorded; people leave it alone."""
        by_import: dict[Marker, list[tuple[SimulatedCmlServer, Lab]]] = {}
        for server, lab in self.fleet.labs():
            is_people_s = lab.id in self.fleet.touched or self.fleet.is_adopted(server, lab)
            if lab.id in self.fleet.imports and not is_people_s:
                by_import.setdefault(self.fleet.imports[lab.id].marker, []).append((server, lab))
        for labs in by_import.values():
            if len(labs) > 1 and any(self.recorded_by(lab) for _, lab in labs):
                yield from ((server, lab) for server, lab in labs if self.recorded_by(lab) is None)

    def when_labs_rest(self) -> None:
        left = [lab.title for _, lab in self._doubled()]
        self.require(not left, f"labs are doubled at rest: {left}")


class L6NoLeak(_Watch):
    """No lab with the marker of an ended session lives longer than fifteen minutes while its CML answers,
    unless so many seem leaked that they are left to people; at rest there is none."""

    def __init__(self, world: World) -> None:
        super().__init__(world)
        self._left_since: dict[str, float] = {}

    def look(self, now: float) -> None:
        left = {lab.id: (server, lab) for server, lab in self.fleet.left_behind()}
        self._left_since = {each: self._left_since.get(each, now) for each in left}
        if len(left) > MAX_LEAKED:
            return
        for lab_id, since in self._left_since.items():
            server, lab = left[lab_id]
            age = self.calm_seconds(since, server)
            self.require(age <= LEAKED_SECONDS + REMOVAL_SECONDS, f"{lab.title} is left for {age:.0f} s")

    def when_labs_rest(self) -> None:
        left = [lab.title for _, lab in self.fleet.left_behind()]
        self.require(not left, f"labs are left at rest: {left}")


class L7OwnLabs(_LabInvariant):
    """No change reaches a lab that is not the fleet's own: made by its import, and either recorded by its
    session or marked on both sides. People may have LCM remove a lab of theirs by typing its title, and
    configurations are extracted on a worker whose stop waits for that."""

    def __init__(self, world: World) -> None:
        super().__init__(world)
        self._extracted: set[str] = set()
        """The instances on which the stop has waited: what it requested may arrive late."""

    def on_worker(self, before: Worker | None, after: Worker, fence: Fence | None) -> None:
        if after.pause.extraction is not None and after.instance.id is not None:
            self._extracted.add(after.instance.id)

    def on_lab(self, act: LabAct) -> None:
        lab = act.lab
        if lab is None or lab.id in self.fleet.removable:
            return
        if act.operation == "extract_configuration" and act.server.instance.id in self._extracted:
            return
        self.require(lab.id in self.fleet.imports, f"{act.operation} reaches the foreign lab {lab.title!r}")
        known = self.fleet.imports[lab.id]
        is_marked = marker_of(SeenLab(lab.id, lab.title, lab.notes)) == known.marker
        is_new = self.fleet.seconds_since_touched(lab.id) <= LATEST_LANDING_SECONDS
        is_own = is_marked or self.recorded_by(lab) is not None or is_new
        self.require(is_own, f"{act.operation} reaches {lab.title!r}, which people took over")


class L7AdoptedLabs(_LabInvariant):
    """A lab that a person adopted is theirs: it does not count as leaked, no change reaches it unless
    somebody typed its title, and only a person ends the adoption."""

    def __init__(self, world: World) -> None:
        super().__init__(world)
        self._adopted: dict[str, tuple[str, float]] = {}
        """The worker of each adopted lab, and since when it is adopted."""

    def on_document(self, before: Document | None, after: Document, fence: Fence | None) -> None:
        if after.kind != "lab":
            return
        lab = msgspec.json.decode(after.body, type=LabRecord)
        if lab.adoption is None:
            is_ended = lab.lab_id not in self._adopted or lab.lab_id in self.fleet.disowned
            self.require(is_ended, f"nobody disowned {lab.title}, and it is not adopted any more")
            self._adopted.pop(lab.lab_id, None)
            return
        self._adopted.setdefault(lab.lab_id, (lab.worker_id, self.world.clock.monotonic()))
        is_swept = lab.request is not None and lab.request.leak is not None
        self.require(lab.kind is LabKind.ADOPTED, f"{lab.title} is adopted, and counts as {lab.kind}")
        self.require(not is_swept, f"{lab.title} is adopted, and its removal as a leak is requested")

    def on_lab(self, act: LabAct) -> None:
        lab = act.lab
        if lab is None or lab.id not in self._adopted or lab.id in self.fleet.removable:
            return
        age = self.world.clock.monotonic() - self._adopted[lab.id][1]  # what was sent before may arrive late
        self.require(age <= LATEST_LANDING_SECONDS, f"{act.operation} reaches the adopted lab {lab.title!r}")

    def when_labs_rest(self) -> None:
        for server, lab in self.fleet.labs():
            if lab.id in self._adopted:
                self.require(self.fleet.is_adopted(server, lab), f"the adoption of {lab.title} is lost")


class L7ConfigurationsBeforePower(_LabInvariant):
    """Where configurations are to be extracted, no worker with a CML that is ready is stopped by LCM before
    they are, or the stop has waited its time. Reported as all extracted, they are in the labs."""

    def on_worker(self, before: Worker | None, after: Worker, fence: Fence | None) -> None:
        if before is None or not self.world.knobs.extract_seconds:
            return
        waited = before.pause.extraction
        is_stopped = before.is_live and after.status is STOPPING_WORKER
        if is_stopped and before.cml.is_ready and before.pause.is_unfinished:
            is_over = waited is not None and (waited.ended_at is not None or waited.until <= after.updated_at)
            self.require(is_over, f"{after.name} is stopped before its configurations are extracted")
        ended = after.pause.extraction
        if event_of(before, after) is WorkerEvent.CONFIGS_EXTRACTED and ended is not None:
            self._on_report(after, is_complete=ended.missed == 0)

    def _on_report(self, worker: Worker, *, is_complete: bool) -> None:
        server = self.fleet.server_of(worker.id)
        if server is None or not is_complete:
            return
        labs = [lab for lab in server.cml.labs.all() if lab.id not in self.fleet.imports]
        lost = [
            node.label
            for lab in labs
            for node in lab.nodes.values()
            if node.state is BOOTED and node.definition.has_vm and not node.configuration
        ]
        self.require(not lost, f"the configurations of {lost} are not in their labs")


class L8IntendedImports(_LabInvariant):
    """No import without an intent of that generation, committed before."""

    def __init__(self, world: World) -> None:
        super().__init__(world)
        self._intended: set[tuple[str, int]] = set()

    def on_session(self, before: LabletSession | None, after: LabletSession, fence: Fence | None) -> None:
        if after.lab is not None:
            self._intended.add((after.id, after.lab.generation))

    def on_lab(self, act: LabAct) -> None:
        if act.operation != "import_lab":
            return
        marker = read_notes(act.notes)
        is_intended = marker is not None and (marker.session_id, marker.generation) in self._intended
        self.require(is_intended, f"{marker} is imported without an intent")


class L8SearchedImports(_LabInvariant):
    """No import by a process that has not seen a listing of that server since the intent, and since its own
    last import for this session: the lab may be there already."""

    def __init__(self, world: World) -> None:
        super().__init__(world)
        self._newest_call = 0
        self._intended: dict[str, tuple[int, int]] = {}
        """The newest import that is intended for each session, and the last call before that."""
        self._listed: dict[tuple[str, int, str], int] = {}
        """When each incarnation of a process has seen the labs of each worker."""
        self._imported: dict[tuple[str, int, str], int] = {}

    def on_session(self, before: LabletSession | None, after: LabletSession, fence: Fence | None) -> None:
        known = self._intended.get(after.id, (0, 0))
        if after.lab is not None and after.lab.generation > known[0]:
            self._intended[after.id] = after.lab.generation, self._newest_call

    def on_answer(self, process: Process, call: Call, answer: Any) -> None:
        if call.site == "labs.list_labs":
            key = (process.name, process.incarnation, call.subject)
            self._listed[key] = max(self._listed.get(key, 0), call.n)  # an earlier one may be answered later

    def on_call(self, process: Process, call: Call) -> None:
        self._newest_call = call.n
        session = self.world.disk.session(call.subject) if call.site == "labs.import_lab" else None
        if session is None:
            return
        key = (process.name, process.incarnation, session.id)
        since = max(self._imported.get(key, 0), self._intended.get(session.id, (0, 0))[1])
        self._imported[key] = call.n
        seen = self._listed.get((process.name, process.incarnation, session.worker_id or ""), 0)
        self.require(seen > since, f"a lab of {session.id} is imported without a search for it")


class L11ProvenReady(_LabInvariant):
    """A session becomes READY only if every node of its lab has booted since its last start, and none of
    those that were imported is missing."""

    def on_session(self, before: LabletSession | None, after: LabletSession, fence: Fence | None) -> None:
        if after.status is not READY or before is None or before.status is not INSTANTIATING:
            return
        assert after.lab is not None
        lab = self.fleet.lab(after.lab.lab_id or "", after.lab.instance_id)
        if lab is None or self.fleet.seconds_since_touched(lab.id) <= LATEST_LANDING_SECONDS:
            worker = self.world.disk.peek(after.worker_id or "")
            is_lost = worker is None or worker.instance.id != after.lab.instance_id or not worker.is_live
            self.require(lab is not None or is_lost, f"{after.id} is ready without a lab")
            return
        dark = [
            node.label
            for node in lab.nodes.values()
            if node.state is not BOOTED and BOOTED not in node.times and node.definition.has_vm
        ]
        self.require(not dark, f"{after.id} is ready, and {dark} never booted")
        self.require(len(lab.nodes) == NODES, f"{after.id} is ready with {len(lab.nodes)} nodes")


class L12LeftAlone(_LabInvariant):
    """The lab of a session in use is not stopped before its end, unless somebody requested that, the lab is
    gone, or its worker was lost; and only then is the session placed anew."""

    def on_lab(self, act: LabAct) -> None:
        session = self.recorded_by(act.lab) if act.lab is not None else None
        if session is None or act.operation not in STOPS or session.status not in IN_USE:
            return
        is_late = LabStep.STOP in session.steps  # sent for an earlier boot, and only now it arrives
        is_asked = act.lab is not None and act.lab.id in self.fleet.removable
        self.require(is_late or is_asked, f"{act.operation} of the lab of {session.id}, {session.status}")

    def on_session(self, before: LabletSession | None, after: LabletSession, fence: Fence | None) -> None:
        if before is None or before.status not in IN_USE:
            return
        if after.status is PENDING_SCHEDULING:
            is_lost = self._has_lost_its_worker(before)
            self.require(is_lost, f"{after.id} leaves a worker that is not lost: {after.status_reason}")
        if after.status not in (STOPPING, COLLECTING):
            return
        is_asked = after.desired_status is SessionDesiredStatus.TERMINATED
        is_due = is_over(before, now=self.plane_time + timedelta(seconds=1))
        is_lost = after.end_reason is EndReason.FAILED and self._has_lost_its_lab(before)
        self.require(is_asked or is_due or is_lost, f"{after.id} ends early: {after.status_reason}")

    def _has_lost_its_lab(self, session: LabletSession) -> bool:
        if session.lab is None or self._has_lost_its_worker(session):
            return True
        return self.fleet.lab(session.lab.lab_id or "", session.lab.instance_id) is None

    def _has_lost_its_worker(self, session: LabletSession) -> bool:
        worker = self.world.disk.peek(session.worker_id or "")
        if worker is None or worker.status in (PENDING, TERMINATED):
            return True
        return session.lab is not None and worker.instance.id != session.lab.instance_id


class L13LabsBeforeClaims(_LabInvariant):
    """A claim is released only after its lab is gone or adopted, its worker is gone, or nothing was imported.
    (A second lab at rest that a late import made is left to the leak sweep.)"""

    def __init__(self, world: World) -> None:
        super().__init__(world)
        self._attempts: dict[tuple[str, int], int] = {}
        """The attempt for which each import was intended."""

    def on_session(self, before: LabletSession | None, after: LabletSession, fence: Fence | None) -> None:
        if after.lab is not None:
            self._attempts.setdefault((after.id, after.lab.generation), after.attempt)

    def on_worker(self, before: Worker | None, after: Worker, fence: Fence | None) -> None:
        kept = claims_of(after)
        for key, claim in claims_of(before).items():
            if key not in kept and after.instance.id is not None:
                alive = [lab.title for lab in self._labs_of(claim, after)]
                self.require(not alive, f"{after.name} released {key}, and {alive} are there")

    def _labs_of(self, claim: Claim, worker: Worker) -> Iterator[Lab]:
        for lab_id, known in self.fleet.imports.items():
            key = (known.marker.session_id, known.marker.generation)
            if key[0] != claim.session_id or self._attempts.get(key) != claim.attempt:
                continue
            if known.instance_id != worker.instance.id or lab_id in self.fleet.touched:
                continue
            if self.world.disk.adoption_of(worker.id, lab_id) is not None:
                continue
            lab = self.fleet.lab(lab_id, worker.instance.id)
            if lab is not None and any(node.state is not DEFINED_ON_CORE for node in lab.nodes.values()):
                yield lab


class L13LabsHaveClaims(_Watch):
    """A lab of a session that has nodes which run is claimed on its worker. (One that was started outside
    LCM after its session had ended is not.)"""

    def look(self, now: float) -> None:
        for server, lab in self.fleet.labs():
            session = self.recorded_by(lab)
            if session is None or not any(node.state in POWERED for node in lab.nodes.values()):
                continue
            worker = self.world.disk.owner_of(server.instance.id)
            if worker is None or worker.status is STOPPED:
                continue
            holders = {claim.session_id for claim in worker.claims}
            self.require(session.id in holders, f"{lab.title} runs on {worker.name} without a claim")


class L19Lively(_Watch):
    """Half an hour after nothing goes wrong any more a session that a worker has is in use, or has ended."""

    def look(self, now: float) -> None:
        for session in self.world.disk.sessions():
            if session.status not in (SCHEDULED, INSTANTIATING, COLLECTING, STOPPING):
                continue
            if session.status is SCHEDULED and session.due_at > self.plane_time:
                continue
            since = now - (self.plane_time - max(session.status_since, session.due_at)).total_seconds()
            worker = self.world.disk.peek(session.worker_id or "")
            if worker is None or worker.status is not RUNNING or not worker.cml.is_ready:
                continue
            age = self.calm_seconds(since, self.server_of(session))
            text = f"session {session.id} is {session.status} for {age:.0f} s: {session.status_reason}"
            self.require(age <= LIVELY_SECONDS, text)


class L20FreshLabs(_LabInvariant):
    """No lab ever has two owners: none is taken over with what its last owner left in it."""

    def __init__(self, world: World) -> None:
        super().__init__(world)
        self._owners: dict[str, tuple[str, int]] = {}

    def on_session(self, before: LabletSession | None, after: LabletSession, fence: Fence | None) -> None:
        if after.lab is None or after.lab.lab_id is None:
            return
        import_ = (after.id, after.lab.generation)
        owner = self._owners.setdefault(after.lab.lab_id, import_)
        self.require(owner == import_, f"lab {after.lab.lab_id} of {owner} is recorded for {import_}")


class L18AccessIsSecret(_LabInvariant):
    """The login of nodes is in no record, event or answer; only the access to a session shows it."""

    def __init__(self, world: World) -> None:
        super().__init__(world)
        if self.applies_to(world):
            world.on_http_answer.append(self._on_answer)

    def on_document(self, before: Document | None, after: Document, fence: Fence | None) -> None:
        self.require(PASSWORD.encode() not in after.body, f"{after.kind} {after.id} shows a password")

    def on_event(self, event: str, data: Mapping[str, Any]) -> None:
        self.require(PASSWORD.encode() not in msgspec.json.encode(data), f"{event} shows a password")

    def _on_answer(self, answer: Answer) -> None:
        is_access = answer.path.endswith("/access")
        is_shown = PASSWORD.encode() in answer.body
        self.require(is_access or not is_shown, f"{answer.method} {answer.path} shows a password")


class L25OwnActions(_LabInvariant):
    """No start or stop of LCM itself in the lab of a session counts as use of its worker. (A control plane
    that was restarted knows the present lab of a session, not those before it; what CML reports of a leaked
    lab after its removal is judged without its record; and a worker controller that was frozen takes the
    moment at which it wakes for that of what it missed.)"""

    def __init__(self, world: World) -> None:
        super().__init__(world)
        self._judged: set[tuple[str, Any]] = set()
        self._frozen_at = float("-inf")

    def on_call(self, process: Process, call: Call) -> None:
        if process.role == "controller" and call.fault == Act.FREEZE:
            self._frozen_at = call.at

    def on_worker(self, before: Worker | None, after: Worker, fence: Fence | None) -> None:
        for event in after.activity.recent_events:
            key = (after.id, event)
            if key in self._judged or event.lab_id is None:
                continue
            self._judged.add(key)
            by_person = self.fleet.touched.get(event.lab_id, float("-inf"))
            age = self.world.clock.monotonic() - by_person
            delay = (self.world.clock.now() - event.at).total_seconds()
            is_persons = age - delay <= OWN_ACT_SECONDS
            is_earlier = self.world.plane.incarnation > 1 and not self._is_present(event.lab_id)
            is_late = self.world.clock.monotonic() - self._frozen_at <= LATEST_LANDING_SECONDS
            is_forgotten = is_earlier or is_late or self._was_swept(event.lab_id)
            self.require(
                is_persons or is_forgotten,
                f"{event.category} in {event.lab_id} is LCM's own, counted on {after.name}",
            )

    def _was_swept(self, lab_id: str) -> bool:
        """Whether its session had ended before it was removed."""
        session = self.world.disk.session(self.fleet.session_of(lab_id) or "")
        return session is not None and session.cleanup.is_abandoned and session.is_ended

    def _is_present(self, lab_id: str) -> bool:
        """Whether it is the newest lab of its session."""
        session = self.world.disk.session(self.fleet.session_of(lab_id) or "")
        return session is not None and session.lab is not None and session.lab.lab_id == lab_id
