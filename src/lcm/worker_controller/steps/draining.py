"""DRAINING: no new sessions; stop when the present ones are over, or when the drain took too long."""

from lcm.domain.lifecycle import RUNNING, STOPPING, TERMINATING, DesiredStatus
from lcm.domain.observation import Known
from lcm.worker_controller.decisions import Decision, Maintain, Move, Situation, Wait, report_drift


def decide(situation: Situation) -> Decision:
    worker, seen = situation.worker, situation.seen
    if worker.desired_status is DesiredStatus.TERMINATED:
        return Move(TERMINATING, "people want it deleted")
    if isinstance(seen, Known) and seen.value.state not in ("running", "pending"):
        return report_drift(seen.value, f"{seen.value.state} outside LCM")
    if worker.desired_status is DesiredStatus.RUNNING:
        return Move(RUNNING, "the drain was cancelled")
    if not worker.sessions:
        return Move(STOPPING, "no session is left")
    if worker.is_drain_cut_short:
        return Move(STOPPING, f"people want it stopped; sessions cut off: {len(worker.sessions)}")
    if worker.drain_deadline_at is None or situation.now >= worker.drain_deadline_at:
        return Move(STOPPING, f"drained for too long; sessions cut off: {len(worker.sessions)}")
    return Maintain(seen.value) if isinstance(seen, Known) else Wait("waiting for sessions to end")
