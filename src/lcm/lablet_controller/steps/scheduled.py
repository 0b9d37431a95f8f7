"""SCHEDULED: wait until the lab is due; look for another worker if this one leaves."""

from lcm.domain.lablet.states import INSTANTIATING
from lcm.lablet_controller.decisions import WITHOUT_LAB, Decision, Move, Situation, Unschedule, Wait


def decide(situation: Situation) -> Decision:
    session = situation.session
    if situation.must_end:
        return situation.end()
    if situation.is_worker_lost or situation.does_worker_leave:
        return Unschedule(situation.describe_worker(), situation.is_worker_lost)
    due_at = session.lab_due_at(situation.lab_lead) or session.status_since
    if situation.now < due_at:
        return Wait("the lab is not due yet", situation.seconds_until(due_at))
    if not situation.is_worker_usable:
        if situation.now - max(due_at, session.status_since) >= WITHOUT_LAB:
            return Unschedule(f"due for {WITHOUT_LAB.seconds // 60} minutes: {situation.describe_worker()}")
        return Wait(situation.describe_worker())
    return Move(INSTANTIATING, "the lab is due")
