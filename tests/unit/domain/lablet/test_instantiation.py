"""A lab is intended before it is imported, proven gone before its session ends, and recorded in few bytes."""

from datetime import timedelta

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from lcm.domain.errors import Conflict, IllegalTransition
from lcm.domain.lablet import session_changes
from lcm.domain.lablet.instantiation import (
    intend_import,
    is_repeated,
    move_on,
    owner_of,
    prove_cleaned,
    record_lab,
    record_progress,
)
from lcm.domain.lablet.lab import (
    MAX_NODES,
    CleanupProof,
    LabCleanup,
    LabStep,
    StepReport,
    StepStatus,
    bounded_nodes,
)
from lcm.domain.lablet.marker import Marker
from lcm.domain.lablet.session import LabletSession
from lcm.domain.lablet.session_changes import HISTORY_LIMIT
from lcm.domain.lablet.states import EndReason, SessionStatus
from unit.domain.lablet.test_session import LATER, NOON, SLOT, after, placed, waiting

SOON = LATER + timedelta(minutes=1)


def intended(session: LabletSession, generation: int = 1, **changes: bool) -> LabletSession:
    return intend_import(
        session, generation, attempt=session.attempt, instance_id="i-1", now=LATER, **changes
    )


def imported(lab_id: str = "l1") -> LabletSession:
    return record_lab(intended(after("place", "instantiate")), 1, lab_id, is_adopted=False, now=SOON)


def stopping() -> LabletSession:
    return move_on(imported(), SessionStatus.STOPPING, reason="bad", end_reason=EndReason.FAILED, now=SOON)


def test_an_import_is_intended_once_and_names_its_lab_by_session_and_generation() -> None:
    session = intended(after("place", "instantiate"))
    assert session.lab is not None
    assert (session.lab.generation, session.lab.intent_at, session.lab.instance_id) == (1, LATER, "i-1")
    assert session.lab.title.startswith("lcm-")
    assert (session.lab_generation, intended(session)) == (1, session)
    assert session.generation == after("place", "instantiate").generation
    owner = owner_of(session, "f1")
    assert owner is not None
    assert owner.marker == Marker(session.id, 1, "f1")


def test_nothing_is_imported_for_a_session_that_is_to_end_or_has_moved_on() -> None:
    for session in (
        after("place"),
        after("place", "instantiate", "ask"),
        after("place", "instantiate", "stop"),
    ):
        with pytest.raises(Conflict):
            intended(session)
    instantiating = after("place", "instantiate")
    with pytest.raises(Conflict, match="attempt"):
        intend_import(instantiating, 1, attempt=9, instance_id="i-1", now=LATER)


def test_a_second_import_needs_the_proof_that_the_first_lab_is_gone() -> None:
    with pytest.raises(Conflict, match="l1"):
        intended(imported(), 2)
    second = intended(imported(), 2, is_previous_gone=True)
    assert second.lab is not None
    assert (second.lab.generation, second.lab.lab_id, second.lab_generation) == (2, None, 2)
    with pytest.raises(Conflict, match="one higher"):
        intended(second, 4)


def test_the_first_id_of_a_lab_counts_and_a_late_import_is_not_recorded() -> None:
    session = imported()
    assert record_lab(session, 1, "l1", is_adopted=True, now=SOON) == session
    with pytest.raises(Conflict, match="duplicate"):
        record_lab(session, 1, "l2", is_adopted=False, now=SOON)
    again = intended(session, 2, is_previous_gone=True)
    with pytest.raises(Conflict, match="leak sweep"):
        record_lab(again, 1, "l1", is_adopted=False, now=SOON)


def test_a_session_without_a_recorded_lab_is_not_ready() -> None:
    with pytest.raises(Conflict, match="no lab"):
        move_on(intended(after("place", "instantiate")), SessionStatus.READY, reason="booted", now=SOON)
    ready = move_on(imported(), SessionStatus.READY, reason="booted", now=SOON)
    assert ready.status is SessionStatus.READY


def test_a_session_is_completed_only_when_its_time_is_over_or_its_end_is_requested() -> None:
    running = after("open", "place", "instantiate", "ready", "run", timeslot=SLOT)
    for target in (SessionStatus.STOPPING, SessionStatus.COLLECTING):
        with pytest.raises(Conflict, match="not over"):
            move_on(running, target, reason="over", end_reason=EndReason.COMPLETED, now=SLOT.start)
        moved = move_on(running, target, reason="over", end_reason=EndReason.COMPLETED, now=SLOT.end)
        assert moved.status is target
    asked = session_changes.request_end(
        running, EndReason.CANCELLED, by="ann", reason="enough", now=SLOT.start
    )
    stopped = move_on(asked, SessionStatus.STOPPING, reason="asked", now=SLOT.start)
    assert stopped.end_reason is EndReason.CANCELLED
    with pytest.raises(Conflict, match="end_reason"):
        move_on(running, SessionStatus.STOPPING, reason="?", now=SLOT.start)


@pytest.mark.parametrize("target", ["pending", "pending_scheduling", "scheduled", "archived", "failed"])
def test_the_lablet_controller_decides_no_other_status(target: str) -> None:
    with pytest.raises(IllegalTransition):
        move_on(imported(), SessionStatus(target), reason="?", now=SOON)


def test_a_repeated_change_is_recognised() -> None:
    session = stopping()
    assert is_repeated(session, SessionStatus.INSTANTIATING, SessionStatus.STOPPING)
    assert not is_repeated(session, SessionStatus.RUNNING, SessionStatus.STOPPING)


def report(step: LabStep, status: StepStatus, attempts: int = 1, detail: str = "") -> StepReport:
    return StepReport(step=step, status=status, attempts=attempts, detail=detail)


def progress(
    session: LabletSession,
    *steps: StepReport,
    minute: int = 0,
    attempt: int | None = None,
    generation: int | None = None,
    nodes: dict[str, str] | None = None,
    cleanup: LabCleanup | None = None,
) -> LabletSession:
    return record_progress(
        session,
        attempt=session.attempt if attempt is None else attempt,
        generation=session.lab_generation if generation is None else generation,
        steps=steps,
        nodes=nodes,
        cleanup=cleanup,
        now=LATER + timedelta(minutes=minute),
    )


def test_a_step_is_overwritten_in_place_and_a_late_report_changes_nothing() -> None:
    running = progress(imported(), report(LabStep.START, StepStatus.RUNNING))
    done = progress(running, report(LabStep.START, StepStatus.COMPLETED), minute=2)
    assert done.lab is not None
    assert (done.steps[LabStep.START].started_at, done.lab.started_at) == (
        LATER,
        LATER + timedelta(minutes=2),
    )
    assert progress(done, report(LabStep.START, StepStatus.COMPLETED), minute=3) == done
    second = progress(done, report(LabStep.START, StepStatus.RUNNING, 2), minute=4)
    assert progress(second, report(LabStep.START, StepStatus.COMPLETED), minute=5) == second
    assert second.generation == imported().generation
    anew = intended(second, 2, is_previous_gone=True)
    assert anew.steps[LabStep.START].attempts == 2
    assert anew.lab is not None
    assert progress(anew, report(LabStep.IMPORT, StepStatus.RUNNING)).lab == anew.lab


def test_progress_of_another_lab_or_of_an_ended_session_changes_nothing() -> None:
    session, step = imported(), report(LabStep.BOOT, StepStatus.RUNNING)
    assert progress(session, step, generation=2) == session
    assert progress(session, step, attempt=7) == session
    assert progress(waiting(), step) == waiting()


def test_progress_proves_and_abandons_nothing() -> None:
    claimed = LabCleanup(is_deleted=True, proof=CleanupProof.LAB_ABSENT, is_abandoned=True)
    assert progress(stopping(), cleanup=claimed).cleanup == LabCleanup(is_deleted=True)


letters = st.text(alphabet=st.characters(codec="utf-8"), max_size=64)


@given(st.dictionaries(letters, st.sampled_from(["BOOTED", "STARTED", "QUEUED"]), max_size=700))
def test_of_very_many_nodes_those_that_have_not_booted_are_kept(nodes: dict[str, str]) -> None:
    kept = bounded_nodes(nodes)
    assert len(kept) <= MAX_NODES
    assert len(msgspec.json.encode(kept)) < 22_000
    dropped = nodes.keys() - kept.keys()
    assert all(nodes[label] == kept[label] for label in kept)
    if any(nodes[label] != "BOOTED" for label in dropped):
        assert "BOOTED" not in kept.values()


def test_the_document_of_a_session_stays_small_whatever_the_controller_reports() -> None:
    session = imported()
    for _ in range(HISTORY_LIMIT):
        session = placed(
            session_changes.unschedule(
                session, reason="日" * 1000, now=LATER, is_worker_lost=True, is_claim_retained=True
            )
        )
        session = session_changes.instantiate(session, now=SLOT.start)
    session = intended(session, 2)
    steps = [report(step, StepStatus.COMPLETED, 10**6, "日" * 1_000) for step in LabStep]
    nodes = {f"{number:03}{'日' * 60}": "DEFINED_ON_CORE" for number in range(1000)}
    session = progress(session, *steps, nodes=nodes)
    assert set(session.steps) == set(LabStep)
    assert len(msgspec.json.encode(session)) < 64_000


def test_a_proof_is_about_the_lab_of_the_session_on_its_instance() -> None:
    def prove(proof: CleanupProof, generation: int = 1, instance_id: str = "i-1") -> LabletSession:
        return prove_cleaned(stopping(), proof, generation=generation, instance_id=instance_id, now=SOON)

    assert prove(CleanupProof.LAB_ABSENT).cleanup.proof is CleanupProof.LAB_ABSENT
    assert prove(CleanupProof.WORKER_GONE, instance_id="i-2").cleanup.proven_at == SOON
    with pytest.raises(Conflict, match="instance i-1"):
        prove(CleanupProof.LAB_ABSENT, instance_id="i-2")
    with pytest.raises(Conflict, match="another import"):
        prove(CleanupProof.LAB_ABSENT, generation=2)
    with pytest.raises(Conflict, match="was intended"):
        prove(CleanupProof.NEVER_IMPORTED)
    with pytest.raises(IllegalTransition):
        prove_cleaned(imported(), CleanupProof.LAB_ABSENT, generation=1, instance_id="i-1", now=SOON)


def test_a_session_without_an_import_has_nothing_to_prove() -> None:
    session = after("place", "instantiate", "stop")
    proven = prove_cleaned(session, CleanupProof.NEVER_IMPORTED, generation=0, instance_id=None, now=SOON)
    assert proven.cleanup.proof is CleanupProof.NEVER_IMPORTED
    with pytest.raises(Conflict, match="never_imported"):
        prove_cleaned(session, CleanupProof.WORKER_GONE, generation=0, instance_id=None, now=SOON)


def test_an_attempt_that_may_have_a_lab_is_an_older_one_when_the_session_moves_on_or_is_abandoned() -> None:
    with pytest.raises(Conflict, match="retain"):
        session_changes.unschedule(imported(), reason="lost", now=SOON, is_worker_lost=True)
    moved = session_changes.unschedule(
        imported(), reason="lost", now=SOON, is_worker_lost=True, is_claim_retained=True
    )
    assert (moved.attempt, moved.lab, moved.lab_generation) == (2, None, 1)
    never = session_changes.unschedule(
        after("place", "instantiate"), reason="lost", now=SOON, is_worker_lost=True
    )
    assert (never.attempt, never.lab_generation) == (1, 0)
    ended = session_changes.abandon(stopping(), by="ann", reason="the host burned", now=NOON)
    assert (ended.status, ended.attempt, ended.cleanup.is_abandoned) == (SessionStatus.FAILED, 2, True)
    with pytest.raises(IllegalTransition):
        session_changes.abandon(imported(), by="ann", reason="?", now=NOON)
    assert replace(ended, attempt=1).lab == stopping().lab
