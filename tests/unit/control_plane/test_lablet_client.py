"""The lablet controller's client against the application: a whole session, and what a refusal carries."""

from collections.abc import Mapping
from datetime import timedelta
from itertools import pairwise

import pytest
import yaml
from msgspec.structs import replace

from lcm.control_plane.streaming.event_names import SessionEvent, session_event_of
from lcm.domain.errors import Fenced, NotFound, Unreachable
from lcm.domain.lablet.instantiation import owner_of
from lcm.domain.lablet.lab import CleanupProof, LabCleanup, LabStep, StepReport, StepStatus
from lcm.domain.lablet.marker import SeenLab, is_ours
from lcm.domain.lablet.session import LabletSession, WaitCode, WaitsFor
from lcm.domain.lablet.states import EndReason, SessionStatus
from lcm.domain.lablet.timeslot import Timeslot
from lcm.rest.lablet_client import LabletClient, SessionChanged
from lcm.rest.lablet_reports import ImportIntent, LabCleaned, LabImported, SessionMove, SessionProgress
from lcm.rest.lablets import PlacementOrder
from lcm.rest.plane_clock import PlaneClock
from lcm.rest.scheduling_client import SchedulingClient
from lcm.rest.schemas import LABLET_CONTROLLER
from support import asgi
from support.people import KEYS, PublicDesk


class InMemory:
    """A transport to the application of a desk."""

    def __init__(self, desk: PublicDesk) -> None:
        self._desk = desk

    async def send(
        self, method: str, path: str, headers: Mapping[str, str], body: bytes | None
    ) -> tuple[int, bytes]:
        return await asgi.request(self._desk.parts.app, method, path, headers, body)


class ControllerDesk(PublicDesk):
    """People, a scheduler that placed one session, and the client of the lablet controller."""

    async def open(self) -> "ControllerDesk":
        await super().open()
        transport = InMemory(self)
        epochs = {"resource-scheduler": 0, LABLET_CONTROLLER: 0}
        scheduler = SchedulingClient(
            transport, KEYS.controller, "resource-scheduler", lambda: epochs["resource-scheduler"]
        )
        self.client = LabletClient(
            transport,
            KEYS.controller,
            LABLET_CONTROLLER,
            lambda: epochs[LABLET_CONTROLLER],
            PlaneClock(self.clock),
        )
        for client, service in ((scheduler, "resource-scheduler"), (self.client, LABLET_CONTROLLER)):
            epochs[service] = await client.claim_leadership("etcd", 1, "a")
        self.epochs = epochs
        await self.define()
        self.session_id = (await self.book())["id"]
        order = PlacementOrder(session_id=self.session_id, worker_id="w1", attempt=1)
        await scheduler.schedule([order])
        return self

    async def move(self, target: SessionStatus, end_reason: EndReason | None = None) -> LabletSession:
        session = await self.client.get_session(self.session_id)
        move = SessionMove(
            source=session.status,
            target=target,
            reason="so it is",
            generation=session.generation,
            end_reason=end_reason,
        )
        return await self.client.move(self.session_id, move)

    async def import_lab(self) -> LabletSession:
        await self.move(SessionStatus.INSTANTIATING)
        await self.client.intend_import(self.session_id, ImportIntent(attempt=1, generation=1))
        return await self.client.record_lab(self.session_id, LabImported(generation=1, lab_id="l1"))

    def cleaned(self, proof: CleanupProof = CleanupProof.LAB_ABSENT) -> LabCleaned:
        return LabCleaned(worker_id="w1", attempt=1, generation=1, proof=proof)


@pytest.fixture
async def desk() -> ControllerDesk:
    return await ControllerDesk().open()


async def test_a_session_is_run_from_its_import_to_its_end(desk: ControllerDesk) -> None:
    (scheduled,) = await desk.client.list_sessions(SessionStatus.SCHEDULED)
    assert await desk.client.list_sessions(SessionStatus.READY) == []
    await desk.import_lab()
    booted = SessionProgress(
        session_id=scheduled.id,
        attempt=1,
        generation=1,
        steps=(StepReport(step=LabStep.BOOT, status=StepStatus.COMPLETED),),
        nodes={"r1": "BOOTED"},
    )
    assert await desk.client.report_progress([booted]) == ()
    await desk.move(SessionStatus.READY)
    await desk.move(SessionStatus.RUNNING)
    shown = (await desk.operator.get(f"/api/lablet-sessions/{scheduled.id}")).body
    assert (shown["status"], shown["nodes"], shown["lab"]["lab_id"]) == ("running", {"r1": "BOOTED"}, "l1")
    await desk.move(SessionStatus.STOPPING, EndReason.FAILED)
    ended = await desk.client.report_cleaned(scheduled.id, desk.cleaned())
    assert ended is not None
    assert ended.status is SessionStatus.FAILED
    assert (await desk.records.workers.get("w1")).claims == ()


async def test_the_text_to_import_has_the_ports_of_the_claim_and_makes_the_lab_ours(
    desk: ControllerDesk,
) -> None:
    await desk.move(SessionStatus.INSTANTIATING)
    with pytest.raises(SessionChanged, match="intent"):
        await desk.client.get_topology(desk.session_id)
    session = await desk.client.intend_import(desk.session_id, ImportIntent(attempt=1, generation=1))
    assert session.lab is not None
    topology = yaml.safe_load(await desk.client.get_topology(desk.session_id))
    tags = [tag for node in topology["nodes"] for tag in node.get("tags", ())]
    assert session.ports
    assert all(any(str(port) in tag for tag in tags) for port in session.ports.values())
    owner = owner_of(session, await desk.client.get_fleet_id())
    assert owner is not None
    seen = SeenLab("l1", session.lab.title, topology["lab"]["notes"])
    assert is_ours(seen, owner, session.lab.instance_id)


async def test_a_refusal_carries_the_present_session(desk: ControllerDesk) -> None:
    await desk.import_lab()
    with pytest.raises(SessionChanged) as refused:
        await desk.client.record_lab(desk.session_id, LabImported(generation=1, lab_id="l2"))
    assert refused.value.current.lab is not None
    assert refused.value.current.lab.lab_id == "l1"
    with pytest.raises(SessionChanged) as refused:
        await desk.move(SessionStatus.GRADING)
    assert refused.value.current.status is SessionStatus.INSTANTIATING
    with pytest.raises(NotFound):
        await desk.client.intend_import("s9", ImportIntent(attempt=1, generation=1))
    assert await desk.client.report_cleaned("s9", desk.cleaned()) is None


async def test_only_the_leading_lablet_controller_decides_on_labs(desk: ControllerDesk) -> None:
    desk.epochs[LABLET_CONTROLLER] = 0
    with pytest.raises(Fenced):
        await desk.import_lab()
    other = LabletClient(
        InMemory(desk), KEYS.controller, "resource-scheduler", lambda: 1, PlaneClock(desk.clock)
    )
    with pytest.raises(Unreachable, match="lablet-controller"):
        await other.unschedule(desk.session_id, "drained", generation=1)
    assert (await desk.client.get_session(desk.session_id)).status is SessionStatus.SCHEDULED


async def test_a_session_without_a_lab_is_placed_again_at_once(desk: ControllerDesk) -> None:
    session = await desk.client.get_session(desk.session_id)
    waiting = await desk.client.unschedule(desk.session_id, "drained", generation=session.generation)
    assert (waiting.status, waiting.worker_id) == (SessionStatus.PENDING_SCHEDULING, None)
    again = await desk.client.unschedule(desk.session_id, "drained", generation=session.generation)
    assert again == waiting
    assert (await desk.records.workers.get("w1")).claims == ()


async def test_an_admin_abandons_a_lab_that_cannot_be_removed_and_no_operator_does(
    desk: ControllerDesk,
) -> None:
    await desk.import_lab()
    path, body = f"/api/lablet-sessions/{desk.session_id}/abandon", {"reason": "the host burned"}
    early = await desk.admin.post(path, body)
    assert (early.status, early.kind) == (409, "conflict")
    await desk.move(SessionStatus.STOPPING, EndReason.FAILED)
    assert (await desk.operator.post(path, body)).status == 403
    assert (await desk.admin.post(path, {})).status == 422
    ended = await desk.admin.post(path, body)
    assert (ended.status, ended.body["status"], ended.body["cleanup"]["is_abandoned"]) == (
        200,
        "failed",
        True,
    )
    (claim,) = (await desk.records.workers.get("w1")).claims
    assert (claim.is_retained, claim.attempt) == (True, 1)
    assert (await desk.admin.post(path, body)).body == ended.body


async def test_progress_is_an_event_of_its_own_and_the_status_comes_first(desk: ControllerDesk) -> None:
    before = await desk.import_lab()
    await desk.client.report_progress(
        [SessionProgress(session_id=before.id, attempt=1, generation=1, cleanup=LabCleanup(is_stopped=True))]
    )
    after = await desk.client.get_session(before.id)
    assert session_event_of(before, after) is SessionEvent.PROGRESS_UPDATED
    assert session_event_of(after, after) is None
    ready = await desk.move(SessionStatus.READY)
    assert session_event_of(before, ready) is SessionEvent.STATUS_UPDATED


async def test_what_a_session_waits_for_and_its_timeslot_have_events_of_their_own(
    desk: ControllerDesk,
) -> None:
    before, now = await desk.import_lab(), desk.clock.now()
    waits = replace(before, waits_for=WaitsFor(code=WaitCode.NO_ROOM, text="full", since=now))
    booked = replace(waits, timeslot=Timeslot(start=now, end=now + timedelta(hours=1)))
    ended = replace(booked, status=SessionStatus.TERMINATED)
    pairs = [(None, before), *pairwise((before, waits, booked, ended))]
    assert [session_event_of(was, found) for was, found in pairs] == [
        "lablet.session.created",
        "lablet.session.waiting.updated",
        "lablet.session.timeslot.updated",
        "lablet.session.ended",
    ]


async def test_the_progress_of_very_many_nodes_is_sent_in_parts(desk: ControllerDesk) -> None:
    nodes = {f"{number:03}{'n' * 250}": "BOOTED" for number in range(1000)}
    item = SessionProgress(session_id="s9", attempt=1, generation=1, nodes=nodes)
    assert await desk.client.report_progress([item] * 5) == ("s9",) * 5
    small = SessionProgress(session_id="s9", attempt=1, generation=1)
    assert len(await desk.client.report_progress([small] * 501)) == 501
