"""DRAINING: no new sessions; stop when the present ones have ended, or at the drain deadline."""

from lcm.domain.lifecycle import RUNNING, STOPPING, TERMINATING, DesiredStatus
from lcm.domain.observation import Known
from lcm.worker_controller.decisions import Decision, Maintain, Move, Situation, Wait, report_drift


def decide(situation: Situation) -> Decision:
    worker, observation = situation.worker, situation.observation
    if worker.desired_status is DesiredStatus.TERMINATED:
        return Move(TERMINATING, "desired status is terminated")
    if isinstance(observation, Known) and observation.value.state not in ("running", "pending"):
        return report_drift(observation.value, f"{observation.value.state} outside LCM")
    if worker.desired_status is DesiredStatus.RUNNING:
        return Move(RUNNING, "the drain was cancelled")
    if not worker.sessions:
        return Move(STOPPING, "no session is left")
    if not worker.pause.is_draining:
        return Move(STOPPING, f"desired status is stopped; sessions cut off: {len(worker.sessions)}")
    if worker.pause.until is None or situation.now >= worker.pause.until:
        return Move(STOPPING, f"drain deadline passed; sessions cut off: {len(worker.sessions)}")
    if isinstance(observation, Known):
        return Maintain(observation.value)
    return Wait("waiting for sessions to end")
