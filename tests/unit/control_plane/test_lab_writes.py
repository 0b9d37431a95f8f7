"""Whatever dies between two writes about a lab: no claim is lost while it may exist, none is left behind."""

import contextlib
import itertools
from collections import Counter
from datetime import datetime
from random import Random

import pytest
from msgspec.structs import replace

from lcm.control_plane.commands.claim_leadership import claim_leadership, fence_for
from lcm.control_plane.commands.lablets.abandon_session import abandon_session
from lcm.control_plane.commands.lablets.clean_up_session import clean_up_session
from lcm.control_plane.commands.lablets.create_session import find_session
from lcm.control_plane.commands.lablets.end_session import end_session
from lcm.control_plane.commands.lablets.intend_import import intend_import
from lcm.control_plane.commands.lablets.move_session import move_session
from lcm.control_plane.commands.lablets.record_lab import record_lab, record_progress
from lcm.control_plane.commands.lablets.unschedule_session import unschedule_session
from lcm.control_plane.queries.explain_session import explain_session
from lcm.control_plane.store.port import Fence
from lcm.domain.errors import Conflict, Fenced, IllegalTransition, RequestError
from lcm.domain.lablet.admission import hold_again
from lcm.domain.lablet.audit import LabletEvent
from lcm.domain.lablet.lab import CleanupProof, LabCleanup, LabStep, StepReport, StepStatus
from lcm.domain.lablet.session import LabletSession
from lcm.domain.lablet.states import (
    INSTANTIATING,
    OWNS_LAB,
    PENDING_SCHEDULING,
    READY,
    RUNNING,
    SCHEDULED,
    STOPPING,
    EndReason,
    SessionStatus,
)
from lcm.domain.launch import InstanceId
from lcm.domain.lifecycle import STOPPED, TERMINATED
from lcm.domain.worker import Worker
from lcm.rest.lablet_reports import (
    ImportIntent,
    LabCleaned,
    LabImported,
    ProgressReport,
    SessionMove,
    SessionProgress,
)
from lcm.rest.lablets import Unscheduled
from lcm.rest.schemas import LABLET_CONTROLLER, LeadershipClaim
from unit.control_plane.test_placement_writes import Desk, Killed

TWO_WRITES = [*itertools.product((1, 2), (False, True))]
THREE_WRITES = [*itertools.product((1, 2, 3), (False, True))]
BY = LABLET_CONTROLLER


def on_instance(worker: Worker, instance_id: str) -> Worker:
    return replace(worker, instance=replace(worker.instance, id=InstanceId(instance_id)))


class LabDesk(Desk):
    """The desk of the placement tests, with what the lablet controller reports."""

    async def lead_labs(self, revision: int = 1) -> Fence:
        claim = LeadershipClaim(
            service=LABLET_CONTROLLER, cluster_id="etcd", instance_id=f"c{revision}", revision=revision
        )
        grant = await claim_leadership(self.plane.records, claim)
        self.lab_fence = fence_for(LABLET_CONTROLLER, grant.epoch)
        return self.lab_fence

    async def add_worker(self, worker_id: str) -> None:
        await super().add_worker(worker_id)
        await self.plane.records.workers.change(
            worker_id, lambda worker: on_instance(worker, f"i-{worker_id}")
        )

    async def move(self, target: SessionStatus, end_reason: EndReason | None = None) -> LabletSession:
        before = await self.session()
        return await self.repeat_move(before, target, end_reason)

    async def repeat_move(
        self, before: LabletSession, target: SessionStatus, end_reason: EndReason | None = None
    ) -> LabletSession:
        move = SessionMove(
            source=before.status,
            target=target,
            reason="so it is",
            generation=before.generation,
            end_reason=end_reason,
        )
        plane = self.plane
        return await move_session(plane.records, plane.policies, "s1", move, fence=self.lab_fence)

    async def intend(self, generation: int | None = None, *, is_previous_gone: bool = False) -> LabletSession:
        session = await self.session()
        intent = ImportIntent(
            attempt=session.attempt,
            generation=generation or session.lab_generation + 1,
            is_previous_gone=is_previous_gone,
        )
        return await intend_import(self.plane.records, "s1", intent, fence=self.lab_fence)

    async def imported(self, lab_id: str = "l1", *, is_adopted: bool = False) -> LabletSession:
        generation = (await self.session()).lab_generation
        lab = LabImported(generation=generation, lab_id=lab_id, is_adopted=is_adopted)
        return await record_lab(self.plane.records, "s1", lab, by=BY, fence=self.lab_fence)

    async def progress(self, **changes: object) -> tuple[str, ...]:
        session = await self.session()
        item = SessionProgress(session_id="s1", attempt=session.attempt, generation=session.lab_generation)
        report = ProgressReport(items=(replace(item, **changes),))
        receipt = await record_progress(self.plane.records, report, by=BY, fence=self.lab_fence)
        return receipt.ignored

    async def unschedule(
        self, *, generation: int | None = None, is_worker_lost: bool = False
    ) -> LabletSession:
        if generation is None:
            generation = (await self.session()).generation
        request = Unscheduled(reason="drained", generation=generation, is_worker_lost=is_worker_lost)
        plane = self.plane
        return await unschedule_session(
            plane.records, plane.policies, "s1", request, by=BY, fence=self.lab_fence
        )

    async def cleaned(
        self,
        proof: CleanupProof = CleanupProof.LAB_ABSENT,
        *,
        worker_id: str = "w1",
        attempt: int = 1,
        generation: int = 1,
        instance_id: str | None = None,
    ) -> LabletSession | None:
        report = LabCleaned(
            worker_id=worker_id,
            attempt=attempt,
            generation=generation,
            proof=proof,
            instance_id=instance_id or f"i-{worker_id}",
        )
        return await clean_up_session(self.plane.records, "s1", report, by=BY, fence=self.lab_fence)

    async def abandon(self) -> LabletSession:
        return await abandon_session(self.plane.records, "s1", by="ann", reason="the host burned")

    async def in_status(self, status: SessionStatus) -> None:
        """A session that has come so far, with a lab from INSTANTIATING on."""
        await self.add_session("s1")
        await self.order("s1", "w1")
        if status is SCHEDULED:
            return
        await self.move(INSTANTIATING)
        await self.intend()
        await self.imported()
        for target in (READY, RUNNING):
            if status in (target, RUNNING):
                await self.move(target)
        if status is STOPPING:
            await self.move(STOPPING, EndReason.FAILED)

    def kill(self, write: int, happens: bool) -> None:
        self.store.kill_at = (self.store.writes + write, happens)

    async def held(self, worker_id: str = "w1") -> list[tuple[int, int, bool]]:
        """Attempt, import and retention of each claim."""
        claims = (await self.worker(worker_id)).claims
        return [(claim.attempt, claim.lab_generation, claim.is_retained) for claim in claims]

    async def events(self) -> Counter[LabletEvent]:
        return Counter(entry.event for entry in await self.plane.records.lablet_audit.newest())


@pytest.fixture
async def desk() -> LabDesk:
    desk = LabDesk()
    await desk.lead()
    await desk.lead_labs()
    for worker in ("w1", "w2"):
        await desk.add_worker(worker)
    return desk


@pytest.mark.parametrize("happens", [False, True])
async def test_a_repeated_change_of_status_is_made_once(desk: LabDesk, happens: bool) -> None:
    await desk.in_status(SCHEDULED)
    before = await desk.session()
    desk.kill(1, happens)
    with pytest.raises(Killed):
        await desk.move(INSTANTIATING)
    desk.restart()
    session = await desk.repeat_move(before, INSTANTIATING)
    assert [entry.target for entry in session.state_history].count(INSTANTIATING) == 1
    with pytest.raises(Conflict, match="generation"):
        await desk.repeat_move(before, STOPPING, EndReason.FAILED)


@pytest.mark.parametrize(("write", "happens"), THREE_WRITES)
async def test_whichever_write_is_the_last_a_session_without_a_lab_ends_without_a_claim(
    desk: LabDesk, write: int, happens: bool
) -> None:
    await desk.in_status(SCHEDULED)
    await desk.move(INSTANTIATING)
    before = await desk.session()
    desk.kill(write, happens)
    with pytest.raises(Killed):
        await desk.move(STOPPING, EndReason.FAILED)
    desk.restart()
    if (write, happens) == (1, False):
        await desk.repeat_move(before, STOPPING, EndReason.FAILED)
    await desk.sweep_until_quiet()
    assert ((await desk.session()).status, await desk.claims()) == (SessionStatus.FAILED, [])


@pytest.mark.parametrize(("write", "happens"), TWO_WRITES)
async def test_whichever_write_is_the_last_an_import_is_intended_once(
    desk: LabDesk, write: int, happens: bool
) -> None:
    await desk.in_status(SCHEDULED)
    await desk.move(INSTANTIATING)
    desk.kill(write, happens)
    with pytest.raises(Killed):
        await desk.intend(1)
    desk.restart()
    lab = (await desk.session()).lab
    assert lab is None or await desk.held() == [(1, 1, False)], "no import without its claim"
    session = await desk.intend(1)
    assert session.lab is not None
    assert (session.lab.generation, session.lab.instance_id, session.lab_generation) == (1, "i-w1", 1)
    assert await desk.held() == [(1, 1, False)]


@pytest.mark.parametrize(("write", "happens"), TWO_WRITES)
async def test_an_intent_that_a_crash_cut_off_leaves_nothing_when_the_session_ends(
    desk: LabDesk, write: int, happens: bool
) -> None:
    await desk.in_status(SCHEDULED)
    await desk.move(INSTANTIATING)
    desk.kill(write, happens)
    with pytest.raises(Killed):
        await desk.intend(1)
    desk.restart()
    session = await desk.move(STOPPING, EndReason.FAILED)
    if session.lab is not None:
        await desk.cleaned()
    assert ((await desk.session()).status, await desk.claims()) == (SessionStatus.FAILED, [])


async def test_nothing_is_imported_without_a_claim_or_by_an_older_leader(desk: LabDesk) -> None:
    await desk.in_status(SCHEDULED)
    await desk.move(INSTANTIATING)
    await desk.lead_labs(2)
    desk.lab_fence = fence_for(LABLET_CONTROLLER, 1)
    with pytest.raises(Fenced):
        await desk.intend()
    assert await desk.held() == [(1, 0, False)]
    await desk.lead_labs(3)
    await desk.plane.records.workers.change("w1", lambda worker: replace(worker, claims=()))
    with pytest.raises(Conflict, match="claim_lost"):
        await desk.intend()


async def lose_claim(desk: LabDesk, *, room_goes_to: str | None = None) -> None:
    await desk.plane.records.workers.change("w1", lambda worker: replace(worker, claims=()))
    if room_goes_to is not None:
        await desk.add_session(room_goes_to)
        await desk.order(room_goes_to, "w1")


async def claim_lost_at(desk: LabDesk) -> datetime | None:
    lab = (await desk.session()).lab
    assert lab is not None
    return lab.claim_lost_at


@pytest.mark.parametrize("status", [INSTANTIATING, READY, RUNNING, STOPPING])
async def test_a_claim_that_is_lost_while_its_lab_exists_is_put_back(
    desk: LabDesk, status: SessionStatus
) -> None:
    await desk.in_status(status)
    [before] = (await desk.worker("w1")).claims
    await lose_claim(desk)
    await desk.sweep_until_quiet()
    [after] = (await desk.worker("w1")).claims
    assert replace(after, at=before.at, ends_at=before.ends_at) == before
    assert (await desk.session()).status is status
    assert await claim_lost_at(desk) is None
    assert (await desk.events())[LabletEvent.CLAIM_PUT_BACK] == 1


async def test_a_lost_claim_that_does_not_fit_back_is_said_until_it_does(desk: LabDesk) -> None:
    await desk.in_status(RUNNING)
    await lose_claim(desk, room_goes_to="s2")
    since = desk.clock.now()
    await desk.sweep_until_quiet()
    plane, session = desk.plane, await desk.session()
    assert (session.status, await claim_lost_at(desk)) == (RUNNING, since)
    explained = await explain_session(plane.records, plane.policies, session)
    assert "Its claim is lost: worker w1 cannot hold it again yet" in explained.text
    assert (await desk.events())[LabletEvent.CLAIM_LOST] == 1
    assert [session_id for _, session_id, _ in await desk.claims()] == ["s2"]
    await lose_claim(desk)
    await desk.sweep_until_quiet()
    assert ("w1", "s1", 1) in await desk.claims()
    assert await claim_lost_at(desk) is None


async def test_a_lost_claim_is_not_put_back_where_the_lab_cannot_be(desk: LabDesk) -> None:
    await desk.in_status(RUNNING)
    await lose_claim(desk)
    await desk.plane.records.workers.change("w1", lambda worker: on_instance(worker, "i-another"))
    await desk.sweep_until_quiet()
    assert await desk.claims() == []
    assert await claim_lost_at(desk) is None, "the lablet controller finds its worker lost"


async def test_a_session_ends_without_the_claim_that_it_lost(desk: LabDesk) -> None:
    await desk.in_status(STOPPING)
    await lose_claim(desk, room_goes_to="s2")
    await desk.sweep_until_quiet()
    assert await claim_lost_at(desk) is not None
    await desk.cleaned()
    await desk.sweep_until_quiet()
    assert (await desk.session()).status is SessionStatus.FAILED
    assert [session_id for _, session_id, _ in await desk.claims()] == ["s2"]


async def test_the_epochs_of_the_scheduler_and_of_the_lablet_controller_are_their_own(desk: LabDesk) -> None:
    await desk.in_status(SCHEDULED)
    for revision in (2, 3, 4):
        await desk.lead(str(revision), revision=revision)
    assert (await desk.move(INSTANTIATING)).status is INSTANTIATING


@pytest.mark.parametrize("happens", [False, True])
async def test_a_lab_that_is_recorded_twice_is_recorded_once(desk: LabDesk, happens: bool) -> None:
    await desk.in_status(SCHEDULED)
    await desk.move(INSTANTIATING)
    await desk.intend()
    desk.kill(1, happens)
    with pytest.raises(Killed):
        await desk.imported()
    desk.restart()
    await desk.imported(is_adopted=True)
    with pytest.raises(Conflict, match="l1"):
        await desk.imported("l2")
    lab = (await desk.session()).lab
    assert lab is not None
    assert (lab.lab_id, lab.is_adopted) == ("l1", not happens)
    assert (await desk.events())[LabletEvent.LAB_ADOPTED] == (not happens)


async def test_progress_moves_no_generation_and_is_ignored_when_the_session_has_moved_on(
    desk: LabDesk,
) -> None:
    await desk.in_status(INSTANTIATING)
    before = await desk.session()
    started = StepReport(step=LabStep.START, status=StepStatus.COMPLETED, attempts=1)
    assert await desk.progress(steps=(started,), nodes={"r1": "BOOTED"}) == ()
    session = await desk.session()
    assert (session.generation, session.nodes) == (before.generation, {"r1": "BOOTED"})
    assert session.lab is not None
    assert session.lab.started_at == desk.clock.now()
    assert await desk.progress(generation=2, nodes={}) == ("s1",)
    assert await desk.progress(session_id="s9") == ("s9",)


async def test_a_removal_that_is_stuck_is_audited_once(desk: LabDesk) -> None:
    await desk.in_status(STOPPING)
    for _ in range(2):
        await desk.progress(cleanup=LabCleanup(is_stopped=True, is_stuck=True))
    assert (await desk.events())[LabletEvent.CLEANUP_STUCK] == 1


@pytest.mark.parametrize("repairs", ["repeat", "sweep"])
@pytest.mark.parametrize(("write", "happens"), TWO_WRITES)
async def test_whichever_write_is_the_last_a_session_without_a_lab_leaves_its_worker_without_a_claim(
    desk: LabDesk, write: int, happens: bool, repairs: str
) -> None:
    await desk.in_status(SCHEDULED)
    await desk.move(INSTANTIATING)
    desk.kill(write, happens)
    with pytest.raises(Killed):
        await desk.unschedule()
    desk.restart()
    if repairs == "repeat" or (write, happens) == (1, False):
        await desk.unschedule()
    await desk.sweep_until_quiet()
    session = await desk.session()
    assert (session.status, session.attempt, await desk.held()) == (PENDING_SCHEDULING, 1, [])


@pytest.mark.parametrize("repairs", ["repeat", "sweep"])
@pytest.mark.parametrize(("write", "happens"), TWO_WRITES)
async def test_whichever_write_is_the_last_the_claim_of_a_lab_is_retained_until_the_lab_is_gone(
    desk: LabDesk, write: int, happens: bool, repairs: str
) -> None:
    await desk.in_status(INSTANTIATING)
    desk.kill(write, happens)
    with pytest.raises(Killed):
        await desk.unschedule()
    desk.restart()
    if repairs == "repeat":
        await desk.unschedule()
    await desk.sweep_until_quiet()
    session = await desk.session()
    has_moved_on = repairs == "repeat" or (write, happens) == (2, True)
    assert session.status is (PENDING_SCHEDULING if has_moved_on else INSTANTIATING)
    assert await desk.held() == [(1, 1, has_moved_on)]
    if has_moved_on:
        assert (session.attempt, session.lab, session.lab_generation) == (2, None, 1)
        await desk.order("s1", "w1")
        assert await desk.held() == [(1, 1, True), (3, 0, False)]
        await desk.cleaned()
        await desk.cleaned()
        assert await desk.held() == [(3, 0, False)]
        assert (await desk.events())[LabletEvent.PLACEMENT_RELEASED] == 1
        assert (await desk.session()).status is SCHEDULED


async def test_an_intent_whose_session_is_unscheduled_meanwhile_keeps_its_claim(desk: LabDesk) -> None:
    await desk.in_status(SCHEDULED)
    await desk.move(INSTANTIATING)
    desk.kill(1, True)
    with pytest.raises(Killed):
        await desk.intend(1)
    desk.restart()
    session = await desk.unschedule()
    assert (session.attempt, await desk.held()) == (2, [(1, 1, True)])


async def test_a_request_to_leave_a_worker_that_arrives_late_takes_no_session_off_the_next_one(
    desk: LabDesk,
) -> None:
    await desk.in_status(SCHEDULED)
    generation = (await desk.session()).generation
    await desk.unschedule()
    await desk.order("s1", "w2")
    with pytest.raises(Conflict, match="decide on that one"):
        await desk.unschedule(generation=generation, is_worker_lost=True)
    session = await desk.session()
    assert (session.status, session.worker_id) == (SCHEDULED, "w2")


async def test_a_session_that_may_not_move_on_keeps_its_claim_in_use(desk: LabDesk) -> None:
    await desk.in_status(RUNNING)
    with pytest.raises((Conflict, IllegalTransition)):
        await desk.unschedule()
    assert await desk.held() == [(1, 1, False)]


async def test_a_stopped_worker_keeps_the_claim_of_a_lab_and_a_terminated_one_keeps_none(
    desk: LabDesk,
) -> None:
    await desk.in_status(STOPPING)
    with pytest.raises(Conflict, match="prove"):
        await desk.cleaned(CleanupProof.WORKER_GONE)
    workers = desk.plane.records.workers
    await workers.change("w1", lambda worker: replace(worker, status=STOPPED))
    with pytest.raises(Conflict, match="prove"):
        await desk.cleaned(CleanupProof.WORKER_GONE)
    await workers.change("w1", lambda worker: replace(worker, status=TERMINATED, claims=()))
    ended = await desk.cleaned(CleanupProof.WORKER_GONE)
    assert ended is not None
    assert ended.status is SessionStatus.FAILED


async def test_an_instance_that_replaced_the_one_with_the_lab_has_none_of_it(desk: LabDesk) -> None:
    await desk.in_status(STOPPING)
    await desk.plane.records.workers.change("w1", lambda worker: on_instance(worker, "i-new"))
    with pytest.raises(Conflict, match="i-w1"):
        await desk.cleaned(instance_id="i-new")
    ended = await desk.cleaned(CleanupProof.WORKER_GONE, instance_id="i-new")
    assert ended is not None
    assert ended.is_ended


@pytest.mark.parametrize("repairs", ["repeat", "sweep"])
@pytest.mark.parametrize(("write", "happens"), THREE_WRITES)
async def test_whichever_write_is_the_last_a_proven_removal_ends_the_session_and_releases_once(
    desk: LabDesk, write: int, happens: bool, repairs: str
) -> None:
    await desk.in_status(STOPPING)
    desk.kill(write, happens)
    with pytest.raises(Killed):
        await desk.cleaned()
    desk.restart()
    held, session = await desk.held(), await desk.session()
    assert held or session.cleanup.proof is not None, "released before the proof was recorded"
    assert not (held and session.is_ended)
    if repairs == "repeat" or (write, happens) == (1, False):
        await desk.cleaned()
    await desk.sweep_until_quiet()
    session = await desk.session()
    assert (session.status, await desk.held()) == (SessionStatus.FAILED, [])
    assert (await desk.events())[LabletEvent.SESSION_FAILED] == 1
    freed = (await desk.worker("w1")).freed_ports
    await desk.cleaned()
    assert (await desk.worker("w1")).freed_ports == freed


@pytest.mark.parametrize("status", [SCHEDULED, INSTANTIATING, RUNNING])
async def test_a_session_that_is_not_being_stopped_is_neither_cleaned_nor_abandoned(
    desk: LabDesk, status: SessionStatus
) -> None:
    await desk.in_status(status)
    with pytest.raises(RequestError):
        await desk.cleaned()
    with pytest.raises(Conflict, match="end it first"):
        await desk.abandon()
    assert len(await desk.claims()) == 1


@pytest.mark.parametrize("repairs", ["repeat", "sweep"])
@pytest.mark.parametrize(("write", "happens"), TWO_WRITES)
async def test_whichever_write_is_the_last_an_abandoned_lab_keeps_its_claim(
    desk: LabDesk, write: int, happens: bool, repairs: str
) -> None:
    await desk.in_status(STOPPING)
    desk.kill(write, happens)
    with pytest.raises(Killed):
        await desk.abandon()
    desk.restart()
    if repairs == "repeat":
        await desk.abandon()
    await desk.sweep_until_quiet()
    session = await desk.session()
    is_abandoned = repairs == "repeat" or (write, happens) == (2, True)
    assert session.is_ended is is_abandoned
    assert await desk.held() == [(1, 1, is_abandoned)]
    if is_abandoned:
        assert session.attempt == 2
        assert await desk.abandon() == session
    await desk.cleaned()
    assert ((await desk.session()).is_ended, await desk.held()) == (True, [])


async def test_an_abandoned_session_is_audited_by_name(desk: LabDesk) -> None:
    await desk.in_status(STOPPING)
    await desk.abandon()
    entries = await desk.plane.records.lablet_audit.newest(session_id="s1")
    (entry,) = [entry for entry in entries if entry.event is LabletEvent.CLEANUP_ABANDONED]
    assert (entry.by, entry.reason, entry.worker_id) == ("ann", "the host burned", "w1")


async def test_a_claim_that_moved_on_without_being_retained_is_retained_by_the_sweep(desk: LabDesk) -> None:
    await desk.in_status(INSTANTIATING)
    await desk.unschedule()
    await desk.plane.records.workers.change(
        "w1", lambda worker: hold_again(worker, "s1", 1, now=desk.clock.now())
    )
    assert await desk.held() == [(1, 1, False)]
    await desk.sweep_until_quiet()
    assert (await desk.held(), desk.sweep.released) == ([(1, 1, True)], 0)


class Story:
    """A controller, people and crashes by a seed. What is on each CML is known here alone."""

    def __init__(self, desk: LabDesk, seed: int) -> None:
        self.desk = desk
        self.rng = Random(seed)
        self.labs: dict[tuple[int, int], str] = {}
        """The worker of each lab by attempt and import."""
        self.gone: set[tuple[str, str, int]] = set()
        self.claims: set[tuple[str, str, int]] = set()
        self.lives = 0

    async def step(self, *, may_fail: bool = True) -> None:
        if may_fail and self.rng.random() < 0.3:
            self.desk.kill(self.rng.randint(1, 3), self.rng.random() < 0.5)
        with contextlib.suppress(Killed, Conflict, IllegalTransition):
            await self._act(may_fail)
        if self.desk.store.kill_at is not None:
            self.desk.restart()
        await self.check()

    async def _act(self, may_fail: bool) -> None:
        session = await find_session(self.desk.plane.records, "s1")
        assert session is not None
        luck = self.rng.random() if may_fail else 1
        if luck < 0.1:
            await self.desk.sweep_until_quiet()
        elif luck < 0.2:
            await self.remove_leaks()
        elif luck < 0.23:
            await end_session(self.desk.plane.records, "s1", EndReason.CANCELLED, by="ann", reason="enough")
        elif luck < 0.26:
            await self.lose_worker(self.rng.choice(["w1", "w2"]))
        elif luck < 0.35 and session.worker_id is not None:
            await self.desk.unschedule(is_worker_lost=self.rng.random() < 0.5)
        elif luck < 0.4:
            await self.desk.abandon()
        else:
            await self._go_on(session)

    async def _go_on(self, session: LabletSession) -> None:
        if session.status is PENDING_SCHEDULING:
            await self.desk.order("s1", self.rng.choice(["w1", "w2"]))
        elif session.status is STOPPING:
            await self._remove(session)
        elif session.status in OWNS_LAB and session.desired_status == "terminated":
            await self.desk.move(STOPPING)
        elif session.status is SCHEDULED:
            await self.desk.move(INSTANTIATING)
        elif session.status is INSTANTIATING:
            await self._instantiate(session)
        elif session.status is READY:
            await self.desk.move(RUNNING)
        elif session.status is RUNNING:
            await self.desk.move(STOPPING, EndReason.FAILED)

    async def _instantiate(self, session: LabletSession) -> None:
        lab = session.lab
        if lab is None:
            await self.desk.intend()
        elif lab.lab_id is None:
            if lab.instance_id == await self.instance(session.worker_id or ""):
                self.labs[session.attempt, lab.generation] = session.worker_id or ""
            await self.desk.imported(f"l{lab.generation}")
        elif self.rng.random() < 0.3:
            self.labs.pop((session.attempt, lab.generation), None)
            await self.desk.intend(is_previous_gone=True)
        else:
            await self.desk.move(READY)

    async def _remove(self, session: LabletSession) -> None:
        lab, worker_id = session.lab, session.worker_id
        if lab is None or worker_id is None:
            await self.desk.sweep_until_quiet()
            return
        self._delete(session.attempt)
        is_here = lab.instance_id == await self.instance(worker_id)
        await self.desk.cleaned(
            CleanupProof.LAB_ABSENT if is_here else CleanupProof.WORKER_GONE,
            worker_id=worker_id,
            attempt=session.attempt,
            generation=lab.generation,
            instance_id=lab.instance_id,
        )

    async def remove_leaks(self) -> None:
        """What sweeps leaked labs: it deletes the labs of retained claims and says so."""
        for worker in await self.desk.plane.records.workers.list_all():
            for claim in worker.claims:
                if claim.is_retained and claim.attempt < (await self.attempt()):
                    self._delete(claim.attempt)
                    await self.desk.cleaned(
                        worker_id=worker.id,
                        attempt=claim.attempt,
                        generation=claim.lab_generation,
                        instance_id=worker.instance.id,
                    )

    async def lose_worker(self, worker_id: str) -> None:
        """Its instance is terminated; another one comes up under its name."""
        self.lives += 1
        instance_id = f"i-{worker_id}-{self.lives}"
        kill_at, self.desk.store.kill_at = self.desk.store.kill_at, None
        await self.desk.plane.records.workers.change(
            worker_id, lambda worker: replace(on_instance(worker, instance_id), claims=())
        )
        self.desk.store.kill_at = kill_at
        self.labs = {lab: at for lab, at in self.labs.items() if at != worker_id}

    def _delete(self, attempt: int) -> None:
        self.labs = {lab: at for lab, at in self.labs.items() if lab[0] != attempt}

    async def attempt(self) -> int:
        return (await self.desk.session()).attempt

    async def instance(self, worker_id: str) -> str | None:
        return (await self.desk.worker(worker_id)).instance.id

    async def check(self) -> None:
        claims = set(await self.desk.claims())
        assert not claims & self.gone, "a claim was released and came back"
        self.gone |= self.claims - claims
        self.claims = claims
        for (attempt, _), worker_id in self.labs.items():
            assert (worker_id, "s1", attempt) in claims, "a lab has no claim"
        session = await self.desk.session()
        if session.is_ended:
            workers = await self.desk.plane.records.workers.list_all()
            left = [claim for worker in workers for claim in worker.claims]
            assert all(claim.is_retained and claim.attempt < session.attempt for claim in left)


@pytest.mark.parametrize("seed", range(60))
async def test_no_lab_is_without_a_claim_and_no_claim_is_left_or_released_twice(
    desk: LabDesk, seed: int
) -> None:
    await desk.add_session("s1")
    story = Story(desk, seed)
    for _ in range(25):
        await story.step()
    await desk.sweep_until_quiet()
    while not (await desk.session()).is_ended:
        await story.step(may_fail=False)
    await desk.sweep_until_quiet()
    await story.remove_leaks()
    assert (await desk.claims(), story.labs) == ([], {})
