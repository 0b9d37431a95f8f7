"""SCHEDULED: wait until the lab is due; look for another worker if this one leaves."""

from lcm.domain.lablet.states import INSTANTIATING
from lcm.lablet_controller.decisions import Decision, Move, Situation, Unschedule, Wait


def decide(situation: Situation) -> Decision:
    session = situation.session
    if situation.must_end:
        return situation.end()
    if situation.is_worker_lost or situation.does_worker_leave:
        return Unschedule(situation.describe_worker(), situation.is_worker_lost)
    due_at = session.timeslot.start - situation.lab_lead if session.timeslot else situation.now
    if situation.now < due_at:
        return Wait("the lab is not due yet", situation.seconds_until(due_at))
    if not situation.is_worker_usable:
        return Wait(situation.describe_worker())
    return Move(INSTANTIATING, "the lab is due")
